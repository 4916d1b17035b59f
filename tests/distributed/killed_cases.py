"""Processes that are killed, or hang, while others train with them."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import transformers.integrations.moe  # noqa: F401  (registers the operator)
from torch import nn

import thunder
from distributed.context_models import language_model, texts
from distributed.launching import FORKED, FORKED_SECONDS, forked_case, message, sliced
from distributed.small_models import batches, part, words
from thunder.distributed import clip_grad_norm_, context_parallel, ddp, expert_parallel, fsdp
from thunder.distributed.checkpoint import get_model_state_dict, save


def killed() -> None:
    """End this process without a word."""
    os.kill(os.getpid(), signal.SIGKILL)


def hangs() -> None:
    """Return after the others have given up."""
    time.sleep(2 * FORKED_SECONDS)


def trained(transform, lost) -> str:
    """Train until the last process is lost; return the error of the others."""
    compiled = thunder.jit(words(), transforms=[transform])
    rank, size = dist.get_rank(), dist.get_world_size()
    (batch,) = batches(1, 2, size)
    for _ in range(2):
        compiled(*part(batch, rank, size)).backward()
    if rank == size - 1:
        lost()
    return message(lambda: compiled(*part(batch, rank, size)).backward())


def lost_in(lost, where: str) -> Callable[[Path], str]:
    """Return a program whose last process is lost before a kind of collective; it returns others' error."""

    def program(folder: Path) -> str:
        model, transforms, arguments = MEETINGS[where]()
        compiled = thunder.jit(model, transforms=transforms)
        is_last = dist.get_rank() == dist.get_world_size() - 1
        for _ in range(2):
            compiled(*arguments).backward()
        if where == "reduce_scatter":
            loss = compiled(*arguments)
            if is_last:
                lost()
            return message(loss.backward)
        if is_last:
            lost()
        return message(lambda: compiled(*arguments).backward())

    return program


def _of_words(transform):
    rank, size = dist.get_rank(), dist.get_world_size()
    return words(), [transform], part(batches(1, 2, size)[0], rank, size)


class Grouped(nn.Module):
    """A product of rows with the weights of four experts, sorted by expert."""

    def __init__(self) -> None:
        super().__init__()
        self.experts = nn.Parameter(torch.ones(4, 3, 3))

    def forward(self, x):
        ends = torch.arange(1, 5, dtype=torch.int32)
        return torch.ops.transformers.grouped_mm_fallback(x, self.experts, offs=ends).sum()


def _of_sequences():
    return language_model(), [context_parallel(divide={"tokens": 1})], texts(1)[0]


def _of_experts():
    return Grouped(), [expert_parallel(experts=["experts"])], (torch.ones(4, 3),)


#: collective → a module whose program meets others in it, its transforms, and arguments
MEETINGS = {
    "all_reduce": lambda: _of_words(ddp()),
    "reduce_scatter": lambda: _of_words(fsdp()),
    "expert_product": _of_experts,
    "rotate": _of_sequences,
}
#: what a test calls them → programs that lose a process, of which a default run has one
LOST = sliced(
    8,
    {f"{lost.__name__} in {where}": lost_in(lost, where) for where in MEETINGS for lost in (killed, hangs)},
    start=3,
    table=FORKED,
)


@forked_case
def killed_while_others_gather(folder: Path):
    return trained(fsdp(), killed)


@forked_case
def killed_while_others_reduce(folder: Path):
    return trained(ddp(), killed)


@forked_case
def hangs_while_others_gather(folder: Path):
    return trained(fsdp(), hangs)


@forked_case
def killed_before_it_compiles(folder: Path):
    if dist.get_rank() == dist.get_world_size() - 1:
        killed()
    return message(lambda: thunder.jit(torch.nn.Linear(4, 4), transforms=[fsdp()])(torch.ones(2, 4)))


def lost_outside(communicate: Callable[[Any, Path], Any]) -> Callable[[Path], str]:
    """Return a program that loses a process between two steps, and then communicates outside of them."""

    def program(folder: Path) -> str:
        compiled = thunder.jit(words(), transforms=[fsdp()])
        rank, size = dist.get_rank(), dist.get_world_size()
        compiled(*part(batches(1, 2, size)[0], rank, size)).backward()
        if rank == size - 1:
            killed()
        return message(communicate, compiled, folder)

    return program


#: what a process is missing in → a program that communicates so
OUTSIDE = sliced(
    3,
    {
        "the gathering of a parameter": lost_outside(lambda compiled, _: compiled.original_state_dict()),
        "the norm of all gradients": lost_outside(lambda compiled, _: clip_grad_norm_(compiled, 1.0)),
        "the save of a checkpoint": lost_outside(
            lambda compiled, folder: save(get_model_state_dict(compiled), folder / "state")
        ),
    },
    table=FORKED,
)
