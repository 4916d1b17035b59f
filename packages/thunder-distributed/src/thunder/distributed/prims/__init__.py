"""The collectives, as operators of traces."""

from thunder_distributed.collectives import (
    all_gather,
    all_reduce,
    all_to_all,
    broadcast,
    pack,
    pack_for_fsdp,
    reduce_scatter,
    unpack,
    unpack_for_fsdp,
    wait,
)
from thunder_distributed.synchronization import synchronize, synchronize_gradient

__all__ = [
    "all_gather",
    "all_reduce",
    "all_to_all",
    "broadcast",
    "pack",
    "pack_for_fsdp",
    "reduce_scatter",
    "synchronize",
    "synchronize_gradient",
    "unpack",
    "unpack_for_fsdp",
    "wait",
]
