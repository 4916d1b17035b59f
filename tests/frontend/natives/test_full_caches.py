"""Programs that ask a cache of ``functools.lru_cache`` for more entries than it holds, beside eager."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import thunder
from thunder.base.errors import UnsupportedProgram

#: a program, its cached function, and the arguments of its calls
World = tuple[Callable[..., Any], Any, list[Any]]

X = torch.arange(1.0, 3)
PROGRAMS: dict[str, Callable[[], World]] = {}


def world(make: Callable[[], World]) -> Callable[[], World]:
    PROGRAMS[make.__name__] = make
    return make


@world
def effects() -> World:
    runs: list[int] = []

    @functools.lru_cache(maxsize=2)
    def table(k: int) -> torch.Tensor:
        runs.append(k)
        return torch.full((2,), float(k * len(runs)))

    return lambda x: x * table(1) + table(2) * table(1) - table(3) + table(2), table, [X] * 4


@world
def numbers() -> World:
    runs: list[int] = []

    @functools.lru_cache(maxsize=1)
    def scale(k: int) -> int:
        runs.append(k)
        return k + len(runs)

    return lambda x: (x * scale(1) + scale(2), scale(1), scale(1)), scale, [X] * 4


@world
def random_tables() -> World:
    table = functools.lru_cache(maxsize=1)(lambda k: torch.rand(k))
    return lambda x: x + table(3).sum() + table(2) + torch.rand(2), table, [X] * 4


@world
def sizes_as_keys() -> World:
    @functools.lru_cache(maxsize=1)
    def table(k: int) -> torch.Tensor:
        return torch.arange(k)

    def program(x: torch.Tensor) -> torch.Tensor:
        return x + table(x.shape[0]) + table(x.shape[0] + 1)[1:]

    return program, table, [torch.ones(n) for n in (2, 3, 3, 4, 5, 2, 2)]


@world
def numbers_of_tensors_as_keys() -> World:
    scale = functools.lru_cache(maxsize=1)(lambda k: k * 1.5)
    return lambda x: x * scale(int(x.sum().item())) + scale(7), scale, [X, X * 2, X, X * 3]


@world
def gradients() -> World:
    weight = torch.ones(2, requires_grad=True)
    scaled = functools.lru_cache(maxsize=1)(lambda k: weight * k)

    def program(x: torch.Tensor) -> Any:
        return x * scaled(2) * scaled(3), weight

    return program, scaled, [X.clone().requires_grad_() for _ in range(3)]


@world
def a_method() -> World:
    class Model(nn.Module):
        factor = 3

        @functools.lru_cache(maxsize=1)  # noqa: B019
        def table(self, k: int) -> tuple[torch.Tensor, int]:
            return torch.full((2,), float(k * self.factor)), k

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * self.table(1)[0] + self.table(2)[0] * self.table(2)[1]

    return Model(), Model.table, [X] * 3


@world
def identity() -> World:
    table = functools.lru_cache(maxsize=2)(lambda k: torch.full((2,), float(k)))

    def program(x: torch.Tensor) -> Any:
        first, second, third = table(1), table(2), table(3)
        return x, table(3) is third, table(2) is second, table(1) is first, first

    return program, table, [X] * 3


@pytest.mark.parametrize("name", PROGRAMS)
def test_entries_are_those_that_eager_finds(name: str) -> None:
    (program, cached, calls), (own, own_cached, own_calls) = PROGRAMS[name](), PROGRAMS[name]()
    compiled, hits = thunder.jit(own), None
    for x, y in zip(calls, own_calls, strict=True):
        found = []
        for fn, argument in ((program, x), (compiled, y)):
            torch.manual_seed(0)
            result, *rest = _parts(fn(argument))
            if result.requires_grad:
                result.sum().backward()
                rest += [argument.grad, rest.pop().grad]
            found.append([result, *rest])
        torch.testing.assert_close(found[1], found[0], rtol=0, atol=0)
        expected, actual = cached.cache_info(), own_cached.cache_info()
        assert (actual.misses, actual.currsize) == (expected.misses, expected.currsize)
        hits = actual.hits - expected.hits if hits is None else hits
        assert actual.hits - expected.hits == hits  # those of the first call, which began twice


def _parts(result: Any) -> tuple[Any, ...]:
    return result if isinstance(result, tuple) else (result,)


def test_a_program_is_compiled_once_in_its_second_call() -> None:
    program, _, calls = PROGRAMS["effects"]()
    compiled = thunder.jit(program)
    for x in calls:
        compiled(x)
    assert thunder.cache_misses(compiled) == 2


def test_entries_that_could_be_written_and_errors_are_refused() -> None:
    def raising(k: int) -> int:
        if k == 2:
            raise ValueError(k)
        return k

    for entry, text in ((lambda k: [k], "one is an object of type list"), (raising, "raises in a program")):
        cached = functools.lru_cache(maxsize=1)(entry)

        def program(x: torch.Tensor) -> Any:
            try:
                return x, cached(1), cached(3), cached(2)  # noqa: B023
            except ValueError:
                return x

        compiled = thunder.jit(program)
        compiled(X)
        with pytest.raises(UnsupportedProgram, match=text):
            compiled(X)


def test_a_function_that_may_read_what_the_program_has_written_is_refused() -> None:
    class Counter:
        calls = 0

    counter = Counter()
    cached = functools.lru_cache(maxsize=1)(lambda k: k * counter.calls)

    def program(x: torch.Tensor, counts: bool) -> torch.Tensor:
        if counts:
            counter.calls += 1
        return x * cached(1) + cached(2)

    compiled = thunder.jit(program)
    for counts in (False, False, True):  # Python runs the third call
        compiled(X, counts)
    assert counter.calls == 1
    with pytest.raises(UnsupportedProgram, match=r"may read counter\.calls"):
        compiled(X, True)


def test_a_full_cache_whose_entries_another_cached_function_has_evicted_is_refused() -> None:
    inner = functools.lru_cache(maxsize=1)(lambda k: k * 2.0)
    outer = functools.lru_cache(maxsize=8)(lambda k: inner(k) + inner(k + 1))
    with pytest.raises(UnsupportedProgram, match="is full with 1 entries"):
        thunder.jit(lambda x: x * inner(1) + outer(2) * inner(3))(X)
