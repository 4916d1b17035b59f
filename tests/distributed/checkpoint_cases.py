"""Checkpoints of several processes: saved beside training, by fewer than all, and by killed ones."""

from __future__ import annotations

import os
import random
import signal
import threading
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn

import thunder
from distributed.launching import case, forked_case, message, shared_folder
from distributed.small_models import batches, part, words
from distributed.trainings import distance
from thunder.distributed import FSDPBucketingStrategy, fsdp
from thunder.distributed.checkpoint import async_save, get_model_state_dict, load

STEPS = 4


@case
def saved_while_training():
    """Save in each step, and train on; return how far the last files are from one process that trains."""
    rank, size = dist.get_rank(), dist.get_world_size()
    compiled = thunder.jit(words(seed=2), transforms=[fsdp()])
    plain = words(seed=2)
    optimizers = [torch.optim.SGD(m.parameters(), lr=0.1) for m in (compiled, plain)]
    folder = shared_folder() / "run"
    for batch in batches(STEPS, 2, size):
        for module, inputs, optimizer in zip(
            (compiled, plain), (part(batch, rank, size), batch), optimizers, strict=True
        ):
            optimizer.zero_grad()
            module(*inputs).backward()
            optimizer.step()
        future = async_save(get_model_state_dict(compiled), folder)
    with torch.no_grad():
        for parameter in compiled.parameters():
            parameter.fill_(9.0)  # after the call, and before the files are complete
    future.result()
    other = thunder.jit(words(), transforms=[fsdp(bucketing_strategy=FSDPBucketingStrategy.LAYER)])
    load(get_model_state_dict(other), folder)
    return distance(other.original_state_dict(), plain.state_dict())


@case
def loaded_by_fewer_processes():
    """All processes save; half of them load, and one of them with the model itself."""
    rank, size = dist.get_rank(), dist.get_world_size()
    folder = shared_folder() / "run"
    compiled = thunder.jit(uneven(3), transforms=[fsdp()])
    async_save(get_model_state_dict(compiled), folder).result()
    group = dist.new_group(list(range(size // 2)))
    if rank >= size // 2:
        return 0.0
    other = thunder.jit(uneven(4), transforms=[fsdp(process_group=group)])
    load(get_model_state_dict(other), folder, process_group=group)
    difference = distance(other.original_state_dict(), uneven(3).state_dict())
    model = uneven(5)
    load(model.state_dict(), folder, no_dist=True)
    return max(difference, distance(model.state_dict(), uneven(3).state_dict()))


def uneven(seed: int) -> nn.Module:
    """Return a model whose rows no number of processes divides."""
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(5, 7), nn.Linear(7, 3), nn.LayerNorm(3))


@forked_case
def killed_while_saving(folder: Path):
    """Save numbers until the last process is killed; return the folder, the last number, the error."""
    compiled = thunder.jit(nn.Linear(3, 7), transforms=[fsdp()])
    run, returned = folder / "run", -1
    rank, size = dist.get_rank(), dist.get_world_size()

    def saves() -> None:
        nonlocal returned
        while True:
            with torch.no_grad():
                for parameter in compiled.parameters():
                    parameter.fill_(returned + 1.0)
            future = async_save(get_model_state_dict(compiled), run)
            future.result()
            returned += 1
            if returned == 0 and rank == size - 1:
                seconds = random.SystemRandom().uniform(0.0, 0.2)
                threading.Timer(seconds, os.kill, (os.getpid(), signal.SIGKILL)).start()

    error = message(saves)
    return str(run), returned, error
