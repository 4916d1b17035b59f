"""Programs that ask for the size of a cache of ``functools.lru_cache``, or clear it."""

from __future__ import annotations

import collections
import functools
from typing import Any

import pytest
import torch

import thunder
from thunder import UnsupportedProgram

X = torch.ones(1)


@functools.lru_cache(maxsize=8)
def successor(n: int) -> int:
    return n + 1


@pytest.fixture(autouse=True)
def _cleared() -> None:
    successor.cache_clear()
    successor(1)


def outcome(fn: Any) -> tuple[Any, int]:
    return fn(X), successor.cache_info().currsize


def test_the_size_and_the_parameters_are_facts() -> None:
    def fn(x: torch.Tensor) -> Any:
        y = x * successor(3)
        info = successor.cache_info()
        return y, info.currsize, info.maxsize, successor.cache_parameters()

    compiled = thunder.jit(fn)
    assert outcome(compiled) == (fn(X), 2)
    assert outcome(compiled) == (fn(X), 2)
    successor(5)
    assert outcome(compiled) == (fn(X), 3)
    assert thunder.cache_misses(compiled) == 2


def test_a_cache_that_the_program_clears_is_cleared_in_each_call() -> None:
    def fn(x: torch.Tensor) -> Any:
        successor.cache_clear()
        return x * 2

    compiled = thunder.jit(fn)
    for _ in range(2):
        successor(7)
        assert outcome(compiled) == (X * 2, 0)
    assert thunder.cache_misses(compiled) == 1


def test_an_entry_that_is_read_before_the_cache_is_cleared() -> None:
    calls: list[int] = []

    @functools.cache
    def square(n: int) -> int:
        calls.append(n)
        return n * n

    def fn(x: torch.Tensor) -> Any:
        y = x * square(3)
        square.cache_clear()
        return y

    compiled = thunder.jit(fn)
    for count in (1, 2):
        assert compiled(X) == X * 9
        assert calls == [3] * count
        assert square.cache_info().currsize == 0


def test_a_cache_of_the_program_is_cleared_at_once() -> None:
    def fn(x: torch.Tensor) -> Any:
        made: list[int] = []

        @functools.cache
        def item(n: int) -> int:
            made.append(n)
            return n

        item(1), item(1)
        item.cache_clear()
        return x * item(1), made

    assert thunder.jit(fn)(X) == fn(X)


def after_clearing(x: torch.Tensor) -> Any:
    successor.cache_clear()
    return x * successor(3)


@pytest.mark.parametrize(
    ("fn", "match"),
    [
        (lambda x: x * successor.cache_info().hits, "reads successor.cache_info.*hits"),
        (lambda x: x if successor.cache_info().misses > 1 else -x, "reads successor.cache_info.*misses"),
        (lambda x: successor.cache_info(), "returns or stores successor.cache_info.*hits"),
        (lambda x: str(successor.cache_info()), "reads successor.cache_info.*hits"),
        (after_clearing, "is called after the program has cleared its cache"),
    ],
)
def test_what_differs_in_each_call_is_refused(fn: Any, match: str) -> None:
    with pytest.raises(UnsupportedProgram, match=match) as error:
        thunder.jit(fn)(X)
    assert error.value.hint


def test_the_text_of_a_named_tuple_is_pythons() -> None:
    pair = collections.namedtuple("pair", "a b")

    def fn(x: torch.Tensor) -> Any:
        return f"{pair(1, [x.shape])}", repr(pair("a", "b")), x

    assert thunder.jit(fn)(X) == fn(X)
