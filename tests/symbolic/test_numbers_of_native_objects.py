"""Objects of C whose methods go by a number that they hold: with another number they do something else."""

from __future__ import annotations

import array
import collections
import datetime
import functools
import itertools
import operator
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

import thunder


def filled(x: torch.Tensor, d: collections.deque[int]) -> Any:
    d.append(7)
    return x * d[0], len(d)


def filled_and_asked(x: torch.Tensor, d: collections.deque[int]) -> Any:
    d.extend([7, 8])
    return x * sum(d), d.maxlen


def called(x: torch.Tensor, fn: Callable[..., Any]) -> Any:
    return fn(x)


def of_a_list(x: torch.Tensor, fn: Callable[..., Any]) -> Any:
    return x * fn([1, 2, 3, 4, 5])


def taken(x: torch.Tensor, steps: Iterator[float]) -> Any:
    return [x * k for k in itertools.islice(steps, 3)]


def indexed(x: torch.Tensor, s: slice) -> Any:
    return x[s], [1, 2, 3, 4, 5][s], s.stop


def counted(x: torch.Tensor, r: range) -> Any:
    return [x * k for k in r], len(r), r[-1]


def of_numbers(x: torch.Tensor, a: Any) -> Any:
    return x * a[0], len(a), list(bytes(a))


def of_a_date(x: torch.Tensor, d: datetime.date) -> Any:
    return x * d.day, d.month, d.weekday()


def shifted(x: torch.Tensor, by: int, times: int) -> Any:
    return x.roll(by), [by] * times


def advanced(it: Iterator[Any], n: int) -> Iterator[Any]:
    for _ in range(n):
        next(it)
    return it


CASES: dict[str, tuple[Callable[..., Any], Callable[[int], Any]]] = {
    "deque": (filled, lambda n: collections.deque([1, 2, 1], maxlen=n + 2)),
    "deque that is asked": (filled_and_asked, lambda n: collections.deque([1, 2, 1], maxlen=n + 2)),
    "itemgetter": (of_a_list, operator.itemgetter),
    "methodcaller": (called, lambda n: operator.methodcaller("roll", n)),
    "partial": (called, lambda n: functools.partial(shifted, by=n, times=n + 1)),
    "enumerate": (taken, lambda n: (k for k, _ in enumerate("abc", n))),
    "count": (taken, lambda n: itertools.count(n, n + 1)),
    "repeat": (taken, lambda n: itertools.repeat(2.0, n)),
    "islice": (taken, lambda n: itertools.islice([1, 2, 3, 4], n, None)),
    "cycle": (taken, lambda n: itertools.cycle([1, n])),
    "iterator of a list": (taken, lambda n: advanced(iter([1, 2, 3, 4]), n)),
    "iterator of a range": (taken, lambda n: advanced(iter(range(6)), n)),
    "chain": (taken, lambda n: advanced(itertools.chain([1, 2], [3, 4]), n)),
    "reversed": (taken, lambda n: advanced(reversed([1, 2, 3, 4]), n)),
    "slice": (indexed, lambda n: slice(n, n + 2)),
    "range": (counted, lambda n: range(n, 2 * n + 1)),
    "array": (of_numbers, lambda n: array.array("i", [n, 2])),
    "bytearray": (of_numbers, lambda n: bytearray([n, 2])),
    "date": (of_a_date, lambda n: datetime.date(2020, 1, n)),
}


@pytest.mark.parametrize("name", CASES)
def test_each_number_has_its_own_result(name: str) -> None:
    program, make = CASES[name]
    compiled, x = thunder.jit(program, executors=["torch"]), torch.arange(5.0)
    for n in (1, 2, 3, 1, 2):
        given, expected = make(n), make(n)
        torch.testing.assert_close(compiled(x, given), program(x, expected), rtol=0, atol=0)
        if isinstance(given, collections.deque):
            assert given == expected
