"""Programs of several processes for bisections: right ones, and wrong executors and passes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh

import thunder
from distributed.attention_models import pages, reader
from distributed.context_models import language_model, texts
from distributed.small_models import batches, part, words
from distributed.tensor_cases import in_parts
from thunder.distributed import FSDPBucketingStrategy, FSDPType, context_parallel, ddp, fsdp

__all__ = ["RIGHT", "RankProgram", "of_rank", "stepped"]


def of_rank(size: int) -> list[torch.Tensor]:
    """Return the part of a batch of this rank."""
    return part(batches(1, 3, size)[0], dist.get_rank(), size)


def stepped(transforms: Any, **options: Any) -> Any:
    """Return a compiled model after a step: its parts are not those of the user's module."""
    compiled = thunder.jit(words(), transforms=transforms, **options)
    compiled(*of_rank(dist.get_world_size())).backward()
    torch.optim.SGD([p for p in compiled.parameters() if p.requires_grad], lr=0.1).step()
    compiled.zero_grad()
    return compiled


def on_mesh() -> list[Any]:
    """Return the transforms that shard over one dimension of a mesh, and replicate over the other."""
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard"))
    return [fsdp(process_group=mesh["shard"]), ddp(process_group=mesh["replicate"])]


def normed(dtype: torch.dtype = torch.float32) -> nn.Module:
    """Return a module with buffers that it writes, and draws."""
    torch.manual_seed(3)
    layers = nn.Linear(6, 5), nn.BatchNorm1d(5), nn.Dropout(0.3), nn.Linear(5, 2)
    return nn.Sequential(*layers).to(dtype)


def rows(dtype: torch.dtype = torch.float32) -> list[torch.Tensor]:
    """Return other rows on each rank."""
    generator = torch.Generator().manual_seed(dist.get_rank())
    return [torch.randn(4, 6, generator=generator).to(dtype)]


@dataclass(frozen=True)
class RankProgram:
    """What each of `size` ranks compiles, and the arguments that it calls it with."""

    compiled: Callable[[], Any]
    args: Callable[[], Any]
    size: int = 2


BF16 = torch.bfloat16
BLOCKS = {
    "sharding_strategy": FSDPType.ZERO3,
    "bucketing_strategy": FSDPBucketingStrategy.BLOCK,
}
RIGHT = {
    "ddp": RankProgram(lambda: stepped([ddp(bucket_size_in_mb=0.0005)]), lambda: of_rank(2)),
    "zero3 by block, three ranks": RankProgram(lambda: stepped([fsdp(**BLOCKS)]), lambda: of_rank(3), 3),
    "tensor parallel": RankProgram(
        lambda: thunder.jit(reader(), transforms=in_parts()), lambda: pages(1, 2)[0]
    ),
    "buffers and draws": RankProgram(lambda: thunder.jit(normed(), transforms=[ddp()]), rows),
    "zero2 after a step": RankProgram(lambda: stepped([fsdp()]), lambda: of_rank(2)),
    "released": RankProgram(
        lambda: thunder.jit(words(), transforms=[fsdp(release=True)]), lambda: of_rank(2)
    ),
    "mesh of fsdp and ddp": RankProgram(lambda: stepped(on_mesh()), lambda: of_rank(4), 4),
    "context parallel": RankProgram(
        lambda: thunder.jit(language_model(), transforms=[context_parallel(divide={"tokens": 1})]),
        lambda: texts(1)[0],
    ),
    "without overlap": RankProgram(lambda: stepped([fsdp()], overlap_collectives=0), lambda: of_rank(2)),
    "bfloat16": RankProgram(lambda: thunder.jit(normed(BF16), transforms=[fsdp()]), lambda: rows(BF16)),
}
