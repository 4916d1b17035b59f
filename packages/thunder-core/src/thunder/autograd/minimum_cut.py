"""Minimum cuts of directed graphs, and connected components, without a library that takes long to import."""

from __future__ import annotations

import math
from collections import defaultdict, deque
from collections.abc import Hashable, Iterable, Iterator
from typing import TypeVar

from thunder.base.errors import InternalError

__all__ = ["FlowGraph", "connected_components"]

_Node = TypeVar("_Node", bound=Hashable)


class FlowGraph:
    """A directed graph with capacities, of which :meth:`cut` finds a minimum cut (Dinic's algorithm).

    An edge and its reverse have neighbouring numbers. ``left`` is what can still flow along each.
    """

    def __init__(self) -> None:
        self.edges: defaultdict[Hashable, list[int]] = defaultdict(list)  # that begin at a node
        self.ends: list[Hashable] = []
        self.left: list[float] = []

    def add(self, start: Hashable, end: Hashable, capacity: float = math.inf) -> None:
        """Add an edge."""
        for begin, to, flow in ((start, end, capacity), (end, start, 0)):
            self.edges[begin].append(len(self.ends))
            self.ends.append(to)
            self.left.append(flow)

    def cut(self, source: Hashable, sink: Hashable) -> set[Hashable]:
        """Return the nodes on the side of the source, of the cut that is nearest to the sink.

        Raises InternalError if no cut is finite.
        """
        while (levels := self._levels(source, sink)) is not None:
            self._fill(source, sink, levels)
        before_sink, pending = {sink}, [sink]
        while pending:
            for edge in self.edges[pending.pop()]:
                if self.left[edge ^ 1] > 0 and self.ends[edge] not in before_sink:
                    before_sink.add(self.ends[edge])
                    pending.append(self.ends[edge])
        return self.edges.keys() - before_sink

    def _levels(self, source: Hashable, sink: Hashable) -> dict[Hashable, int] | None:
        """Return the distances of nodes from the source, or None if nothing more can flow to the sink."""
        levels, pending = {source: 0}, deque([source])
        while pending:
            node = pending.popleft()
            for edge in self.edges[node]:
                end = self.ends[edge]
                if self.left[edge] > 0 and end not in levels:
                    levels[end] = levels[node] + 1
                    pending.append(end)
        return levels if sink in levels else None

    def _fill(self, source: Hashable, sink: Hashable, levels: dict[Hashable, int]) -> None:
        """Let flow along shortest paths what can."""
        positions = dict.fromkeys(levels, 0)  # of the edges that are tried next
        path: list[int] = []
        node = source
        while True:
            if node == sink:
                self._send(path)
                full = next(i for i, edge in enumerate(path) if self.left[edge] <= 0)
                node = self.ends[path[full] ^ 1]
                del path[full:]
                continue
            edges, position = self.edges[node], positions[node]
            while position < len(edges) and not self._leads_on(edges[position], levels, levels[node] + 1):
                position += 1
            positions[node] = position
            if position < len(edges):
                path.append(edges[position])
                node = self.ends[path[-1]]
            elif path:
                node = self.ends[path.pop() ^ 1]
                positions[node] += 1
            else:
                return

    def _leads_on(self, edge: int, levels: dict[Hashable, int], level: int) -> bool:
        return self.left[edge] > 0 and levels.get(self.ends[edge]) == level

    def _send(self, path: list[int]) -> None:
        flow = min(self.left[edge] for edge in path)
        if flow == math.inf:
            raise InternalError("a graph has no finite cut")
        for edge in path:
            self.left[edge] -= flow
            self.left[edge ^ 1] += flow


def connected_components(
    nodes: Iterable[_Node], edges: Iterable[tuple[_Node, _Node]]
) -> Iterator[set[_Node]]:
    """Yield the connected components of an undirected graph, whose nodes include the ends of edges."""
    neighbours: dict[_Node, list[_Node]] = {node: [] for node in nodes}
    for a, b in edges:
        neighbours.setdefault(a, []).append(b)
        neighbours.setdefault(b, []).append(a)
    seen: set[_Node] = set()
    for first in neighbours:
        if first in seen:
            continue
        component, pending = {first}, [first]
        while pending:
            more = set(neighbours[pending.pop()]) - component
            component |= more
            pending += more
        seen |= component
        yield component
