"""Processes that begin other programs, that begin none, and that leave one by an error."""

from __future__ import annotations

from datetime import timedelta
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


@case
def programs_that_differ():
    layers = [nn.Linear(4, 4) for _ in range(1 + dist.get_rank())]
    return message(thunder.jit(nn.Sequential(*layers), transforms=[fsdp()]), torch.ones(2, 4))


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
    group = impatient_group()
    if dist.get_rank() == 1:
        return None
    return message(thunder.jit(nn.Linear(4, 4), transforms=[fsdp(process_group=group)]), torch.ones(2, 4))


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
