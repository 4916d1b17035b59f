"""The order in which what may raise, or leave the program for another one, comes as soon as it can.

Note [What may raise comes first]
The step of an optimizer asks for a number of each parameter, such as the sign of a bias correction, and the
program is left for another one where an answer is not the expected one. Until then nothing may be written
that cannot be put back (Note [Writes in place]):

    t0 = mul(p, 0.9); f = item(s); check(f)        f = item(s); g = item(r); check(f); check(g)
    t1 = mul(q, 0.9); g = item(r); check(g)    →   t0 = mul(p, 0.9); t1 = mul(q, 0.9)
    copy_(t0, p); copy_(t1, q)                     copy_(t0, p); copy_(t1, q)

Only calls with small results move, so that no memory is held for longer. Which of two errors comes first does
not matter: Python runs a call again that was to write and raised (``compiler/failed_calls``).
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from thunder.base.structural_ids import RELEASES
from thunder.base.tags import OpTags
from thunder.ir.effects import COPY, has_effect
from thunder.ir.proxies import TensorProxy
from thunder.ir.region_graph import RegionGraph
from thunder.ir.symbol import BoundSymbol, has_tags
from thunder.ir.trace import TraceCtx, with_bound_symbols
from thunder.passes.placed_writes.own_memory import is_large
from thunder.passes.placed_writes.program_facts import in_place_form
from thunder.passes.placed_writes.raising_calls import Raises, raises

__all__ = ["raising_first"]

_CHECKS = frozenset({OpTags.CHECKS_DECISION})


def raising_first(trace: TraceCtx) -> TraceCtx:
    """Move calls forward that may raise, in a program that writes to inputs: trace → trace.

    See Note [What may raise comes first]. The calls are claimed. Returns ``trace`` itself if nothing moves.
    """
    start = time.perf_counter_ns()
    statements = trace.bound_symbols
    kinds = {b.sym.id for b in statements}
    if COPY not in kinds or not kinds.isdisjoint(RELEASES):
        return trace
    first = _first(statements)
    if not first:
        return trace
    graph = RegionGraph(statements)
    for _ in statements:
        graph.add()
    everything = range(len(statements))
    order = graph.in_order(late={*everything} - first)
    if order == [*everything]:
        return trace
    moved = [statements[i] for i in order]
    return with_bound_symbols(trace, moved, "What may raise first", time.perf_counter_ns() - start)


def _first(statements: Sequence[BoundSymbol]) -> set[int]:
    """Return the positions of the calls that may raise and move, and of those that they depend on."""
    producer = {p.name: i for i, b in enumerate(statements) for p in b.flat_proxy_outs}
    waiting = [i for i, b in enumerate(statements) if raises(b) > Raises.MEMORY and _may_move(b)]
    found = set[int]()
    while waiting:
        i = waiting.pop()
        if i not in found and _may_move(statements[i]):
            found.add(i)
            waiting += [producer[p.name] for p in statements[i].flat_proxy_args if p.name in producer]
    return found


def _may_move(bsym: BoundSymbol) -> bool:
    """Return whether a call may come earlier: its results are small, and it becomes no write to an input.

    A write comes after all that reads the old elements; of one element it may as well be a copy.
    """
    tensors = [p for p in bsym.flat_proxy_outs if isinstance(p, TensorProxy)]
    if any(map(is_large, tensors)) or (has_effect(bsym) and not has_tags(bsym, _CHECKS)):
        return False
    return in_place_form(bsym) is None or not any(p.ndim for p in tensors)
