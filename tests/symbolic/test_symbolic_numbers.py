"""Under ``cache="automatic"`` integers of the arguments that have differed are symbols."""

import itertools
import re
from fractions import Fraction

import numpy as np
import pytest
import torch

import thunder
from sweeping import one_in
from symbolic.static_reasons import failure_of

X = torch.arange(20.0).reshape(4, 5)
NUMBERS = (2, 3, 4, 0, -1, 5, -3, 1, 10, 3)

#: name → program, and the most compiles for ``NUMBERS``
PROGRAMS = {
    "factor": (lambda x, n: x * n, 2),
    "sum": (lambda x, n: (x + n, n + 1, -n, n), 2),
    "quotients": (lambda x, n: (x * (n // 3), n % 4, n // -3, (2 * n + 1) // 2), 2),
    "branch": (lambda x, n: x * 2 if n > 3 else x * n // 2, 3),
    "remainder": (lambda x, n: x + 1 if n % 2 else x - 1, 3),
    "slice": (lambda x, n: x[:n], 7),
    "slice_from": (lambda x, n: x[:, n:], 8),
    "item": (lambda x, n: x[:, max(min(n, 4), -5)], 7),
    "view": (lambda x, n: x.reshape(max(n, 1) if 20 % max(n, 1) == 0 else 1, -1), 6),
    "arange": (lambda x, n: torch.arange(n, n + 5) + x, 2),
    "zeros": (lambda x, n: x.new_zeros(abs(n), 2), 4),
    "full": (lambda x, n: torch.full((3,), n), 9),
    "fraction": (lambda x, n: x / (abs(n) + 1) + n / 2, 9),
    "float": (lambda x, n: x * float(n) ** 2, 9),
    "list": (lambda x, n: [x, x * 2, x * 3][n % 3], 4),
    "text": (lambda x, n: (x, f"{n}", n is None, n == 3, isinstance(n, int), type(n)), 9),
    "nested": (lambda x, n: x + {"k": [n]}["k"][0], 2),
}


def _compiled(fn, **options):
    return thunder.jit(fn, cache="automatic", executors=["torch"], recompile_limit=None, **options)


def _assert_same(actual, expected):
    if isinstance(expected, tuple):
        assert len(actual) == len(expected)
        for a, e in zip(actual, expected, strict=True):
            _assert_same(a, e)
    elif isinstance(expected, torch.Tensor):
        assert actual.dtype is expected.dtype
        assert actual.stride() == expected.stride()
        assert torch.equal(actual, expected)
    else:
        assert type(actual) is type(expected)
        assert actual == expected


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_of_a_number_computes_what_eager_computes(name):
    fn, most = PROGRAMS[name]
    compiled = _compiled(fn)
    for number in NUMBERS:
        _assert_same(compiled(X, number), fn(X, number))
    assert thunder.cache_misses(compiled) <= most
    assert failure_of(compiled) is None


@pytest.mark.parametrize("name", one_in(3, PROGRAMS))
def test_each_fact_about_a_number_that_is_broken_refuses_the_entry(name):
    fn, _ = PROGRAMS[name]
    compiled = _compiled(fn)
    for number in NUMBERS:
        compiled(X, number)
    for entry in thunder.compile_stats(compiled).interpreter_cache:
        broken, facts = (
            set(),
            [
                fact
                for fact in entry.guards
                if fact.sym.name in ("check_sizes", "check_number_type_and_value")
            ],
        )
        for number in (*range(-30, 31), 2**41, -(2**41)):
            failures = {str(f) for f in facts if f.failure({"args": (X, number), "kwargs": {}}) is not None}
            broken |= failures
            assert (entry.prologue_fn(X, number) is None) == bool(failures)
        assert broken == {str(fact) for fact in facts}
        for other in (True, 2.0, None, "2"):
            assert entry.prologue_fn(X, other) is None


def test_a_bool_a_float_and_a_number_are_different_arguments():
    compiled = _compiled(lambda x, n: x * n)
    for n in (2, 3, True, 2.0, 5, False, 3.0, 2, 2**40, -(2**40)):
        _assert_same(compiled(X, n), X * n)
    entries = thunder.compile_stats(compiled).interpreter_cache
    arguments = [p.type_string() for e in entries for p in e.computation_traces[-1].args]
    assert "int 3" in arguments


def test_numbers_and_sizes_meet_in_facts():
    def program(x, n):
        return x[:, :n] * 2 if n == x.shape[0] else x.sum() + n

    compiled = _compiled(program)
    for rows, n in ((2, 2), (3, 3), (4, 4), (5, 5), (4, 2), (5, 3), (6, 1)):
        x = torch.randn(rows, 7)
        torch.testing.assert_close(compiled(x, n), program(x, n))
    assert thunder.cache_misses(compiled) == 3
    facts = [
        str(f)
        for f in thunder.compile_stats(compiled).interpreter_cache[1].guards
        if f.sym.name == "check_sizes"
    ]
    assert "args[0].shape[0] == args[1]" in facts or "args[1] == args[0].shape[0]" in facts


def test_gradients_and_writes_see_the_number_of_their_call():
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(5))

        def forward(self, x, *, start):
            self.position = start + x.shape[0]
            return x[start:] * self.weight * (start + 1)

    eager, module = Model(), Model()
    compiled = _compiled(module)
    for start in (0, 1, 2, 3, 1):
        compiled(X, start=start).sum().backward()
        eager(X, start=start).sum().backward()
        assert compiled.position == eager.position
        assert type(compiled.position) is int
        assert torch.equal(module.weight.grad, eager.weight.grad)


def test_the_reason_names_the_number():
    compiled = _compiled(lambda x, n: x * n)
    for n in (2, 3):
        compiled(X, n)
    (reason,) = thunder.last_recompile_reasons(compiled)
    assert (reason.fact, reason.expected, reason.found, reason.now_free) == (
        "value of args[1]",
        2,
        3,
        ("args[1]",),
    )


def test_random_chains_of_arithmetic_on_a_number():
    steps = (
        lambda a, b: a + b,
        lambda a, b: a - 2 * b,
        lambda a, b: a * b,
        lambda a, b: a // (b if b else 1),
        lambda a, b: a % (b if b else 1),
        lambda a, b: a if a > b else b,
    )

    for first, second, third in itertools.islice(itertools.product(steps, repeat=3), 0, None, 11):

        def program(x, n, m, first=first, second=second, third=third):
            value = third(second(first(n, m), n), m)
            return x + value, value

        compiled = _compiled(program)
        for n, m in ((3, 2), (5, 7), (-4, 3), (0, 0), (6, -2), (-5, -5), (1, 9)):
            _assert_same(compiled(X, n, m), program(X, n, m))


class _Adding(int):
    def __add__(self, other):
        return f"add {other}"

    def __radd__(self, other):
        return f"radd {other}"

    def __eq__(self, other):
        return "equal"

    def __gt__(self, other):
        return "greater"

    __hash__ = int.__hash__


def test_a_subclass_of_int_answers_first_for_numbers_and_sizes():
    def program(x, n):
        size, two = x.shape[0], _Adding(2)
        return [(a + two, two + a, a == two, a < two, a * two) for a in (n, size)]

    compiled = _compiled(program)
    for rows, n in ((2, 3), (3, 4), (4, 2)):
        _assert_same(tuple(compiled(torch.ones(rows), n)), tuple(program(torch.ones(rows), n)))


def test_a_number_that_the_program_writes_is_one_that_varies():
    class Counter:
        def __init__(self):
            self.calls = 0

    def program(x, counter):
        counter.calls += 1
        return x * counter.calls

    compiled, ours, eagers = _compiled(program), Counter(), Counter()
    for _ in range(4):
        _assert_same(compiled(X, ours), program(X, eagers))
    assert thunder.cache_misses(compiled) == 2


@pytest.mark.parametrize("number", ["size", "half", "argument"])
def test_divmod_is_that_of_python_for_each_kind_of_the_other_number(number):
    numbers = {
        "size": lambda x, f: x.shape[0],
        "half": lambda x, f: x.shape[0] * 0.5,
        "argument": lambda x, f: f,
    }

    def program(x, f, other, is_reflected):
        n = numbers[number](x, f)
        return divmod(other, n) if is_reflected else divmod(n, other)

    for other in (2, 0.75, True, np.int64(2), Fraction(2, 3), torch.ones(2), 1j, "%d", None):
        for is_reflected in (False, True):
            compiled = thunder.jit(program, cache="symbolic values")
            for x, f in ((torch.ones(2), 1.5), (torch.ones(3), 2.5)):
                try:
                    expected = program(x, f, other, is_reflected)
                except TypeError as error:
                    with pytest.raises(TypeError, match=re.escape(str(error)[:30])):
                        compiled(x, f, other, is_reflected)
                else:
                    found = compiled(x, f, other, is_reflected)
                    assert [type(part) for part in found] == [type(part) for part in expected]
                    assert found == expected
