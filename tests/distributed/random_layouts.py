"""Random distributions of a random module: transforms, and which processes get which data."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh

from thunder.distributed import (
    FSDPBucketingStrategy,
    FSDPType,
    column_parallel,
    context_parallel,
    ddp,
    fsdp,
    row_parallel,
)

BUCKETS = (0, 0.0003, 25)
#: one transform, or two on a mesh, of which the second one is in the rows; the names are those below
KINDS = (
    "ddp", "fsdp", "tensor", "context",
    "ddp+fsdp", "fsdp+tensor", "ddp+tensor", "fsdp+context", "ddp+context", "context+tensor",
)  # fmt: skip


@dataclass
class Distribution:
    """The transforms of a training, and the part of a batch that this process gets."""

    transforms: list[Any]
    part: int
    parts: int

    @property
    def are_data_parallel(self) -> bool:
        """Whether each process has a part of its own, so that parts may have different sizes."""
        return self.parts == dist.get_world_size()


def distribution_of(r: random.Random, kind: str, model: nn.Module) -> Distribution:
    """Return a random distribution of a kind."""
    first, _, second = kind.partition("+")
    size = dist.get_world_size()
    groups: dict[str, Any] = {first: None}
    if second:
        mesh = init_device_mesh("cpu", (size // 2, 2), mesh_dim_names=("first", "second"))
        groups = {first: mesh["first"], second: mesh["second"]}
    transforms = [t for name in MAKERS if name in groups for t in MAKERS[name](r, groups[name], model)]
    data = [name for name in groups if name in ("ddp", "fsdp")]
    if not data:
        return Distribution(transforms, 0, 1)
    if len(data) == len(groups):
        return Distribution(transforms, dist.get_rank(), size)
    return Distribution(transforms, groups[data[0]].get_local_rank(), groups[data[0]].size())


def _replicated(r: random.Random, group: Any, model: nn.Module) -> list[Any]:
    return [ddp(bucket_size_in_mb=r.choice(BUCKETS), process_group=group)]


def _sharded(r: random.Random, group: Any, model: nn.Module) -> list[Any]:
    strategy, buckets = r.choice(list(FSDPType)), r.choice(list(FSDPBucketingStrategy))
    limit = r.choice([None, 0.0003])
    options = {"sharding_strategy": strategy, "bucketing_strategy": buckets, "bucket_size_in_mb": limit}
    return [fsdp(broadcast_from=r.choice([None, 0]), process_group=group, **options)]


def _divided(r: random.Random, group: Any, model: nn.Module) -> list[Any]:
    """Return transforms that divide random layers; layers with one weight are divided alike."""
    columns: list[str] = []
    rows: list[str] = []
    ways: dict[int, str] = {}
    for name, module in model.named_modules():
        if isinstance(module, nn.Linear | nn.Embedding) and "weight" in module._parameters:
            way = ways.setdefault(id(module.weight), r.choice(["columns", "rows", "whole"]))
            # an embedding whose table has the rows of a linear layer's weight is divided by row_parallel
            by_rows = (way == "rows") != isinstance(module, nn.Embedding)
            if way != "whole":
                (rows if by_rows else columns).append(name)
    dim = r.choice([None, 1, -2])
    transforms = [column_parallel(target_modules=columns, process_group=group)] if columns else []
    if rows:
        transforms.append(row_parallel(target_modules=rows, process_group=group, sequence_dim=dim))
    return transforms


def _of_sequences(r: random.Random, group: Any, model: nn.Module) -> list[Any]:
    choices = {"rotate": ("ring", "allgather"), "arrangement": ("zigzag", "plain")}
    options = {name: r.choice(values) for name, values in choices.items()}
    options |= {"otherwise": "gather", "bucket_size_in_mb": r.choice(BUCKETS)}
    return [context_parallel(divide={"x": 1, "tokens": 1}, process_group=group, **options)]


#: in the order in which a list of transforms has them
MAKERS = {"tensor": _divided, "context": _of_sequences, "fsdp": _sharded, "ddp": _replicated}
