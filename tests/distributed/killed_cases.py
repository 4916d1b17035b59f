"""Processes that are killed, or hang, while others train with them."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import torch
import torch.distributed as dist

import thunder
from distributed.launching import FORKED_SECONDS, forked_case, message
from distributed.small_models import batches, part, words
from thunder.distributed import ddp, fsdp


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
