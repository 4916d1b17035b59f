"""The stage that writes attention over a ring as its blocks and collectives, line by line."""

from __future__ import annotations

from typing import Any

from thunder.core.symbol import BoundSymbol
from thunder.core.trace import TraceCtx, TraceProvenance, from_trace

from .ring_attention import RINGS

__all__ = ["with_rings"]


def with_rings(trace: TraceCtx, context: Any) -> TraceCtx:
    """Return the trace with the parts of each ring as statements, so that they are scheduled one by one."""
    if not any(bsym.sym.id in RINGS for bsym in trace.bound_symbols):
        return trace
    new = from_trace(trace)
    for bsym in trace.bound_symbols:
        new.bound_symbols.extend(_lines(bsym) if bsym.sym.id in RINGS else [bsym])
    new.set_provenance(TraceProvenance("Attention over rings"))
    return new


def _lines(bsym: BoundSymbol) -> list[BoundSymbol]:
    assert bsym.subsymbols, "a ring is recorded with its parts"
    return [
        part.from_bsym(source=part.source or bsym.source, tags=part.own_tags | bsym.own_tags)
        for part in bsym.subsymbols
    ]
