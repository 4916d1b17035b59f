"""Trainings in stages: by gloo processes, and by ranks in one process."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import init_device_mesh

from distributed.launching import sliced
from thunder.distributed import (
    FSDPBucketingStrategy,
    FSDPType,
    clip_grad_norm_,
    column_parallel,
    context_parallel,
    ddp,
    fsdp,
    pipeline,
    row_parallel,
)

WORDS, WIDTH, STEPS = 11, 8, 3


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 16), nn.Linear(16, WIDTH)

    def forward(self, x):
        return x + self.down(F.relu(self.up(self.norm(x))))


class Model(nn.Module):
    """Blocks between an embedding and a layer with the same weight: the first and the last stage read it."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(WORDS, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(4))
        self.head = nn.Linear(WIDTH, WORDS, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, tokens):
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def model() -> Model:
    torch.manual_seed(0)
    return Model().double()


def tokens() -> torch.Tensor:
    generator = torch.Generator().manual_seed(1)
    return torch.randint(0, WORDS, (8, 4), generator=generator)


def loss(model, tokens):
    return F.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten())


def trained(parameters: Any, step: Callable[[], float], clip: Callable[[], Any]) -> dict[str, torch.Tensor]:
    """Return the losses and norms of some steps of AdamW with clipping."""
    optimizer = torch.optim.AdamW(list(parameters), lr=0.05)
    losses, norms = [], []
    for _ in range(STEPS):
        optimizer.zero_grad()
        losses.append(step())
        norms.append(float(clip()))
        optimizer.step()
    values = {"losses": losses, "norms": norms}
    return {name: torch.tensor(numbers, dtype=torch.float64) for name, numbers in values.items()}


def by_one_process() -> dict[str, torch.Tensor]:
    """Return what one process computes on the whole batch, with eager torch."""
    module, batch = model(), tokens()

    def step() -> float:
        value = loss(module, batch)
        value.backward()
        return value.item()

    parameters = list(module.parameters())
    outcome = trained(parameters, step, lambda: nn.utils.clip_grad_norm_(parameters, 0.3))
    return outcome | module.state_dict()


def in_stages(schedule: str, *, stages: Any = None, microbatches: int = 4, clips_by_torch: bool = False):
    """Return what a rank of a pipeline computes of the same batch, and its parameters."""
    module, batch = model(), tokens()
    step = pipeline(
        module, loss, microbatches=microbatches, schedule=schedule, stages=stages, executors=["torch"]
    )
    clip = (
        (lambda: nn.utils.clip_grad_norm_(module.parameters(), 0.3))
        if clips_by_torch
        else (lambda: clip_grad_norm_(step, 0.3))
    )
    outcome = trained(module.parameters(), lambda: step(batch).item(), clip)
    return outcome | step.state_dict()


def on_a_mesh(kind: str, schedule: str):
    """Return what a rank of four computes: two stages, each of which is distributed over two processes."""
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("stages", "copies"))
    copies = mesh["copies"]
    transforms = {
        "ddp": lambda: [ddp(process_group=copies)],
        "fsdp": lambda: [fsdp(process_group=copies, bucketing_strategy=FSDPBucketingStrategy.BLOCK)],
        "zero3": lambda: [fsdp(process_group=copies, sharding_strategy=FSDPType.ZERO3)],
        "tensor": lambda: [
            column_parallel(target_modules=["*.up"], process_group=copies),
            row_parallel(target_modules=["*.down"], process_group=copies),
        ],
        "context": lambda: [context_parallel(divide={"tokens": 1}, process_group=copies)],
    }[kind]()
    step = pipeline(
        model(),
        loss,
        microbatches=2,
        schedule=schedule,
        process_group=mesh["stages"],
        transforms=transforms,
        executors=["torch"],
    )
    has_copies = kind in ("ddp", "fsdp", "zero3")
    part = tokens().chunk(2)[copies.get_local_rank()] if has_copies else tokens()

    def run() -> float:
        value = step(part)
        if has_copies:
            dist.all_reduce(value, group=copies.get_group())
            value /= 2
        return value.item()

    return trained(step.parameters(), run, lambda: clip_grad_norm_(step, 0.3))


#: what is in the other dimension of a mesh
KINDS = ("ddp", "fsdp", "zero3", "tensor", "context")
#: schedules, and how they are cut
IN_STAGES = {
    "gpipe": {},
    "1f1b": {"stages": ["blocks.1"], "clips_by_torch": True},
    "interleaved": {"stages": 4},
    "zero bubble": {},
}
NAMES = sliced(1, {f"pipeline {name}": partial(in_stages, name, **IN_STAGES[name]) for name in IN_STAGES})
