"""Collectives that run while the program computes: issued early, waited for late.

    g0 = reduce_scatter(d0, '0')         f0 = reduce_scatter(d0, '0', 'sum', 0, True)
    d1 = matmul(x, e)               →    d1 = matmul(x, e)
                                         g0 = wait(f0)

Gathers are issued ahead of their readers (`prefetching`), a reduction when its operand is computed. It is
waited for when its result is read, and at the latest when the `depth`-th reduction after it is issued: until
then its operand is in memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from thunder.core.symbol import BoundSymbol
from thunder.core.trace import TraceCtx, TraceProvenance, from_trace, tracectx

from .collectives import all_reduce, reduce_scatter, unpack, wait
from .exchanges import rotate
from .machines import machine_named
from .prefetching import PrefetchLimits, can_overlap, issued_and_waited, with_early_gathers

__all__ = ["overlapped"]

#: collectives that are issued where their operand is computed
_EARLY = frozenset({all_reduce.id, reduce_scatter.id, rotate.id})
#: statements that wait until their results are read
_LATE = frozenset({wait.id, unpack.id})


def overlapped(trace: TraceCtx, context: Any) -> TraceCtx:
    """Return the trace with asynchronous collectives; the trace itself if the option allows none."""
    options = context.options
    depth = options.get("overlap_collectives", 1)
    if not depth or not any(can_overlap(bsym) for bsym in trace.bound_symbols):
        return trace
    machine = options.get("overlap_machine")
    limits = PrefetchLimits(
        depth=depth,
        nbytes=options.get("overlap_bytes"),
        machine=machine_named(machine) if isinstance(machine, str) else machine,
    )
    new = from_trace(trace)
    with tracectx(new):
        statements = with_early_gathers(trace, limits)
        new.bound_symbols = _with_late_waits(statements, depth)
    new.set_provenance(TraceProvenance("Overlap of communication"))
    return new


def _with_late_waits(bsyms: Sequence[BoundSymbol], depth: int) -> list[BoundSymbol]:
    """Return the statements with reductions that are waited for when their results are read."""
    statements: list[BoundSymbol] = []
    deferred: dict[str, BoundSymbol] = {}  # by the name of each result
    in_flight: list[BoundSymbol] = []

    def emit(bsym: BoundSymbol) -> None:
        """Emit a deferred statement after those that it reads."""
        for p in bsym.flat_proxy_outs:
            deferred.pop(p.name, None)
        for p in bsym.flat_proxy_args:
            if p.name in deferred:
                emit(deferred[p.name])
        statements.append(bsym)

    def arrive(count: int) -> None:
        """Wait for reductions until at most `count` are in flight."""
        while len(in_flight) > count:
            waiting = in_flight.pop(0)
            if deferred.get(waiting.output.name) is waiting:
                readers = [b for b in deferred.values() if b.has_input([waiting.output])]
                for bsym in dict.fromkeys(readers) or [waiting]:
                    emit(bsym)

    for bsym in bsyms:
        if bsym is bsyms[-1]:
            arrive(0)  # also for what this process does not read
        if bsym.sym.id in _EARLY and can_overlap(bsym):
            issued, waiting = issued_and_waited(bsym)
            for p in bsym.flat_proxy_args:
                if p.name in deferred:
                    emit(deferred[p.name])
            statements.append(issued)
            deferred[bsym.output.name] = waiting
            in_flight.append(waiting)
            arrive(depth)
        elif bsym.sym.id in _LATE and any(p.name in deferred for p in bsym.flat_proxy_args):
            deferred |= {p.name: bsym for p in bsym.flat_proxy_outs}
        else:
            emit(bsym)
    return statements
