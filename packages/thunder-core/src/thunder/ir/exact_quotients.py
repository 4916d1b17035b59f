"""Floats that are quotients of integers without an error of rounding."""

from __future__ import annotations

import math
import operator
from typing import Final

from thunder.base.float_expressions import FloatExpression, FloatVariable, Operand
from thunder.base.integer_polynomials import Atom, Polynomial

__all__ = ["BOUND", "quotient_of"]

#: products of a number below and a factor of so many bits are exact: floats have 53
BOUND: Final = 2**40
_FACTOR_BITS: Final = 12


def quotient_of(x: FloatExpression, *, dyadic: bool = False) -> tuple[Polynomial, Polynomial] | None:
    """Return integers ``p, q`` for which the expression is ``p / q``, for sizes up to ``BOUND``; else None.

    With ``dyadic`` it has exactly this value. Else it is ``p / q`` rounded to a float, between the same
    integers as ``p / q`` where ``q`` is positive: for ``p`` below 2**53, a quotient that is no integer is
    farther from the next one than the error of rounding.
    """
    exact = _dyadic(x)
    if exact is not None:
        return exact[0], Polynomial.of(exact[1])
    if dyadic or x.operation is not operator.truediv:
        return None
    p, q = x.operands
    if not isinstance(p, int | Polynomial) or not isinstance(q, int | Polynomial):
        return None
    p, q = (y if isinstance(y, Polynomial) else Polynomial.of(y) for y in (p, q))
    return (p, q) if _is_short(p) and _is_short(q) else None


def _dyadic(x: Operand) -> tuple[Polynomial, int] | None:
    """Return an integer and a power of two of which an operand is exactly the quotient; else None."""
    if isinstance(x, int | float):
        if not math.isfinite(x):
            return None
        numerator, denominator = x.as_integer_ratio()
        found = Polynomial.of(numerator), denominator
    elif isinstance(x, Polynomial):
        found = x, 1
    elif isinstance(x, FloatVariable):
        return None
    else:
        parts = [_dyadic(y) for y in x.operands]
        if any(part is None for part in parts):
            return None
        combined = _combined(x, [part for part in parts if part is not None])
        if combined is None:
            return None
        found = combined
    return found if _is_short(found[0]) and found[1].bit_length() <= _FACTOR_BITS else None


def _combined(x: FloatExpression, parts: list[tuple[Polynomial, int]]) -> tuple[Polynomial, int] | None:
    (p, q), *rest = parts
    if x.operation is float:
        return p, q
    if x.operation is operator.neg:
        return -p, q
    if not rest:
        return None
    r, s = rest[0]
    if x.operation in (operator.add, operator.sub):
        right = r * Polynomial.of(q)
        left = p * Polynomial.of(s)
        return left + right if x.operation is operator.add else left - right, q * s
    if x.operation is operator.mul:
        return p * r, q * s
    divisor = r.constant
    if (
        x.operation is operator.truediv
        and divisor is not None
        and divisor > 0
        and not divisor & (divisor - 1)
    ):
        return p * Polynomial.of(s), q * divisor
    return None


def _is_short(p: Polynomial) -> bool:
    """Return whether a number is a sum of products of at most one size and a factor, with few bits in all."""
    weight = _weight(p)
    return weight is not None and weight.bit_length() <= _FACTOR_BITS


def _weight(p: Polynomial) -> int | None:
    """Return how many times the largest size a number can be; None where it has a product of sizes.

    ``n // 2`` is not larger than ``n``, and ``n % 2`` is below 2.
    """
    total = 0
    for monomial, coefficient in p.terms.items():
        if len(monomial) > 1:
            return None
        weights = [_weight_of_atom(atom) for atom in monomial] or [1]
        if weights[0] is None:
            return None
        total += abs(coefficient) * weights[0]
    return total


def _weight_of_atom(atom: Atom) -> int | None:
    if atom.operation is None:
        return 1
    match atom.operands:
        case Polynomial() as number, Polynomial(constant=int() as divisor) if divisor >= 1:
            if atom.operation in ("//", "%"):
                return divisor if atom.operation == "%" else _weight(number)
    return None
