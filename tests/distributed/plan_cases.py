"""Steps whose bytes are counted while they run."""

from __future__ import annotations

import math
from functools import partial

import torch
import torch.distributed as dist

import thunder
from distributed.launching import sliced
from distributed.small_models import batches, part, words
from thunder.distributed import FSDPBucketingStrategy, FSDPType, ddp, fsdp

LAYOUTS = {
    "ddp": ddp,
    "ddp in small buckets": partial(ddp, bucket_size_in_mb=0.0005),
    "ZeRO-2": fsdp,
    "ZeRO-3": partial(fsdp, sharding_strategy=FSDPType.ZERO3),
    "ZeRO-3 by block": partial(
        fsdp, sharding_strategy=FSDPType.ZERO3, bucketing_strategy=FSDPBucketingStrategy.BLOCK
    ),
}
#: what torch calls them → what the tables do, and whether the result is larger than the operand
NAMES = {
    "all_gather_into_tensor": "all_gather",
    "all_reduce": "all_reduce",
    "reduce_scatter_tensor": "reduce_scatter",
}
ITEMSIZE = 8  # of float64


def arguments(rank: int, size: int) -> list[torch.Tensor]:
    """Return the arguments of a process."""
    return part(batches(1, 2, size)[0], rank, size)


def counted(name: str) -> dict[str, tuple[int, int]]:
    """Return the number and the bytes of the collectives of a layout that torch's profiler sees, by name."""
    rank, size = dist.get_rank(), dist.get_world_size()
    compiled = thunder.jit(words(), transforms=[LAYOUTS[name]()])
    compiled(*arguments(rank, size)).backward()
    with torch.profiler.profile(record_shapes=True) as profile:
        compiled(*arguments(rank, size)).backward()
    rows = dict[str, tuple[int, int]]()
    for event in profile.events():
        space, _, operator = event.name.partition("::")
        if space == "_c10d_functional" and operator in NAMES:
            nbytes = math.prod(event.input_shapes[0]) * ITEMSIZE
            nbytes *= size if operator == "all_gather_into_tensor" else 1
            count, total = rows.get(NAMES[operator], (0, 0))
            rows[NAMES[operator]] = count + 1, total + nbytes
    return rows


COUNTED = sliced(3, {f"bytes of {name}": partial(counted, name) for name in LAYOUTS}, start=1)
