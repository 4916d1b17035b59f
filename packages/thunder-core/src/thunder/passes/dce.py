"""Dead code elimination."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

from thunder.base.structural_ids import RELEASES
from thunder.ir.proxy_leaves import proxies_in
from thunder.ir.symbol import BoundSymbol
from thunder.ir.trace import TraceCtx, with_bound_symbols
from thunder.passes.liveness import Liveness, liveness_of


def dce(trace: TraceCtx, needed_proxies: Iterable[Any] | None = None) -> TraceCtx:
    """Drop calls that have no effect and whose outputs are not read.

        t0 = sin(x); t1 = cos(x); return t0   →   t0 = sin(x); return t0

    ``needed_proxies`` (proxies or variables) count as read. Random operators stay: eager would have drawn
    their numbers.
    """
    start = time.perf_counter_ns()
    bsyms = trace.bound_symbols
    liveness = liveness_of(bsyms, [p.name for p in needed_proxies or ()])
    live = [b for b, state in zip(bsyms, liveness, strict=True) if state is not Liveness.DEAD]
    live = _without_dead_releases(trace, live)
    return with_bound_symbols(trace, live, "Dead Code Elimination", time.perf_counter_ns() - start)


def _without_dead_releases(trace: TraceCtx, bsyms: list[BoundSymbol]) -> list[BoundSymbol]:
    """Remove values that are no longer computed from ``del`` and clear statements."""
    if not any(b.sym.id in RELEASES for b in bsyms):
        return bsyms
    defined = {p.name for p in proxies_in(trace.args)}
    defined.update([p.name for b in bsyms for p in b.flat_proxy_outs])
    statements = []
    for bsym in bsyms:
        if bsym.sym.id in RELEASES:
            args = tuple(p for p in bsym.args if p.name in defined)
            if not args:
                continue
            bsym = bsym.from_bsym(args=args) if len(args) < len(bsym.args) else bsym
        statements.append(bsym)
    return statements
