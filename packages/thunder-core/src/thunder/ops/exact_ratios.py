"""Sizes divided by powers of two: floats that are computed from sizes without an error."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from thunder.ir.symbolic_sizes import SymbolicInt

__all__ = ["Ratio", "ratio_of"]

#: below, products of a size and a float are exact: sizes have less than 40 bits, floats 53
_FACTOR_BITS = 12


class Ratio:
    """The float ``numerator / denominator``, with a symbolic size above a power of two.

    Operations with other such floats are exact in float64 too; any other operation takes the number, which
    fixes the size.
    """

    def __init__(self, numerator: Any, denominator: int = 1) -> None:
        self.numerator, self.denominator = numerator, denominator

    def __float__(self) -> float:
        return int(self.numerator) / self.denominator

    def __floor__(self) -> Any:
        return self.numerator // self.denominator

    def __ceil__(self) -> Any:
        return -(-self.numerator // self.denominator)

    def __trunc__(self) -> Any:
        return self.__floor__() if self.numerator >= 0 else self.__ceil__()

    def __round__(self, digits: int | None = None) -> Any:
        return round(float(self), digits)

    def __neg__(self) -> Ratio:
        return Ratio(-self.numerator, self.denominator)

    def __abs__(self) -> Ratio:
        return self if self.numerator >= 0 else -self

    def __bool__(self) -> bool:
        return bool(self.numerator)

    def __str__(self) -> str:
        return f"{self.numerator} / {self.denominator}"

    def __pow__(self, other: Any) -> Any:
        return float(self) ** float(other)

    def __rpow__(self, other: Any) -> Any:
        return float(other) ** float(self)

    def __mod__(self, other: Any) -> Any:
        return float(self) % float(other)

    def __floordiv__(self, other: Any) -> Any:
        return float(self) // float(other)

    __hash__ = None  # type: ignore[assignment]


def ratio_of(number: Any) -> Any:
    """Return a size as a ratio, a number as a float."""
    if isinstance(number, Ratio):
        return number
    return Ratio(number) if isinstance(number, SymbolicInt) else float(number)


def _exact(number: Any) -> tuple[Any, int] | None:
    """Return the numerator and the denominator of a size or of a short number, else None."""
    if isinstance(number, Ratio):
        return number.numerator, number.denominator
    if isinstance(number, SymbolicInt):
        return number, 1
    try:
        numerator, denominator = float(number).as_integer_ratio()
    except (OverflowError, ValueError):  # infinity, NaN
        return None
    is_short = max(abs(numerator).bit_length(), denominator.bit_length()) <= _FACTOR_BITS
    return (numerator, denominator) if is_short else None


def _operation(compute: Callable[..., Any], exact: Callable[..., Any]) -> tuple[Callable[..., Any], ...]:
    """Return the methods of an operation, and of it with the operands exchanged."""

    def forward(self: Ratio, other: Any) -> Any:
        a, b = _exact(self), _exact(other)
        found = None if a is None or b is None else exact(*a, *b)
        return compute(float(self), float(other)) if found is None else found

    def reflected(self: Ratio, other: Any) -> Any:
        a, b = _exact(other), _exact(self)
        found = None if a is None or b is None else exact(*a, *b)
        return compute(float(other), float(self)) if found is None else found

    return forward, reflected


def _simple(numerator: Any, denominator: int) -> Any:
    """Return a ratio; None where it is a product of sizes, or has long factors."""
    if not isinstance(numerator, SymbolicInt):
        return float(numerator / denominator)
    terms = numerator.polynomial.terms
    is_short = all(len(m) < 2 and c.bit_length() <= _FACTOR_BITS for m, c in terms.items())
    return Ratio(numerator, denominator) if is_short and denominator.bit_length() <= _FACTOR_BITS else None


def _divided(p: Any, q: int, r: Any, s: int) -> Any:
    """Return ``(p / q) / (r / s)`` where the divisor is a power of two, or one divided by it."""
    if isinstance(r, SymbolicInt) or r <= 0 or r & (r - 1):
        return None
    return _simple(p * s, q * r)


_ARITHMETIC = {
    operator.add: lambda p, q, r, s: _simple(p * s + r * q, q * s),
    operator.sub: lambda p, q, r, s: _simple(p * s - r * q, q * s),
    operator.mul: lambda p, q, r, s: _simple(p * r, q * s),
    operator.truediv: _divided,
}
_COMPARISONS = (operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge)

for _compute, _of_parts in _ARITHMETIC.items():
    _forward, _reflected = _operation(_compute, _of_parts)
    setattr(Ratio, f"__{_compute.__name__}__", _forward)
    setattr(Ratio, f"__r{_compute.__name__}__", _reflected)
for _comparison in _COMPARISONS:
    _forward, _ = _operation(_comparison, lambda p, q, r, s, ask=_comparison: ask(p * s, r * q))
    setattr(Ratio, f"__{_comparison.__name__}__", _forward)
