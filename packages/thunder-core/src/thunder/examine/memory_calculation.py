"""The memory that a trace needs, as `thunder.plan` estimates it, for any trace."""

from __future__ import annotations

from thunder.base.structural_ids import DEL
from thunder.compiler.memory_estimate import (
    Allocations,
    MemoryEstimate,
    allocations,
    allocations_of,
    estimate_memory,
    live_bytes,
    register_workspace,
    storages_at_peak,
)
from thunder.ir.trace import TraceCtx
from thunder.passes.del_last_used import del_last_used

__all__ = [
    "Allocations",
    "MemoryEstimate",
    "allocations_of",
    "estimate_memory",
    "get_alloc_memory",
    "live_bytes",
    "register_workspace",
    "storages_at_peak",
]


def get_alloc_memory(trace: TraceCtx) -> tuple[int, dict[str, int]]:
    """Return the peak memory of a trace, and the bytes of each storage by the name of its first tensor.

    The peak is the largest sum, at one time, of the inputs and of what statements allocated. A view has no
    storage. A trace without `del` statements is estimated as if each value were deleted after its last use.

        peak, storages = get_alloc_memory(thunder.last_traces(jf)[-1])
    """
    if not any(bsym.sym.id == DEL for bsym in trace.bound_symbols):
        trace = del_last_used(trace)
    return allocations(trace)
