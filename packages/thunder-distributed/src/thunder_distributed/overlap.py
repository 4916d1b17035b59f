"""Collectives that run while the program computes: issued early, waited for late.

    w0 = all_gather(s0, '0')         f0 = all_gather(s0, '0', 0, True); w0 = wait(f0)
    y0 = linear(x, w0)               f1 = all_gather(s1, '0', 0, True)
    w1 = all_gather(s1, '0')    →    y0 = linear(x, w0)
    y1 = linear(y0, w1)              w1 = wait(f1)
                                     y1 = linear(y0, w1)

A gather is issued when the one before it, or the `depth`-th before it, has arrived; a reduction when its
operand is computed. It is waited for when its result is read, and at the latest when the `depth`-th reduction
after it is issued: until then its operand is in memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from thunder.core.proxies import FutureTensorProxy
from thunder.core.symbol import BoundSymbol
from thunder.core.trace import TraceCtx, TraceProvenance, from_trace, tracectx

from .collectives import COLLECTIVES, all_gather, all_reduce, pack, reduce_scatter, unpack, wait
from .exchanges import EXCHANGES, rotate

__all__ = ["overlapped"]

#: collectives that are issued where their operand is computed
_EARLY = frozenset({all_reduce.id, reduce_scatter.id, rotate.id})
#: statements that wait until their results are read
_LATE = frozenset({wait.id, unpack.id})


def overlapped(trace: TraceCtx, context: Any) -> TraceCtx:
    """Return the trace with asynchronous collectives; the trace itself if the option allows none."""
    depth = context.options.get("overlap_collectives", 1)
    if not depth or not any(_can_overlap(bsym) for bsym in trace.bound_symbols):
        return trace
    new = from_trace(trace)
    with tracectx(new):
        statements = _with_early_gathers(trace.bound_symbols, depth)
        new.bound_symbols = _with_late_waits(statements, depth)
    new.set_provenance(TraceProvenance("Overlap of communication"))
    return new


def _can_overlap(bsym: BoundSymbol) -> bool:
    """Return whether a statement is a collective that is waited for at once, along the first dimension."""
    if bsym.sym.id not in COLLECTIVES | EXCHANGES or bsym.args[-1] is not False:
        return False
    has_dim = bsym.sym.id in (all_gather.id, reduce_scatter.id)
    return not has_dim or bsym.args[-2] == 0


def _divided(bsym: BoundSymbol) -> tuple[BoundSymbol, BoundSymbol]:
    """Return the statements that issue a collective and wait for it."""
    future = FutureTensorProxy(like=bsym.output)
    issue = bsym.from_bsym(args=(*bsym.args[:-1], True), output=future)
    return issue, wait.bind(future, output=bsym.output).from_bsym(source=bsym.source)


def _with_early_gathers(bsyms: Sequence[BoundSymbol], depth: int) -> list[BoundSymbol]:
    """Return the statements with each gather issued when the `depth`-th before it has arrived."""
    producer = {p.name: i for i, bsym in enumerate(bsyms) for p in bsym.flat_proxy_outs}
    gathers = [i for i, bsym in enumerate(bsyms) if bsym.sym.id == all_gather.id and _can_overlap(bsym)]
    following = {index: gathers[n + 1 : n + 1 + depth] for n, index in enumerate(gathers)}
    waits: dict[int, BoundSymbol] = {}
    emitted: set[int] = set()
    statements: list[BoundSymbol] = []

    def is_ready(index: int) -> bool:
        """Return whether a gather can be issued here, perhaps after its operands are packed."""
        needed = [producer[p.name] for p in bsyms[index].flat_proxy_args if p.name in producer]
        return all(i in emitted or (bsyms[i].sym.id == pack.id and is_ready(i)) for i in needed)

    def issue(index: int) -> None:
        for p in bsyms[index].flat_proxy_args:
            operand = producer.get(p.name)
            if operand is not None and operand not in emitted:
                statements.append(bsyms[operand])
                emitted.add(operand)
        issued, waits[index] = _divided(bsyms[index])
        statements.append(issued)

    for index, bsym in enumerate(bsyms):
        if index in emitted:
            continue
        emitted.add(index)
        if index not in following:
            statements.append(bsym)
            continue
        if index not in waits:
            issue(index)
        statements.append(waits[index])
        for later in following[index]:
            if later not in waits and is_ready(later):
                issue(later)
    return statements


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
        if bsym.sym.id in _EARLY and _can_overlap(bsym):
            issued, waiting = _divided(bsym)
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
