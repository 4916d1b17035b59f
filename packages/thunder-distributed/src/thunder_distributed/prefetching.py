"""Gathers that are issued before the statements that read them, as far as limits allow.

    y0 = linear(x, w0)               f1 = all_gather(s1, '0', 0, True)
    w1 = all_gather(s1, '0')    →    y0 = linear(x, w0)
    y1 = linear(y0, w1)              w1 = wait(f1)
                                     y1 = linear(y0, w1)

Note [When a gather is issued]
When a gather has arrived, up to `depth` of those after it are issued. Their results take memory while nothing
reads them, so two things hold them back: a limit of bytes, and a machine. With the figures of a machine (the
roofline of plans) a gather is issued as late as it arrives in time. In an ideal program, in which no
statement waits, the last gather begins its own time before its reader does, and each other one early enough
to leave the network to the next. The network also has reductions in its queue, which are issued when their
operands are computed: a gather is issued earlier by the time of those that can be ahead of it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch.distributed as dist

from thunder.core.proxies import FutureTensorProxy, TensorProxy
from thunder.core.symbol import BoundSymbol
from thunder.core.trace import TraceCtx
from thunder.examine.memory_calculation import allocations_of

from .collectives import COLLECTIVES, all_gather, pack, reduce_scatter, wait
from .communication import collective_of
from .exchanges import EXCHANGES
from .machines import Machine
from .process_groups import group_named
from .roofline import collective_seconds, computes_memory, nbytes_of, statement_seconds

__all__ = ["PrefetchLimits", "can_overlap", "issued_and_waited", "synchronous", "with_early_gathers"]


@dataclass(frozen=True, kw_only=True)
class PrefetchLimits:
    """The limits within which parameters are gathered ahead.

    Attributes:
        depth: the most gathers that are issued before they are waited for.
        nbytes: the most bytes of their results; None for any. One that is larger is issued when it is needed.
        machine: whose figures say when a gather has to be issued; None for as early as possible.
    """

    depth: int
    nbytes: int | None = None
    machine: Machine | None = None


def can_overlap(bsym: BoundSymbol) -> bool:
    """Return whether a statement is a collective that is waited for at once, along the first dimension."""
    if bsym.sym.id not in COLLECTIVES | EXCHANGES or bsym.args[-1] is not False:
        return False
    has_dim = bsym.sym.id in (all_gather.id, reduce_scatter.id)
    return not has_dim or bsym.args[-2] == 0


def issued_and_waited(bsym: BoundSymbol) -> tuple[BoundSymbol, BoundSymbol]:
    """Return the statements that issue a collective and wait for it."""
    future = FutureTensorProxy(like=bsym.output)
    issue = bsym.from_bsym(args=(*bsym.args[:-1], True), output=future)
    return issue, wait.bind(future, output=bsym.output).from_bsym(source=bsym.source)


def synchronous(issue: BoundSymbol, result: Any = None) -> BoundSymbol:
    """Return the collective that `issue` begins, with a result in place of the future.

    None: a tensor of the name of the future.
    """
    future = issue.output
    if result is None:
        result = TensorProxy(
            future.name, shape=future.shape, device=future.device, dtype=future.dtype, requires_grad=False
        )
    parts = [
        synchronous(part, result) if isinstance(part.output, FutureTensorProxy) else part
        for part in issue.subsymbols
    ]
    return issue.from_bsym(args=(*issue.args[:-1], False), output=result, subsymbols=parts)


def with_early_gathers(trace: TraceCtx, limits: PrefetchLimits) -> list[BoundSymbol]:
    """Return the statements of a trace with gathers issued ahead (Note [When a gather is issued])."""
    bsyms = trace.bound_symbols
    producer = {p.name: i for i, bsym in enumerate(bsyms) for p in bsym.flat_proxy_outs}
    gathers = [i for i, bsym in enumerate(bsyms) if bsym.sym.id == all_gather.id and can_overlap(bsym)]
    due = _due(trace, gathers, limits)
    ahead: Sequence[int] = ()  # those that may be in flight here, in their order
    waits: dict[int, BoundSymbol] = {}  # of those that are issued
    emitted: set[int] = set()
    statements: list[BoundSymbol] = []

    def is_ready(index: int) -> bool:
        """Return whether a gather can be issued here, perhaps after its operands are packed."""
        needed = [producer[p.name] for p in bsyms[index].flat_proxy_args if p.name in producer]
        return all(i in emitted or (bsyms[i].sym.id == pack.id and is_ready(i)) for i in needed)

    def fits(index: int) -> bool:
        """Return whether the results of gathers in flight and of this one are within the limit."""
        in_flight = [bsyms[i].output for i in (*(i for i in ahead if i in waits), index)]
        return limits.nbytes is None or nbytes_of(in_flight) <= limits.nbytes

    def issue(index: int) -> None:
        for p in bsyms[index].flat_proxy_args:
            operand = producer.get(p.name)
            if operand is not None and operand not in emitted:
                statements.append(bsyms[operand])
                emitted.add(operand)
        issued, waits[index] = issued_and_waited(bsyms[index])
        statements.append(issued)

    for index, bsym in enumerate(bsyms):
        for later in [i for i in ahead if i not in waits]:
            if due[later] > index or not is_ready(later) or not fits(later):
                break  # all processes issue in one order, that of the readers
            issue(later)
        if index in emitted:
            continue
        emitted.add(index)
        if index not in due:
            statements.append(bsym)
            continue
        if index not in waits:
            issue(index)
        statements.append(waits[index])
        turn = gathers.index(index)
        ahead = gathers[turn + 1 : turn + 1 + limits.depth]
    return statements


def _due(trace: TraceCtx, gathers: Sequence[int], limits: PrefetchLimits) -> dict[int, int]:
    """Return before which statement each gather has to be issued, by index; 0 without a machine."""
    if limits.machine is None:
        return dict.fromkeys(gathers, 0)
    begins, communicates = _ideal_times(trace, limits.machine)
    others = [index for index in communicates if index not in gathers]
    due = {}
    latest = float("inf")
    for turn, index in reversed(list(enumerate(gathers))):
        earliest = gathers[max(0, turn - limits.depth)]
        queued = sum(communicates[i] for i in others if earliest < i < index)
        latest = min(begins[index], latest) - communicates[index]
        due[index] = max(0, bisect_right(begins, latest - queued) - 1)
    return due


def _ideal_times(trace: TraceCtx, machine: Machine) -> tuple[list[float], Mapping[int, float]]:
    """Return when each statement begins if none waits, and seconds of each collective by index."""
    storages = allocations_of(trace).storages
    begins, communicates = [], dict[int, float]()
    now = 0.0
    for index, bsym in enumerate(trace.bound_symbols):
        begins.append(now)
        if bsym.sym.id in COLLECTIVES | EXCHANGES:
            collective = collective_of(bsym, "")
            ranks = tuple(dist.get_process_group_ranks(group_named(collective.group)))
            communicates[index] = collective_seconds(collective, ranks, machine)
        else:
            now += statement_seconds(bsym, machine, computes_memory(bsym, storages))
    return begins, communicates
