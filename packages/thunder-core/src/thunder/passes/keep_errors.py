"""Errors of operators whose results nobody reads."""

from __future__ import annotations

import time

from thunder.ir.effects import has_effect
from thunder.ir.symbol import BoundSymbol
from thunder.ir.trace import TraceCtx, with_bound_symbols
from thunder.ops import prims
from thunder.ops.data_errors import may_raise_on_data


def keep_errors(trace: TraceCtx) -> TraceCtx:
    """Has the results of calls that may raise on data read, where nobody reads them; eager raises there too.

        l = cholesky(x); return y   →   l = cholesky(x); sink(l); return y

    Of a chain of such calls the last is read. Returns the trace itself where it changes nothing.
    """
    start = time.perf_counter_ns()
    needed: set[str] = set()
    kept: list[BoundSymbol] = []
    for bsym in reversed(trace.bound_symbols):
        outputs = bsym.flat_proxy_outs
        alive = has_effect(bsym) or any(p.name in needed for p in outputs)
        if not alive and outputs and may_raise_on_data(bsym):
            kept.append(prims.sink.bind(*outputs, output=None))
            alive = True
        if alive:
            needed.update([p.name for p in bsym.flat_proxy_args])
        kept.append(bsym)
    if len(kept) == len(trace.bound_symbols):
        return trace
    kept.reverse()
    return with_bound_symbols(trace, kept, "Keeping errors", time.perf_counter_ns() - start)
