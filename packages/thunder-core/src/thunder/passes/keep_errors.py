"""Errors of operators whose results are not read."""

from __future__ import annotations

import time

from thunder.ir.symbol import BoundSymbol
from thunder.ir.trace import TraceCtx, with_bound_symbols
from thunder.ops import prims
from thunder.ops.data_errors import may_raise_on_data
from thunder.passes.liveness import Liveness, liveness_of


def keep_errors(trace: TraceCtx) -> TraceCtx:
    """Keep calls that may raise on data, as eager does, although their results are not read.

        l = cholesky(x); return y   →   l = cholesky(x); sink(l); return y

    Of a chain of such calls the last is kept. Returns the trace itself if nothing changes.
    """
    start = time.perf_counter_ns()
    liveness = liveness_of(trace.bound_symbols, is_root=_may_raise)
    if Liveness.ROOT not in liveness:
        return trace
    statements: list[BoundSymbol] = []
    for bsym, state in zip(trace.bound_symbols, liveness, strict=True):
        statements.append(bsym)
        if state is Liveness.ROOT:
            statements.append(prims.sink.bind(*bsym.flat_proxy_outs, output=None))
    return with_bound_symbols(trace, statements, "Keeping errors", time.perf_counter_ns() - start)


def _may_raise(bsym: BoundSymbol) -> bool:
    return bool(bsym.flat_proxy_outs) and may_raise_on_data(bsym)
