"""Each polyfill does what the function in C does, with the same comparisons in the same order.

The elements write down how they are compared; some answers end in an error. CPython itself is the judge.
"""

from __future__ import annotations

import bisect
import collections
import functools
import heapq
import itertools
import operator
import random
from collections.abc import Callable
from typing import Any

import pytest

from sweeping import one_in
from thunder.interpreter import Machine

LOG: list[Any] = []


class Item:
    """A number whose comparisons are written down; that with 7 fails."""

    def __init__(self, number: int, serial: int = 0) -> None:
        self.number, self.serial = number, serial

    def _answer(self, name: str, other: Any, answer: Callable[[int, int], bool]) -> Any:
        LOG.append((name, repr(self), repr(other)))
        if not isinstance(other, Item):
            return NotImplemented
        if 7 in (self.number, other.number) and name == "<":
            raise ArithmeticError(f"{self!r} {name} {other!r}")
        return answer(self.number, other.number)

    def __lt__(self, other: Any) -> Any:
        return self._answer("<", other, operator.lt)

    def __eq__(self, other: Any) -> Any:
        return self._answer("==", other, operator.eq)

    def __hash__(self) -> int:
        return hash(self.number)

    def __index__(self) -> int:
        LOG.append(("index", repr(self)))
        return self.number

    def __repr__(self) -> str:
        return f"{self.number}.{self.serial}"


class Sequence:
    """A sequence in Python."""

    def __init__(self, items: list[Any]) -> None:
        self.items = items

    def __len__(self) -> int:
        LOG.append("len")
        return len(self.items)

    def __getitem__(self, index: Any) -> Any:
        LOG.append(("item", index))
        return self.items[index]

    def __repr__(self) -> str:
        return repr(self.items)

    def insert(self, index: int, item: Any) -> None:
        LOG.append(("insert", index))
        self.items.insert(index, item)


class Shrinking(Item):
    """An item whose comparison takes an element out of a list."""

    items: list[Any]

    def __lt__(self, other: Any) -> Any:
        self.items.pop()
        return self.number < other.number


def _number(item: Any) -> Any:
    LOG.append(("key", repr(item)))
    return item.number % 3


def _raising(item: Any) -> Any:
    if item.number == 2:
        raise KeyError(item.number)
    return item


def _ending(item: Any) -> Any:
    if item.number == 2:
        raise StopIteration
    return item


def _items(rng: random.Random, length: int, most: int = 6) -> list[Any]:
    return [Item(rng.randint(0, most), serial) for serial in range(length)]


