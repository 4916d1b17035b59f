"""Dead code elimination."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

from thunder.base.structural_ids import RELEASES
from thunder.ir.effects import has_effect
from thunder.ir.symbol import BoundSymbol, proxies_in
from thunder.ir.trace import TraceCtx, with_bound_symbols


def dce(trace: TraceCtx, needed_proxies: Iterable[Any] | None = None) -> TraceCtx:
    """Drops calls whose outputs nobody reads and that have no effect.

        t0 = sin(x); t1 = cos(x); return t0   →   t0 = sin(x); return t0

    ``needed_proxies`` (proxies or variables) count as read. Liveness: backward scan over straight-line code
    (Aho et al., Compilers, 2nd ed., 9.2.5). Random operators stay: eager would have drawn their numbers.
    """
    start = time.perf_counter_ns()
    needed = {p.name for p in needed_proxies or ()}
    kept = []
    for bsym in reversed(trace.bound_symbols):
        if bsym.sym.id in RELEASES:
            kept.append(bsym)
        elif any(p.name in needed for p in bsym.flat_proxy_outs) or has_effect(bsym):
            kept.append(bsym)
            needed.update([p.name for p in bsym.flat_proxy_args])
    kept.reverse()
    kept = _without_idle_releases(trace, kept)
    return with_bound_symbols(trace, kept, "Dead Code Elimination", time.perf_counter_ns() - start)


def _without_idle_releases(trace: TraceCtx, bsyms: list[BoundSymbol]) -> list[BoundSymbol]:
    """Takes out of ``del`` and clear lines what is not computed any more."""
    if not any(b.sym.id in RELEASES for b in bsyms):
        return bsyms
    defined = {p.name for p in proxies_in(trace.args)}
    defined.update([p.name for b in bsyms for p in b.flat_proxy_outs])
    kept = []
    for bsym in bsyms:
        if bsym.sym.id in RELEASES:
            args = tuple(p for p in bsym.args if p.name in defined)
            if not args:
                continue
            bsym = bsym.from_bsym(args=args) if len(args) < len(bsym.args) else bsym
        kept.append(bsym)
    return kept
