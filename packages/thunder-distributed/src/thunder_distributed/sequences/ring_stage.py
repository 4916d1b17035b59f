"""The stage that writes attention over a ring as its blocks and collectives, line by line."""

from __future__ import annotations

from typing import Any

from thunder.core.rewrite import record_parts, replace_calls
from thunder.core.trace import TraceCtx

from .ring_attention import RINGS

__all__ = ["with_rings"]


def with_rings(trace: TraceCtx, context: Any) -> TraceCtx:
    """Return the trace with the parts of each ring as statements, so that they are scheduled one by one."""
    if not any(bsym.sym.id in RINGS for bsym in trace.bound_symbols):
        return trace
    return replace_calls(
        trace,
        lambda bsym: record_parts(bsym) if bsym.sym.id in RINGS else None,
        provenance="Attention over rings",
    )
