"""Numbers that a program reads and writes become inputs, so that a counter costs no compile in each call."""

from __future__ import annotations

import collections
import copy
import math
import types
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.utils.checkpoint import checkpoint

import thunder

X = torch.ones(5)


def comparable(value: Any) -> Any:
    """Return a result or a state as text, with the types of numbers."""
    if isinstance(value, torch.Tensor):
        return value.tolist()
    if isinstance(value, tuple | list):
        return [comparable(v) for v in value]
    return type(value), repr(value)


def check(program: Any, start: Any, calls: int = 6, changes: Any = None, misses: int | None = None) -> None:
    """Compare a program on an object with eager; ``changes`` set its number ``n`` before a call."""
    compiled, ours, theirs = thunder.jit(program), copy.deepcopy(start), copy.deepcopy(start)
    for i in range(calls):
        if i in (changes or {}):
            ours.n = theirs.n = changes[i]
        assert comparable(compiled(X, ours)) == comparable(program(X, theirs))
        assert comparable(list(vars(ours).items())) == comparable(list(vars(theirs).items()))
    if misses is not None:
        assert thunder.cache_misses(compiled) == misses


def count(x: Any, o: Any) -> Any:
    o.n += 1
    return x


def scale(x: Any, o: Any) -> Any:
    o.n += 1
    return x * o.n, f"call {o.n}", -o.n * 2 // 3


def quotients(x: Any, o: Any) -> Any:
    o.n += 1
    try:
        return divmod(-7, o.n), divmod(o.n, 3), divmod(o.n / 2, -1.5), divmod(2.0, o.n)
    except ZeroDivisionError as error:
        return str(error)


def differentiate(x: Any, o: Any) -> Any:
    o.n += 1
    return torch.func.grad(lambda y: (y * y).sum() * o.n)(x)


def every_second(x: Any, o: Any) -> Any:
    o.n += 1
    return x * 2 if o.n % 2 == 0 else x


def average(x: Any, o: Any) -> Any:
    o.n = 0.9 * o.n + 0.1 * x.sum().item()
    return x


def tally(x: Any, o: Any) -> Any:
    o.counts["calls"] += 1
    o.settings["step"] = o.settings["step"] + 2
    o.positions[0] += 1
    return x + o.positions[0]


def schedule(x: Any, o: Any) -> Any:
    o.n += 1
    return x * (0.5 * (1 + math.cos(math.pi * o.n / 10))) / (1 - 0.9**o.n)


def generate(x: Any, o: Any) -> Any:
    o.n = (o.n * 1103515245 + 12345) & 0x7FFFFFFF
    return x * (o.n % 7)


def mix(x: Any, o: Any) -> Any:
    o.n ^= o.n << 1
    o.n &= 0xFFFF
    return torch.where(x > o.n, x, -x).clamp(min=-o.n)


def rounded(x: Any, o: Any) -> Any:
    o.n = round(o.n * 1.1, 3)
    return x * o.n


def roots(x: Any, o: Any) -> Any:
    o.n = math.sqrt(o.n)
    return x * o.n + int(o.n + 0.3)


def lengths(x: Any, o: Any) -> Any:
    o.losses.append(x.sum().item())
    return x / len(o.losses)


@pytest.mark.parametrize(
    ("program", "start", "misses"),
    [
        (schedule, SimpleNamespace(n=0), 2),
        (generate, SimpleNamespace(n=0), 2),
        (mix, SimpleNamespace(n=5), 2),
        (rounded, SimpleNamespace(n=1.0), 2),
        (roots, SimpleNamespace(n=2.0), 2),
        (lengths, SimpleNamespace(losses=[]), 2),
        (count, SimpleNamespace(n=0), 2),
        (scale, SimpleNamespace(n=0), 2),
        (every_second, SimpleNamespace(n=0), 3),
        (average, SimpleNamespace(n=0.0), 2),
        (tally, SimpleNamespace(counts=collections.Counter(calls=1), settings={"step": 0}, positions=[0]), 2),
    ],
)
def test_a_number_that_the_program_writes_is_compiled_twice(program: Any, start: Any, misses: int) -> None:
    check(program, start, misses=misses)


def test_the_number_may_be_set_to_anything_between_calls() -> None:
    check(scale, SimpleNamespace(n=0), 9, {2: 0, 4: -7, 5: 10**6, 7: True})
    check(every_second, SimpleNamespace(n=0), 6, {2: 0, 4: 2.5})


@pytest.mark.parametrize("program", [quotients, differentiate])
def test_numbers_in_divisions_and_in_inner_gradients(program: Any) -> None:
    check(program, SimpleNamespace(n=-3), 6)


def sized(x: Any, o: Any) -> Any:
    o.n += 1
    return x[: o.n]