def _heaps(rng: random.Random) -> Any:
    items = _items(rng, rng.randint(0, 9), rng.choice((5, 7)))
    heapq.heapify(plain := [item.number for item in items])

    def run() -> Any:
        heap: list[Any] = []
        for item in items:
            heapq.heappush(heap, item)
        taken = [heapq.heappop(heap) for _ in range(len(heap) // 2)]
        heapq.heapify(heap)
        taken += [heapq.heappushpop(heap, Item(3, 90)), heapq.heapreplace(heap, Item(1, 91)), heap]
        taken += [heapq.nsmallest(2, items), heapq.nlargest(3, items, key=_number), plain]
        return taken + list(heapq.merge(items[:3], items[3:], reverse=True)) + [heapq.heappop([])]

    return run


def _changed_heap(rng: random.Random) -> Any:
    operation = rng.choice(
        [
            heapq.heapify,
            heapq.heappop,
            lambda h: heapq.heappush(h, h[0]),
            lambda h: heapq.heappushpop(h, h[1]),
        ]
    )

    def run() -> Any:
        heap: list[Any] = [Shrinking(rng.randint(0, 5)) for _ in range(6)]
        Shrinking.items = heap
        return operation(heap), len(heap)

    return run


def _sorted(rng: random.Random) -> Any:
    kind = rng.choice((list, tuple, Sequence))
    find = rng.choice((bisect.bisect_left, bisect.bisect_right, bisect.insort_left, bisect.insort_right))
    bounds = rng.choice(((), (1,), (0, 3), (Item(1), Item(2)), (-1,), (0, None), (0, -1), ("a",)))
    key = rng.choice((None, None, _number, _raising))
    numbers = sorted(rng.randint(0, 5) for _ in range(6))
    sought = rng.choice((Item(rng.randint(0, 7), 99), rng.randint(0, 5)))

    def run() -> Any:
        sequence = kind([Item(number, i) for i, number in enumerate(numbers)])
        return find(sequence, sought, *bounds, key=key), sequence

    return run


def _groups(rng: random.Random) -> Any:
    items, key = _items(rng, rng.randint(0, 8), 3), rng.choice((None, _number, _raising, _ending))
    steps = [rng.randint(0, 3) for _ in range(8)]
    late = rng.random() < 0.5

    def run() -> Any:
        def source() -> Any:
            for item in items:
                LOG.append(("yields", repr(item)))
                yield item

        groups, seen, taken = itertools.groupby(source(), key), [], []
        for step in steps:
            found = next(groups, None)
            if found is None:
                break
            seen.append(found[1])
            taken.append((found[0], list(itertools.islice(found[1], step))))
            if late:
                taken.append(list(itertools.islice(seen[0], 1)))
        return taken, [list(group) for group in seen], [(key, list(group)) for key, group in groups]

    return run


def _folds(rng: random.Random) -> Any:
    items = _items(rng, rng.randint(0, 6), 7)

    def smaller(a: Any, b: Any) -> Any:
        return a if a < b else b

    class Counts(collections.Counter[Any]):
        def __setitem__(self, item: Any, number: int) -> None:
            LOG.append(("set", repr(item)))
            super().__setitem__(item, number)

    def run() -> Any:
        initial = rng.choice(((), (Item(5, 50),), (1, 2)))
        counts = [collections.Counter(items), Counts(items), collections.Counter(i.number for i in items)]
        return functools.reduce(smaller, iter(items), *initial), counts

    return run


def _keys(rng: random.Random) -> Any:
    items = _items(rng, 5, 6)

    def order(a: Any, b: Any) -> Any:
        LOG.append(("compares", repr(a), repr(b)))
        return b.number - a.number

    def run() -> Any:
        key = functools.cmp_to_key(order)
        a, b = map(key, items[:2])
        answers = [a < b, a <= b, a > b, a >= b, a == b, a.obj]
        return sorted(items, key=key), max(items, key=key), answers, rng.choice((hash, len, a.__lt__))(b)

    return run


def _searches(rng: random.Random) -> Any:
    items = _items(rng, 6, 3)
    kind, sought = rng.choice((list, tuple, collections.deque)), rng.choice((Item(2, 70), items[3], 5))
    bounds = rng.choice(((), (), (2,), (-3, 5), (1, 100)))

    def run() -> Any:
        sequence = kind(items)
        found: list[Any] = [sequence.count(sought), operator.countOf(sequence, sought), sought in sequence]
        if kind is not tuple and rng.random() < 0.5:
            sequence.remove(sought)
        if rng.random() < 0.3:
            found.append(operator.indexOf(sequence, sought))
        return found, sequence, sequence.index(sought, *bounds)

    return run


def _containing(rng: random.Random) -> Any:
    items, sought = _items(rng, 4, 3), rng.choice((Item(2, 70), 2, True))
    make = rng.choice(
        (iter, reversed, lambda i: dict(enumerate(i)).values(), lambda i: (x for x in i), range)
    )

    def run() -> Any:
        return sought in make(items if make is not range else 3)

    return run


MAKERS = (_heaps, _changed_heap, _sorted, _groups, _folds, _keys, _searches, _containing)


def _outcome(call: Callable[[], Any]) -> Any:
    LOG.clear()
    try:
        result: Any = repr(call())
    except Exception as error:
        result = type(error), str(error).replace("'functools.KeyWrapper'", "'Key'")
    return result, [*LOG]


@pytest.mark.parametrize("block", one_in(50, range(50)))
@pytest.mark.parametrize("make", MAKERS, ids=lambda make: make.__name__.strip("_"))
def test_polyfill_does_what_the_function_in_c_does(make: Any, block: int):
    for seed in range(20 * block, 20 * block + 20):
        expected = _outcome(make(random.Random(seed)))
        run = make(random.Random(seed))
        assert _outcome(lambda run=run: Machine().call(run)) == expected, seed


def test_numbers_and_texts_are_left_to_c():
    def run() -> Any:
        heap = [3, 1, 2]
        heapq.heapify(heap)
        heapq.heappush(heap, 0)
        return heap, bisect.bisect([1, 2, 3], 2), [(1, "a")].index((1, "a")), ["a"].count("a")

    machine = Machine(record_history=True)
    assert machine.call(run) == run()
    assert {place.rpartition("/")[2].partition(":")[0] for _, place, _, _ in machine.history} == {
        "test_polyfills.py",
        "searches.py",
    }
