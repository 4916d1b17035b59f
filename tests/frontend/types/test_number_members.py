"""Attributes and methods of numbers that vary from call to call are CPython's."""

from __future__ import annotations

import copy
import enum
import fractions
import json
import math
import operator
import re
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import thunder


class Two(enum.IntEnum):
    TWO = 2


class Adding(int):
    def __radd__(self, other: Any) -> str:
        return f"radd {int(other) > 4}"


REAL = """
n.real, n.imag, n.conjugate(), n.real.real, n.conjugate().imag, n.as_integer_ratio(), n.__class__, n.__doc__
hasattr(n, "real"), hasattr(n, "shape"), getattr(n, "name", 7), getattr(n, "value", 7)
operator.attrgetter("real")(n)
n.__getnewargs__(), n.__round__(1), n.__floor__(), n.__ceil__(), n.__trunc__(), n.__add__("a"), n.__lt__("a")
math.floor(n + 2**60), math.ceil(n), math.trunc(n), round(n), round(n, 1), int(n), float(n), divmod(n, 2)
pow(n, 2), copy.copy(n)
copy.deepcopy([n]), fractions.Fraction(n), json.dumps({"a": [n]}), json.dumps(n)
n + Two.TWO, Two.TWO * n, n == Two.TWO, n < Two.TWO, n + Adding(2), Adding(2) + n
(2.5).__add__(n), (3).__add__(n), "{0:>{1}}".format("a", round(n)), "%*d" % (round(n), 3), f"{n:>{8}}"
max(n, 3), sum([n, n])
n is None, None is n, n is n, n is not n, n is x, operator.is_(n, None), (n > 3) is True, (n > 3) is (n < 9)
"""
INTEGERS = """
n.numerator, n.denominator, n.bit_length(), n.bit_count(), n.to_bytes(4, "big"), n.__index__()
operator.index(n)
n is THREE, THREE is n, n is not THREE, operator.is_(n, THREE), operator.is_not(THREE, n)
n is n & n, n + 1 is THREE
n & 3, n | 8, n ^ 1, ~n, n << 2, n >> 1, 3 & n, 1 << n, 100 >> n, 9 | n, 9 ^ n, n & n, pow(n, 3, 5)
int.bit_length(n), int.__add__(n, 1), list(map(int.bit_length, [n])), n.from_bytes(b"a", "big")
n.__rlshift__(1)
"{0:>{1}}".format("a", n), "%*d" % (n, 3), f"{n:05d} {n:x} {n:#b}", operator.methodcaller("bit_length")(n)
(x.long() & n).tolist(), (n ^ x.long()).tolist(), (1 << x.long() << n).tolist(), seeded(n)
"""
NAMES: dict[str, Any] = {f.__name__: f for f in (copy, fractions, json, math, operator, torch, Two, Adding)}
NAMES["THREE"] = 3
FLOATS = 'n.hex(), n.is_integer(), float.is_integer(n), float.fromhex(n.hex()), f"{n:.3f}", n.__float__()'


def program(lines: str) -> Callable[[Any, torch.Tensor], Any]:
    """Return a program of the values of expressions of ``n``; the counter ``o.n`` varies."""
    space: dict[str, Any] = {**NAMES, "seeded": lambda n: torch.Generator().manual_seed(n).initial_seed()}
    code = f"def f(o, x, number, step):\n    n = number(o, x)\n    o.n = o.n + step\n    return ({lines})\n"
    exec(code, space)
    function: Callable[[Any, torch.Tensor], Any] = space["f"]
    return function


def counter(o: Any, x: torch.Tensor) -> Any:
    return o.n


def item(o: Any, x: torch.Tensor) -> Any:
    return x.sum().item()


@pytest.mark.parametrize("number", [counter, item])
@pytest.mark.parametrize("kind", [int, float])
def test_attributes_and_methods_of_a_number_are_pythons(kind: type, number: Callable[..., Any]) -> None:
    lines = [*REAL.strip().split("\n"), *(INTEGERS.strip().split("\n") if kind is int else [FLOATS])]
    for line in lines:
        function = program(line)
        compiled = thunder.jit(function)
        ours, theirs = SimpleNamespace(n=kind(3)), SimpleNamespace(n=kind(3))
        for i in range(3):
            x = torch.tensor([i, 4]) if kind is int else torch.tensor([i + 0.5, 1.25])
            step = kind(1.5)
            assert repr(compiled(ours, x, number, step)) == repr(function(theirs, x, number, step)), line
            assert ours == theirs


def test_what_a_counter_needs_no_value_for_is_compiled_once() -> None:
    def count(o: Any, x: torch.Tensor) -> Any:
        o.n += 1
        return x * o.n.real, o.n.conjugate() & 1, o.n << 2, ~o.n, o.n.imag, o.n + Two.TWO

    o, compiled = SimpleNamespace(n=3), thunder.jit(count)
    for i in range(5):
        product, *others = compiled(o, torch.ones(1))
        assert (product.item(), *others) == (4 + i, (4 + i) & 1, (4 + i) << 2, ~(4 + i), 0, 6 + i)
    assert thunder.cache_misses(compiled) == 2


@pytest.mark.parametrize(
    "wrong",
    [
        *("n.foo", "n.value", "setattr(n, 'a', 1)", "n()", "n[0]", "len(n)", "n + 'a'", "n @ 2", "n & 1.5"),
        *("[1, 2][n:n:0]", "math.factorial(n + 0.5)", "int.hex(n)", "n.bit_length(3)", "1 << -n"),
    ],
)
def test_errors_of_a_number_are_pythons(wrong: str) -> None:
    function = program(f"x, {wrong}")
    compiled, o = thunder.jit(function), SimpleNamespace(n=3)
    for _ in range(3):
        try:
            eval(wrong, {"math": math, "n": o.n})
        except (TypeError, AttributeError, ValueError) as error:
            expected = error
        with pytest.raises(type(expected), match=f"^{re.escape(str(expected))}$"):
            compiled(o, torch.ones(2), counter, 1)


def test_a_program_that_raises_at_a_count_is_as_eager() -> None:
    def count(o: Any, x: torch.Tensor) -> Any:
        o.n += 1
        if o.n == 4:
            raise ValueError(f"at {o.n}")
        return x + o.n

    o, compiled, seen = SimpleNamespace(n=0), thunder.jit(count), list[Any]()
    for _ in range(6):
        try:
            seen.append(compiled(o, torch.zeros(1)).item())
        except ValueError as error:
            seen.append(str(error))
    assert seen == [1, 2, 3, "at 4", 5, 6]
