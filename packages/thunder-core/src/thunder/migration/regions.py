"""Regions of a trace: lists of calls with their inputs and outputs, and the grouping of calls into them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, MutableSet, Sequence
from graphlib import TopologicalSorter
from typing import Any, Generic, TypeVar

from thunder.base.structural_ids import COMMENT, RETURN
from thunder.ir.dataflow import ProxyDict, bsym_list_to_dag
from thunder.ir.proxies import Variable
from thunder.ir.symbol import BoundSymbol
from thunder.ir.trace import TraceCtx

__all__ = ["Group", "OrderedSet", "Region", "fuse_bound_symbols"]

T = TypeVar("T")


class OrderedSet(MutableSet[T], Generic[T]):
    """A set that iterates in the order of insertion."""

    def __init__(self, elements: Iterable[T] = ()) -> None:
        self._elements = dict.fromkeys(elements)

    def __contains__(self, element: object) -> bool:
        return element in self._elements

    def __iter__(self) -> Iterator[T]:
        return iter(self._elements)

    def __len__(self) -> int:
        return len(self._elements)

    def add(self, element: T) -> None:
        """Add an element at the end, unless it is there."""
        self._elements.setdefault(element)

    def discard(self, element: T) -> None:
        """Remove an element if it is there."""
        self._elements.pop(element, None)

    def __repr__(self) -> str:
        return f"OrderedSet({list(self._elements)!r})"


class Region:
    """Calls of a trace, the variables that they read from outside, and those that others read.

    Args:
        producers: proxy → the call that computes it, of the whole trace (`thunder.core.utils.producers`).
        consumers: proxy → the calls that read it (`thunder.core.utils.consumers`).
        bound_symbols: the calls, in the order of the trace.
    """

    def __init__(
        self,
        producers: ProxyDict[BoundSymbol],
        consumers: ProxyDict[list[BoundSymbol]],
        bound_symbols: Sequence[BoundSymbol],
    ) -> None:
        self.bound_symbols = list(bound_symbols)
        members = set(self.bound_symbols)
        calls = [bsym for bsym in self.bound_symbols if bsym.sym.id != COMMENT]
        #: variables that the calls read and do not compute, in the order of their first use
        self.inputs: OrderedSet[Variable] = OrderedSet(
            Variable(p) for bsym in calls for p in bsym.flat_proxy_args if producers.get(p) not in members
        )
        #: variables that the calls compute and others read, in the order in which they are computed
        self.outputs: OrderedSet[Variable] = OrderedSet(
            Variable(p)
            for bsym in calls
            for p in bsym.flat_proxy_outs
            if producers.get(p) is bsym and any(c not in members for c in consumers.get(p, ()))
        )

    def __repr__(self) -> str:
        lines = "\n".join(str(bsym) for bsym in self.bound_symbols)
        return f"[Region:\n{lines}]"


class Group:
    """Calls that have been merged, `group_bsyms`, as `fuse_bound_symbols` shows them to its predicate."""

    def __init__(self, bsym: BoundSymbol) -> None:
        self.group_bsyms = [bsym]
        #: the groups that have to run before this one, directly or not
        self.before: set[Group] = set()


def fuse_bound_symbols(
    trace: TraceCtx, merge_function: Callable[[Group, Group], Any]
) -> list[list[BoundSymbol]]:
    """Return the calls of a trace in groups, in an order in which the groups can run.

    Calls are visited in the order of the trace. A call joins the latest group for which
    `merge_function(group, Group(call))` is true, unless a third group would have to run between the two.
    The order of calls follows from their values and effects; the return is last.
    """
    parents = _parents(trace.bound_symbols)
    group_of: dict[BoundSymbol, Group] = {}
    groups: list[Group] = []
    for bsym in trace.bound_symbols:
        single = Group(bsym)
        needed = {group_of[parent] for parent in parents[bsym]}
        group = next((g for g in reversed(groups) if _fits(g, needed) and merge_function(g, single)), None)
        if group is None:
            group = single
            groups.append(group)
        else:
            group.group_bsyms.append(bsym)
        group_of[bsym] = group
        _run_before(needed - {group}, group, groups)
    order = TopologicalSorter({group: sorted(group.before, key=groups.index) for group in groups})
    return [group.group_bsyms for group in order.static_order()]


def _fits(group: Group, needed: set[Group]) -> bool:
    """Return whether a call that needs some groups may join one: none of the others needs that one."""
    return not any(group in other.before for other in needed if other is not group)


def _run_before(needed: set[Group], group: Group, groups: list[Group]) -> None:
    """Enter that a group, and all that need it, need further groups."""
    added = needed.union(*(other.before for other in needed))
    for other in groups:
        if other is group or group in other.before:
            other.before |= added


def _parents(bsyms: Sequence[BoundSymbol]) -> dict[BoundSymbol, list[BoundSymbol]]:
    """Return the calls that have to run before each call, by its values and effects."""
    nodes, pending = {}, bsym_list_to_dag(bsyms)[0]
    while pending:
        node = pending.pop()
        if node.bsym not in nodes:
            nodes[node.bsym] = node
            pending += node.children
    return {
        bsym: [node.bsym for node in nodes[bsym].parents]
        if bsym.sym.id != RETURN
        else [other for other in bsyms if other is not bsym]
        for bsym in bsyms
    }
