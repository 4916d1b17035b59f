"""Processes that begin other programs, that begin none, and that leave one by an error."""

from __future__ import annotations

import warnings
from datetime import timedelta
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed import distributed_c10d

import thunder
from distributed.launching import case, message
from thunder.distributed import ddp, fsdp

#: that of the groups in which processes wait for each other in vain
SECONDS = 2.0


class Branches(nn.Module):
    """Two layers of equal shapes, of which a call reads one; index 7 is an error."""

    def __init__(self) -> None:
        super().__init__()
        self.left, self.right = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x, goes_left: bool, index):
        return (self.left(x) if goes_left else self.right(x))[index]


def impatient_group() -> Any:
    """Return a new group in which a process that does not come is missed soon."""
    group = dist.new_group([0, 1])
    dist.barrier(group)  # which takes longer on a loaded machine
    distributed_c10d._set_pg_timeout(timedelta(seconds=SECONDS), group)
    return group


def branches(transform: Any) -> tuple[Any, Any]:
    """Return the module with the transform in a group of its own, and a function that trains for a step."""
    group = impatient_group()
    compiled = thunder.jit(Branches(), transforms=[transform(process_group=group)])

    def step(goes_left: bool, index: int = 0) -> None:
        compiled(torch.ones(2, 4), goes_left, torch.tensor([index])).sum().backward()

    return compiled, step


class Some(nn.Module):
    """Layers, of which the first ones are called."""

    def __init__(self, count: int) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers, self.count = nn.ModuleList(nn.Linear(4, 4) for _ in range(2)), count

    def forward(self, x):
        for layer in self.layers[: self.count]:
            x = layer(x)
        return x


@case
def programs_that_differ():
    return message(thunder.jit(Some(1 + dist.get_rank()), transforms=[fsdp()]), torch.ones(2, 4))


class Activated(nn.Module):
    """A layer with an activation, which is the code of a process."""

    def __init__(self, activation, seed: int = 0) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.layer, self.activation = nn.Linear(4, 4), activation

    def forward(self, x):
        return self.activation(self.layer(x)).sum()


def activated(**options: Any) -> Any:
    """Return the module with another activation in each process, compiled."""
    model = Activated((torch.relu, torch.tanh)[dist.get_rank()])
    return thunder.jit(model, transforms=[fsdp(process_group=impatient_group())], **options)


@case
def statements_that_differ():
    """One process has other code; then it means to have it, and then batches differ, too."""
    texts = [message(activated(), torch.ones(2, 4)), message(activated(same_program=False), torch.ones(2, 4))]
    return [*texts, message(activated(), torch.ones(2 + dist.get_rank(), 4))]


@case
def weights_that_differ():
    """The processes have other values, to transforms without a broadcast, and other shapes."""

    def compiled(transform: Any, seed: int, features: int = 4) -> str:
        model = Activated(torch.relu, seed)
        model.layer = nn.Linear(4, features) if features != 4 else model.layer
        group = impatient_group()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            text = message(lambda: thunder.jit(model, transforms=[transform(process_group=group)]))
        return f"{text} {' '.join(str(w.message) for w in caught)}"

    rank = dist.get_rank()
    replicated = partial(ddp, broadcast_from=None)
    return [
        compiled(replicated, 0),
        compiled(replicated, rank),
        compiled(fsdp, rank),
        compiled(ddp, 0, 4 + rank),
    ]


@case
def first_calls_of_other_branches():
    texts = []
    for transform in (fsdp, ddp):
        _, step = branches(transform)
        texts.append(message(step, dist.get_rank() == 0))
    return texts


@case
def later_compiles_of_other_branches():
    """One process repeats a program, and the other compiles one with parameters of the same shapes."""
    _, step = branches(fsdp)
    for _ in range(2):
        step(True)
    return message(step, dist.get_rank() == 0)


@case
def warm_calls_of_other_branches():
    """Both processes have agreed on both programs, and run one each."""
    texts = []
    for transform in (fsdp, ddp):
        compiled, step = branches(transform)
        for goes_left in (True, False, True, False, True, False):
            step(goes_left)
        misses = thunder.cache_misses(compiled)
        text = message(step, dist.get_rank() == 0)
        texts.append((text, misses, thunder.cache_misses(compiled)))
    return texts


@case
def an_error_in_one_process():
    """One process leaves a backward out, and calls again; the other one is in that backward."""
    _, step = branches(fsdp)
    step(True)
    if dist.get_rank() == 1:
        assert "IndexError" in message(step, True, 7)
    return [message(step, True) for _ in range(2)]


@case
def unsynchronised_in_one_process():
    compiled, step = branches(ddp)
    step(True)
    if dist.get_rank() == 0:
        return message(step, True)
    with compiled.no_sync():
        return message(step, True)


@case
def a_process_that_begins_nothing():
    compiled = thunder.jit(nn.Linear(4, 4), transforms=[ddp(process_group=impatient_group())])
    if dist.get_rank() == 1:
        return None
    return message(lambda: compiled(torch.ones(2, 4)).sum().backward())


@case
def one_process_evaluates():
    """A program without collectives runs in one process alone."""
    compiled, step = branches(ddp)
    step(True)
    if dist.get_rank() == 0:
        with torch.no_grad():
            compiled(torch.ones(2, 4), False, torch.tensor([0]))
    step(True)
    return True


@case
def comparisons_of_a_loop():
    """Return how often the store is written to in steps of a loop with accumulation."""
    compiled, step = branches(ddp)
    writes = []
    store = distributed_c10d._get_default_store()
    original = type(store).set
    counts = [0]

    def counted(self, *args):
        counts[0] += 1
        return original(self, *args)

    type(store).set = counted
    try:
        for index in range(24):
            counts[0] = 0
            if index % 3 == 2:
                step(True)
            else:
                with compiled.no_sync():
                    step(True)
            writes.append(counts[0])
    finally:
        type(store).set = original
    return writes
