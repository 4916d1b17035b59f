"""Graphs of statements that are merged, beside a search of the merged graph for paths."""

from __future__ import annotations

import random

import pytest

from ir.building import building
from ir.example_symbols import take
from thunder.ir.region_graph import RegionGraph
from thunder.ir.symbol import BoundSymbolTag

BACKWARD, AGAIN = BoundSymbolTag.BACKWARD, BoundSymbolTag.COMPUTED_AGAIN


def random_program(r: random.Random):
    """Return statements of a random program, and for each those whose values it reads."""
    reads: list[set[int]] = []
    with building("x") as (trace, x):
        for index in range(r.randrange(2, 24)):
            reads.append({r.randrange(index) for _ in range(2)} if index else set())
            operands = [trace.bound_symbols[i].output for i in reads[-1]]
            take(*(operands or [x, x])[:2], *[x] * (len(operands) == 1))
    return trace.bound_symbols, reads


class Searched:
    """The judge: groups as sets of statements; what depends on what is searched for each time."""

    def __init__(self, reads) -> None:
        self.reads, self.groups = reads, {}

    def inputs_of(self, group):
        direct = set().union(*(self.reads[i] for i in self.groups[group]))
        return sorted(g for g, members in self.groups.items() if g != group and members & direct)

    def depends(self, group, other):
        seen, waiting = set(), [group]
        while waiting:
            for each in self.inputs_of(waiting.pop()):
                if each not in seen:
                    seen.add(each)
                    waiting.append(each)
        return other in seen

    def can_merge(self, a, b):
        if self.depends(a, b):
            a, b = b, a
        return not any(self.depends(third, a) for third in self.inputs_of(b) if third != a)

    def merge(self, a, b):
        self.groups[min(a, b)] |= self.groups.pop(max(a, b))


@pytest.mark.parametrize("seed", range(12))
def test_groups_depend_on_each_other_as_a_search_says(seed: int):
    r = random.Random(seed)
    bsyms, reads = random_program(r)
    graph, judge = RegionGraph(bsyms), Searched(reads)
    for index in range(len(bsyms)):
        assert graph.add() == index
        judge.groups[index] = {index}
        for _ in range(r.randrange(4)):
            groups = graph.groups()
            assert groups == sorted(judge.groups)
            a, b = r.choice(groups), r.choice(groups)
            if a != b:
                assert graph.can_merge(a, b) == judge.can_merge(a, b)
                if graph.can_merge(a, b):
                    assert graph.merge(a, b) == min(a, b)
                    judge.merge(a, b)
    groups = graph.groups()
    for group in groups:
        assert set(graph.members(group)) == judge.groups[group]
        assert graph.inputs_of(group) == judge.inputs_of(group)
        assert [graph.depends(group, other) for other in groups] == [
            judge.depends(group, other) for other in groups
        ]
    order = graph.in_order()
    assert sorted(order) == groups
    assert all(order.index(i) < order.index(group) for group in groups for i in graph.inputs_of(group))


@pytest.mark.parametrize("seed", range(6))
def test_what_is_computed_again_stays_apart_from_the_forward_before_it(seed: int):
    r = random.Random(seed)
    bsyms, _ = random_program(r)
    kinds = [r.choice(((), (BACKWARD,), (BACKWARD, AGAIN))) for _ in bsyms]
    graph = RegionGraph([b.from_bsym(tags=frozenset(tags)) for b, tags in zip(bsyms, kinds, strict=True)])
    for _ in bsyms:
        graph.add()
    for a in graph.groups():
        for b in graph.groups():
            if a != b and {a, b} <= {*graph.groups()} and graph.can_merge(a, b):
                graph.merge(a, b)
    for group in graph.groups():
        members = graph.members(group)
        for i in members:
            if AGAIN in kinds[i]:
                assert all(BACKWARD in kinds[j] for j in members if j < i)