def keyed(x: Any, o: Any) -> Any:
    o.n += 1
    return x * {1: 2.0, 2: 3.0}.get(o.n, 0.0), list(range(o.n))


def test_a_number_whose_value_is_needed_stays_a_fact() -> None:
    check(keyed, SimpleNamespace(n=0), 4, {3: 1}, misses=3)


def test_a_number_that_becomes_a_size_is_a_symbol() -> None:
    check(sized, SimpleNamespace(n=0), 4, {3: 1}, misses=2)


def test_a_number_that_the_program_only_reads_is_a_fact() -> None:
    holder = SimpleNamespace(n=0)
    compiled = thunder.jit(lambda x: x * holder.n)
    for n in range(3):
        holder.n = n
        assert torch.equal(compiled(X), X * n)
    assert thunder.cache_misses(compiled) == 3


def test_a_counting_module_trains() -> None:
    class Counting(torch.nn.Linear):
        calls = 0

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.calls += 1
            return super().forward(x) * self.calls

    model = Counting(5, 1)
    expected = copy.deepcopy(model)
    compiled = thunder.jit(model)
    for _ in range(4):
        compiled(X).sum().backward()
        expected(X).sum().backward()
    assert model.weight.grad is not None
    assert torch.equal(model.weight.grad, expected.weight.grad)
    assert (model.calls, thunder.cache_misses(compiled)) == (4, 3)


def test_a_checkpointed_region_counts_its_runs() -> None:
    class Counting(torch.nn.Linear):
        def __init__(self) -> None:
            super().__init__(5, 1)
            self.calls = 0

        def region(self, x: torch.Tensor) -> torch.Tensor:
            self.calls += 1
            return torch.sin(super().forward(x)) * self.calls

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return checkpoint(self.region, x, use_reentrant=False).sum()

    model = Counting()
    expected = copy.deepcopy(model)
    compiled = thunder.jit(model)
    for _ in range(4):
        compiled(X).backward()
        expected(X).backward()
        assert model.calls == expected.calls
        assert torch.equal(model.weight.grad, expected.weight.grad)
    assert thunder.cache_misses(compiled) == 2


@pytest.mark.parametrize("options", [{"data_dependent": "refuse"}, {"cache": "constant values"}])
def test_under_other_options_a_counter_is_a_symbol(options: dict[str, str]) -> None:
    holder = SimpleNamespace(n=0)
    compiled = thunder.jit(count, **options)
    for _ in range(3):
        compiled(X, holder)
    assert (holder.n, thunder.cache_misses(compiled)) == (3, 2)


def test_a_transform_that_rewrites_inputs_leaves_counters_symbols() -> None:
    class Rewrites(thunder.Transform):
        def transform_traces_pre_prologue(
            self, prologue: Any, computation: Any, epilogue: Any, **_: Any
        ) -> Any:
            return prologue, computation, epilogue

    holder = SimpleNamespace(n=0)
    compiled = thunder.jit(scale, transforms=[Rewrites()])
    for calls in range(1, 4):
        assert torch.equal(compiled(X, holder)[0], X * calls)
    assert thunder.cache_misses(compiled) == 2


def test_numbers_of_equal_names_in_two_modules_are_two_inputs():
    namespaces = [types.ModuleType("first"), types.ModuleType("second")]
    for namespace in namespaces:
        exec("n = 0\ndef tick(by):\n    global n\n    n += by\n    return n\n", namespace.__dict__)
    ticks = [namespace.tick for namespace in namespaces]

    def program(x):
        return x * ticks[0](1) + ticks[1](10)

    compiled = thunder.jit(program)
    for call in range(1, 6):
        assert torch.equal(compiled(torch.ones(2)), torch.full((2,), 11.0 * call))
        assert [namespace.n for namespace in namespaces] == [call, 10 * call]
    assert thunder.cache_misses(compiled) == 2


@pytest.mark.parametrize("make", [SimpleNamespace, lambda n: collections.Counter(n=n)])
def test_two_objects_that_become_one(make: Any) -> None:
    def items(x: Any, a: Any, b: Any) -> Any:
        a["n"] += 1
        b["n"] += 2
        return x * a["n"]

    def attributes(x: Any, a: Any, b: Any) -> Any:
        a.n += 1
        b.n += 2
        return x * a.n

    program = attributes if make is SimpleNamespace else items
    outcomes = []
    for run in (program, thunder.jit(program)):
        first, second = make(n=0), make(n=0)
        pairs = [(first, second)] * 3 + [(first, first)] * 2 + [(first, second)]
        outcomes.append([run(X, *pair).tolist() for pair in pairs])
    assert outcomes[0] == outcomes[1]
