"""Functions of Python with integers as results that are no polynomials: quotients, bits, roots, roundings.

A call of one is an atom of a polynomial: it prints as in the program, and Python computes it in each call.

    math.isqrt(n) + 1    →    math.isqrt(i0) + 1
    round(n / 3)         →    round(i0 / 3)
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import torch

__all__ = ["INTEGER_OPERATIONS", "IntegerOperation", "Interval", "is_natural", "result_of", "value_of_call"]


class Interval:
    """The integers from ``low`` to ``high``; None where there is no bound."""

    __slots__ = ("high", "low")

    def __init__(self, low: int | None, high: int | None) -> None:
        self.low, self.high = low, high

    def __add__(self, other: Interval) -> Interval:
        low = None if self.low is None or other.low is None else self.low + other.low
        high = None if self.high is None or other.high is None else self.high + other.high
        return Interval(low, high)

    def scaled(self, factor: int) -> Interval:
        """Return the interval of the products with a number."""
        low = None if self.low is None else self.low * factor
        high = None if self.high is None else self.high * factor
        return Interval(low, high) if factor >= 0 else Interval(high, low)

    def __mul__(self, other: Interval) -> Interval:
        if self.low is None or other.low is None or self.low < 0 or other.low < 0:
            return Interval(None, None)
        high = None if self.high is None or other.high is None else self.high * other.high
        return Interval(self.low * other.low, 0 if self.high == 0 or other.high == 0 else high)


def is_natural(*intervals: Interval) -> bool:
    """Return whether no number of the intervals is negative."""
    return all(i.low is not None and i.low >= 0 for i in intervals)


def _quotient(a: Interval, b: Interval) -> Interval:
    if b.low is None or b.low <= 0:
        return Interval(None, None)
    low = None if a.low is None else 0 if a.low >= 0 and b.high is None else a.low // (b.high or b.low)
    if a.low is not None and a.low < 0:
        low = a.low // b.low
    return Interval(low, None if a.high is None else a.high // b.low if a.high >= 0 else -1)


def _remainder(a: Interval, b: Interval) -> Interval:
    if b.low is None or b.low <= 0:
        return Interval(None, None)
    return Interval(0, None if b.high is None else b.high - 1)


def _conjunction(a: Interval, b: Interval) -> Interval:
    highs = [i.high for i in (a, b) if is_natural(i) and i.high is not None]
    return Interval(0 if is_natural(a) or is_natural(b) else None, min(highs, default=None))


def _increasing(function: Callable[[int], int]) -> Callable[[Interval], Interval]:
    """Return the intervals of a function that increases from 0 on."""

    def interval(a: Interval) -> Interval:
        if a.low is None or a.low < 0:
            return Interval(None, None)
        return Interval(function(a.low), None if a.high is None else function(a.high))

    return interval


def _natural(*intervals: Interval) -> Interval:
    """Return the interval of a function of numbers that are not negative, which is not negative."""
    return Interval(0 if is_natural(*intervals) else None, None)


def _unknown(*intervals: Interval) -> Interval:
    return Interval(None, None)


@dataclass(frozen=True)
class IntegerOperation:
    """A function of numbers with an integer as its result.

    Attributes:
        compute: the function of Python.
        text: its text, with a pair of braces for each operand.
        interval: an interval of results for those of the operands; of floats nothing is known.
        least: the least numbers for which it is defined, by operand; None for no bound.
    """

    compute: Callable[..., Any]
    text: str
    interval: Callable[..., Interval] = _unknown
    least: tuple[int | None, ...] = ()

    @property
    def is_one_word(self) -> bool:
        """Whether the text needs no parentheses as an operand."""
        return self.text.endswith(")")

    @property
    def is_call(self) -> bool:
        """Whether the operands are arguments in parentheses."""
        return self.is_one_word and not self.text.startswith("{")

    @property
    def reads_math(self) -> bool:
        """Whether the text names the module ``math``."""
        return self.text.startswith("math.")


def _function(compute: Callable[..., Any], operands: int = 1, **facts: Any) -> IntegerOperation:
    """Return the operation that a function of ``math`` is."""
    return IntegerOperation(compute, f"math.{compute.__name__}({', '.join(['{}'] * operands)})", **facts)


#: the name of each operation → what is known of it
INTEGER_OPERATIONS: Final[dict[str, IntegerOperation]] = {
    "//": IntegerOperation(operator.floordiv, "{} // {}", _quotient),
    "%": IntegerOperation(operator.mod, "{} % {}", _remainder),
    "&": IntegerOperation(operator.and_, "{} & {}", _conjunction),
    "|": IntegerOperation(operator.or_, "{} | {}", _natural),
    "^": IntegerOperation(operator.xor, "{} ^ {}", _natural),
    "<<": IntegerOperation(operator.lshift, "{} << {}", _natural, (None, 0)),
    ">>": IntegerOperation(operator.rshift, "{} >> {}", _natural, (None, 0)),
    "**": IntegerOperation(operator.pow, "{} ** {}", _natural, (None, 0)),
    "bit_length": IntegerOperation(int.bit_length, "{}.bit_length()", _increasing(int.bit_length)),
    "bit_count": IntegerOperation(int.bit_count, "{}.bit_count()", _natural),
    "isqrt": _function(math.isqrt, interval=_increasing(math.isqrt), least=(0,)),
    "gcd": _function(math.gcd, 2, interval=lambda a, b: Interval(0, None)),
    "lcm": _function(math.lcm, 2, interval=lambda a, b: Interval(0, None)),
    "comb": _function(math.comb, 2, interval=_natural, least=(0, 0)),
    "perm": _function(math.perm, 2, interval=_natural, least=(0, 0)),
    "factorial": _function(math.factorial, interval=_natural, least=(0,)),
    "floor": _function(math.floor),
    "ceil": _function(math.ceil),
    "trunc": _function(math.trunc),
    "round": IntegerOperation(round, "round({})"),
}


#: operations that torch's numbers without values have
_OF_TORCH: Final = frozenset({"//", "%"})


def result_of(operation: str, values: tuple[Any, ...]) -> Any:
    """Return what an operation computes; raises what Python raises.

    Torch's numbers without values, for which it has no such operation, give the value of the call, of which
    torch takes a note.
    """
    known = values if operation in _OF_TORCH else map(value_of_call, values)
    return INTEGER_OPERATIONS[operation].compute(*known)


def value_of_call(x: Any) -> Any:
    """Return the value in this call of a number of torch's without a value, of which torch takes a note."""
    return int(x) if isinstance(x, torch.SymInt) else float(x) if isinstance(x, torch.SymFloat) else x
