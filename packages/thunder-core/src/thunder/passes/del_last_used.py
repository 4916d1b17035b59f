"""Deletion of each value after its last use."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from thunder.base.structural_ids import COMMENT, RELEASES, RETURN
from thunder.ir.proxies import CollectionProxy, Proxy, TensorProxy
from thunder.ir.symbol import BoundSymbol
from thunder.ir.trace import TraceCtx, with_bound_symbols
from thunder.ops.prims.utility import clear_mutable_collection, python_del


def del_last_used(trace: TraceCtx, *, clear_mutable_collections: bool = False) -> TraceCtx:
    """Delete each proxy after its last use, so that its memory can be reused.

        t1 = f(t0); t2 = g(t1); return t2   →   t1 = f(t0); del t0; t2 = g(t1); del t1; return t2

    Results are never deleted. Old ``del`` statements are dropped first, so the pass is idempotent. An output
    that is not read is bound to ``_``; if it is the last one of its statement it is deleted too, or ``_``
    would keep it alive. With ``clear_mutable_collections`` each collection is emptied before its ``del``:
    there may be other references to it. Liveness: backward scan over straight-line code (Aho et al.,
    Compilers, 2nd ed., 9.2.5).
    """
    start = time.perf_counter_ns()
    live: set[str] = set()
    lines: list[BoundSymbol] = []  # backwards
    for bsym in reversed(trace.bound_symbols):
        if bsym.sym.id in RELEASES:
            continue
        if bsym.sym.id == RETURN:
            live.update([p.name for p in bsym.flat_proxy_args])
        elif bsym.sym.id != COMMENT:
            dead = list(_dying(bsym, live))
            if dead:
                lines.append(python_del.bind(*dead, output=None))
            if clear_mutable_collections:
                collections = [p for p in dead if isinstance(p, CollectionProxy)]
                lines += [clear_mutable_collection.bind(p, output=None) for p in reversed(collections)]
        lines.append(bsym)
    lines.reverse()
    return with_bound_symbols(trace, lines, "Delete Last Used", time.perf_counter_ns() - start)


def _dying(bsym: BoundSymbol, live: set[str]) -> Iterator[Any]:
    """Yield the proxies that are not used after this statement.

    They are its outputs that are collections, its operands in order, then the one that ``_`` holds.
    """
    unread = [p for p in bsym.flat_proxy_outs if p.name not in live]
    yield from (p for p in unread if isinstance(p, CollectionProxy))
    live.update([p.name for p in bsym.flat_proxy_outs])
    for p in bsym.flat_proxy_args:
        if p.name not in live:
            live.add(p.name)
            yield p
    tensors = [p for p in unread if not isinstance(p, CollectionProxy)]
    if tensors and tensors[-1] is _last_unread_leaf(bsym, tensors):
        yield tensors[-1]


def _last_unread_leaf(bsym: BoundSymbol, unread: list[Any]) -> Any:
    """Return the output leaf of the last ``_``: an unread proxy, or a Python value."""
    names = {p.name for p in unread}
    for leaf in reversed(bsym.flat_outs):
        if not isinstance(leaf, (TensorProxy, Proxy)) or leaf.name in names:
            return leaf
    return None
