"""Regions of a trace: lists of calls with their inputs and outputs, and the grouping of calls into them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, MutableSet, Sequence
from typing import Any, Generic, TypeVar

from thunder.core.prims import PrimIDs
from thunder.core.proxies import Variable
from thunder.core.symbol import BoundSymbol
from thunder.core.trace import TraceCtx
from thunder.core.utils import ProxyDict
from thunder.extend import RegionGraph

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
        calls = [bsym for bsym in self.bound_symbols if bsym.sym.id != PrimIDs.COMMENT]
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


def fuse_bound_symbols(
    trace: TraceCtx, merge_function: Callable[[Group, Group], Any]
) -> list[list[BoundSymbol]]:
    """Return the calls of a trace in groups, in an order in which the groups can run.

    Calls are visited in the order of the trace. A call joins the latest group for which
    `merge_function(group, Group(call))` is true, unless a third group would have to run between the two.
    The order of calls follows from their values and effects; the return is last.
    """
    graph = RegionGraph(trace.bound_symbols)
    groups: dict[int, Group] = {}  # by their first statements
    for bsym in trace.bound_symbols:
        index, single = graph.add(), Group(bsym)
        for first, group in reversed(groups.items()):
            if graph.can_merge(first, index) and merge_function(group, single):
                graph.merge(first, index)
                group.group_bsyms.append(bsym)
                break
        else:
            groups[index] = single
    return [groups[first].group_bsyms for first in graph.in_order()]
