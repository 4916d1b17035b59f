"""Functions of Python in C on objects whose comparisons are Python: what these read is a fact."""

from __future__ import annotations

import bisect
import collections
import dataclasses
import functools
import heapq
import itertools
import operator
import re
from typing import Any

import pytest
import torch

import thunder


class Settings:
    scale = 1.0


SETTINGS = Settings()


class Near:
    """A number that equals those near to it, by the settings."""

    def __init__(self, number: float) -> None:
        self.number = number

    def __eq__(self, other: Any) -> bool:
        return isinstance(other, Near) and abs(self.number - other.number) <= SETTINGS.scale

    def __lt__(self, other: Any) -> bool:
        return (self.number * SETTINGS.scale) % 3 < (other.number * SETTINGS.scale) % 3

    def __hash__(self) -> int:
        return 1

    def __repr__(self) -> str:
        return f"Near({self.number})"


@dataclasses.dataclass(order=True)
class Task:
    priority: int
    value: torch.Tensor = dataclasses.field(compare=False)


def _near(*numbers: float) -> list[Near]:
    return [Near(number) for number in numbers]


def _numbers(items: Any) -> list[float]:
    return [item.number for item in items]


def _heap(x: Any) -> Any:
    heap = _near(4, 2, 9)
    heapq.heapify(heap)
    heapq.heappush(heap, Near(1))
    taken = [heapq.heappop(heap), heapq.heappushpop(heap, Near(7)), heapq.heapreplace(heap, Near(5)), *heap]
    return x * torch.tensor(_numbers(taken))


def _tasks(x: Any) -> Any:
    heap: list[Task] = []
    for priority, value in zip((3, 1, 2), x, strict=True):
        heapq.heappush(heap, Task(priority, value))
    return heapq.heappop(heap).value + 2 * heapq.heappop(heap).value


def _tensors(x: Any) -> Any:
    heap = [*x]
    heapq.heapify(heap)
    return heap[0] + heapq.nlargest(1, [*x])[0] * bisect.bisect([0.0, 1.5, 9.0], x.sum())


PROGRAMS = {
    "heap": _heap,
    "heap of tensors": _tensors,
    "tasks": _tasks,
    "n smallest": lambda x: x * _numbers(heapq.nsmallest(2, _near(4, 2, 9)))[1],
    "n largest": lambda x: x * heapq.nlargest(2, [4, 2, 9], key=Near)[1],
    "merge": lambda x: x * _numbers(heapq.merge(_near(1, 2), _near(2, 4)))[2],
    "bisect": lambda x: x * bisect.bisect_left(_near(1, 2, 4), Near(2)),
    "bisect by key": lambda x: x * bisect.bisect([1, 2, 4], Near(2), key=Near),
    "insort": lambda x: x * [items := _near(1, 4), bisect.insort(items, Near(2))][0][1].number,
    "groups": lambda x: x * len(list(itertools.groupby(_near(1, 2, 4)))),
    "groups by key": lambda x: x * len(list(itertools.groupby([1, 2, 4], key=Near))),
    "groups of tensors": lambda x: sum(sum(g) * k for k, g in itertools.groupby(x, key=lambda t: t.ndim + 2)),
    "reduce": lambda x: x * functools.reduce(min, _near(4, 2, 9)).number,
    "comparison as key": lambda x: (
        x * max(_near(4, 2, 9), key=functools.cmp_to_key(lambda a, b: (b < a) - 1)).number
    ),
    "count elements": lambda x: x * collections.Counter(_near(1, 2, 4))[Near(2)],
    "deque": lambda x: x * collections.deque(_near(1, 2, 4)).index(Near(3)),
    "deques": lambda x: x * (collections.deque(_near(1, 2)) < collections.deque(_near(2, 1))),
    "remove": lambda x: x * [items := collections.deque(_near(1, 2, 4)), items.remove(Near(3))][0][0].number,
    "values": lambda x: x * (Near(2.5) in {1: Near(1)}.values()),
    "iterator": lambda x: x * (Near(2.5) in iter(_near(1, 5))),
    "range": lambda x: x * (Near(2) in range(3)),
    "count of": lambda x: x * operator.countOf(_near(1, 2, 4), Near(2)),
}


def test_the_line_of_a_comparison_is_the_users():
    compiled = thunder.jit(_tensors)
    compiled(torch.tensor([3.0, 1.0, 0.5]))
    compared = [b for b in thunder.last_traces(compiled)[0].bound_symbols if b.sym.name == "lt"]
    assert compared
    assert {b.source.file for b in compared if b.source is not None} == {__file__}


@pytest.mark.parametrize("name", PROGRAMS)
def test_what_comparisons_read_is_a_fact(name: str, monkeypatch: pytest.MonkeyPatch):
    compiled = thunder.jit(PROGRAMS[name])
    for scale in (1.0, 0.5, 2.0):
        monkeypatch.setattr(SETTINGS, "scale", scale)
        for x in (torch.tensor([1.0, -2.0, 3.0]), torch.tensor([3.0, 1.0, 0.5]), torch.ones(5)):
            try:
                expected: Any = PROGRAMS[name](x)
            except (RuntimeError, ValueError) as error:
                with pytest.raises(type(error), match=re.escape(str(error))):
                    compiled(x)
            else:
                torch.testing.assert_close(compiled(x), expected, rtol=0, atol=0)
