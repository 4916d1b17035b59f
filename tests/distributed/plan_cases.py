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
#: torch's operator → what the tables call it
NAMES = {
    "c10d::_allgather_base_": "all_gather",
    "c10d::allreduce_": "all_reduce",
    "c10d::_reduce_scatter_base_": "reduce_scatter",
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
    events = sorted(profile.events(), key=lambda event: event.time_range.start)
    issued = [NAMES[event.name] for event in events if event.name in NAMES]
    ran = [event.input_shapes[0] for event in events if event.name.startswith("gloo:")]
    rows = dict[str, tuple[int, int]]()
    for collective, operand in zip(issued, ran, strict=True):  # gloo runs one after the other
        nbytes = math.prod(operand) * ITEMSIZE * (size if collective == "all_gather" else 1)
        count, total = rows.get(collective, (0, 0))
        rows[collective] = count + 1, total + nbytes
    return rows


COUNTED = sliced(3, {f"bytes of {name}": partial(counted, name) for name in LAYOUTS}, start=1)
