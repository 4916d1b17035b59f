"""Training in two processes, compared with one process on the joined batch."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch.distributed as dist

import thunder
from distributed.launching import case, sliced
from distributed.small_models import batches, part, words
from distributed.trainings import STEPS, compared, distance
from thunder.distributed import (
    FSDPBucketingStrategy,
    FSDPType,
    Machine,
    ddp,
    fsdp,
    skip_data_parallel_grad_sync,
)

STRATEGIES = {
    "ddp-none": lambda: ddp(bucket_size_in_mb=0),
    "ddp-small": lambda: ddp(bucket_size_in_mb=0.0005),
    "ddp-large": ddp,
    **{
        f"{level.name}-{bucket.name}".lower(): partial(
            fsdp, sharding_strategy=level, bucketing_strategy=bucket
        )
        for level in FSDPType
        for bucket in FSDPBucketingStrategy
    },
}


def trained(transform: Any, **options: Any) -> dict[str, Any]:
    """Return the differences from one process: each process has its part of the batch."""
    rank, size = dist.get_rank(), dist.get_world_size()
    data = batches(STEPS, 3, size)
    return compared(words(), words(), transform, data, lambda batch: part(batch, rank, size), **options)


def unsynchronised(compiled: Any) -> Any:
    """Return the context in which a compiled module leaves gradients uncommunicated."""
    return compiled.no_sync()


def skipped(compiled: Any) -> Any:
    """Return the context in which all programs leave gradients uncommunicated."""
    return skip_data_parallel_grad_sync()


#: strategies → what a test calls them, of which a default run has some
TRAINED = sliced(8, {f"trained {name}": lambda s=s: trained(s()) for name, s in STRATEGIES.items()}, start=8)
CLIPPED = sliced(
    2,
    {
        "clipped fsdp": lambda: trained(fsdp(), clip=0.1),
        "clipped ddp": lambda: trained(ddp(), clip=0.1),
    },
)
ACCUMULATED = sliced(
    4,
    {
        "skipped ddp": lambda: trained(ddp(), accumulated=2, local=skipped),
        "accumulated ddp": lambda: trained(ddp(), accumulated=2, local=unsynchronised),
        "accumulated fsdp": lambda: trained(STRATEGIES["zero3-block"](), accumulated=4, local=unsynchronised),
        "skipped fsdp": lambda: trained(fsdp(), accumulated=2, local=skipped),
    },
    start=1,
)


@case
def scheduled_fsdp():
    """Several gathers ahead, within a limit of bytes, as late as the figures of a machine allow."""
    machine = Machine(flops={"f64": 1e9}, bandwidth=1e9, within=1e6, between=1e6)
    zero3 = fsdp(sharding_strategy=FSDPType.ZERO3)
    return trained(zero3, overlap_collectives=4, overlap_bytes=1500, overlap_machine=machine)


@case
def processes_begin_with_the_values_of_one():
    result = []
    for transform in (ddp(broadcast_from=1), fsdp(broadcast_from=1)):
        compiled = thunder.jit(words(seed=dist.get_rank()), transforms=[transform])
        result.append(distance(compiled.original_state_dict(), words(seed=1).state_dict()))
    return result
