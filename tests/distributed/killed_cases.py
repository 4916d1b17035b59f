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

import thunder
from distributed.launching import FORKED, FORKED_SECONDS, forked_case, message, sliced
from distributed.small_models import batches, part, words
from thunder.distributed import clip_grad_norm_, ddp, fsdp
from thunder.distributed.checkpoint import get_model_state_dict, save


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


def killed() -> None:
    """End this process without a word."""
    os.kill(os.getpid(), signal.SIGKILL)


def hangs() -> None:
    """Return after the others have given up."""
    time.sleep(2 * FORKED_SECONDS)


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
    compiled = thunder.jit(torch.nn.Linear(4, 4), transforms=[fsdp()])
    return message(compiled, torch.ones(2, 4))


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
    4,
    {
        "the gathering of a parameter": lost_outside(lambda compiled, _: compiled.original_state_dict()),
        "the norm of all gradients": lost_outside(lambda compiled, _: clip_grad_norm_(compiled, 1.0)),
        "the save of a checkpoint": lost_outside(
            lambda compiled, folder: save(get_model_state_dict(compiled), folder / "state")
        ),
        "the broadcast of the values of rank 0": lost_outside(
            lambda *_: thunder.jit(words(), transforms=[ddp()])
        ),
    },
    table=FORKED,
)
