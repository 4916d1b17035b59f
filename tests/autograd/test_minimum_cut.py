"""Minimum cuts and components of random graphs; networkx, which torch brings, is the judge."""

from __future__ import annotations

import math
import random
from typing import Any

import networkx
import pytest

from thunder.autograd.minimum_cut import FlowGraph, connected_components
from thunder.base.errors import InternalError


def edges_of(draw: random.Random) -> list[tuple[int, int, float]]:
    """Return edges between a few nodes, some without a limit; 0 is the source, 1 the sink."""
    nodes = draw.randint(3, 14)
    pairs = {(draw.randrange(nodes), draw.randrange(nodes)) for _ in range(draw.randint(2, 40))}
    return [(0, 2, 3), (2, 1, 5)] + [
        (a, b, draw.choice([0, 1, 2, 7, 10**9, math.inf]))
        for a, b in sorted(pairs)
        if a != b and (a, b) not in ((0, 2), (2, 1))
    ]


@pytest.mark.parametrize("seed", range(150))
def test_a_cut_is_that_of_networkx(seed: int) -> None:
    graph, judge = FlowGraph(), networkx.DiGraph()
    for a, b, capacity in edges_of(random.Random(seed)):
        graph.add(a, b, capacity)
        judge.add_edge(a, b, **({} if capacity == math.inf else {"capacity": capacity}))
    try:
        _, (expected, _) = networkx.minimum_cut(judge, 0, 1)
    except networkx.NetworkXUnbounded:
        with pytest.raises(InternalError, match="no finite cut"):
            graph.cut(0, 1)
    else:
        assert graph.cut(0, 1) == expected


def test_a_long_graph_is_cut_without_recursion() -> None:
    graph = FlowGraph()
    for i in range(20_000):
        graph.add(i, i + 1, 2 if i == 777 else 3)
    assert graph.cut(0, 20_000) == set(range(778))


@pytest.mark.parametrize("seed", range(20))
def test_components_are_those_of_networkx(seed: int) -> None:
    draw = random.Random(seed)
    nodes = list(range(12))
    edges = [(draw.choice(nodes), draw.choice(nodes)) for _ in range(draw.randint(0, 12))]
    judge: Any = networkx.Graph()
    judge.add_nodes_from(nodes)
    judge.add_edges_from(edges)
    expected = sorted(map(sorted, networkx.connected_components(judge)))
    assert sorted(map(sorted, connected_components(nodes, edges))) == expected
