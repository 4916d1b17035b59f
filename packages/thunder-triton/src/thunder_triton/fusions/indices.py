"""Index expressions: integers computed from the loop variables of a kernel, in a normal form.

An expression is a sum of products `factor * atom` and a constant. An atom is a loop variable, or the quotient
or the remainder of an expression by a constant. Values of indices are not negative wherever they are used: a
lane with a negative index is masked. So the usual laws of quotients hold, and simplify what a chain of views
yields: rows of 8 elements, split and joined again, are `x` again.

    8 * (x // 8) + x % 8   →   x
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, TypeAlias

__all__ = ["Atom", "Division", "Expr", "Index", "Variable", "delinearise", "linearise"]


@dataclass(frozen=True)
class Variable:
    """A variable of a kernel: 0 ≤ value < size.

    Attributes:
        depends: the loop variables on which its value depends; a loop variable depends on itself.
    """

    name: str
    size: int
    depends: frozenset[str] | None = None

    @property
    def variables(self) -> frozenset[str]:
        """The names of the loop variables on which it depends."""
        return frozenset({self.name}) if self.depends is None else self.depends


@dataclass(frozen=True)
class Division:
    """The quotient or the remainder of an expression by a positive constant."""

    kind: Literal["//", "%"]
    operand: Expr
    divisor: int


Atom: TypeAlias = Variable | Division


@dataclass(frozen=True)
class Expr:
    """A sum of products of an integer and an atom, sorted, and a constant."""

    terms: tuple[tuple[Atom, int], ...] = ()
    constant: int = 0

    @staticmethod
    def of(value: int | Variable) -> Expr:
        """Return a constant, or a variable; one of size 1 is 0."""
        if isinstance(value, int):
            return Expr((), value)
        return Expr(((value, 1),)) if value.size > 1 else Expr()

    @cached_property
    def bounds(self) -> tuple[int, int]:
        """The least and the largest value."""
        low = high = self.constant
        for atom, factor in self.terms:
            ends = [factor * bound for bound in _bounds(atom)]
            low, high = low + min(ends), high + max(ends)
        return low, high

    @cached_property
    def variables(self) -> frozenset[str]:
        """The names of the loop variables that it depends on."""
        names: set[str] = set()
        for atom, _ in self.terms:
            names |= atom.variables if isinstance(atom, Variable) else atom.operand.variables
        return frozenset(names)

    def __add__(self, other: Expr | int) -> Expr:
        other = other if isinstance(other, Expr) else Expr((), other)
        return _normal([*self.terms, *other.terms], self.constant + other.constant)

    def __mul__(self, factor: int) -> Expr:
        if factor == 0:
            return Expr()
        return Expr(tuple((atom, k * factor) for atom, k in self.terms), self.constant * factor)

    def __floordiv__(self, divisor: int) -> Expr:
        if divisor == 1:
            return self
        whole, rest = self._split(divisor)
        if rest.bounds[0] < 0:
            return _atom("//", self, divisor)
        if rest.bounds[1] < divisor:
            return whole
        common = math.gcd(divisor, *(factor for _, factor in rest.terms))
        if common > 1:
            return whole + rest._divided(common) // (divisor // common)
        if len(rest.terms) == 1 and rest.constant == 0 and rest.terms[0][1] == 1:
            atom = rest.terms[0][0]
            if isinstance(atom, Division) and atom.kind == "//":  # (e // a) // b
                return whole + atom.operand // (atom.divisor * divisor)
            if isinstance(atom, Division) and atom.divisor % divisor == 0:  # (e % ab) // a
                return whole + (atom.operand // divisor) % (atom.divisor // divisor)
        return whole + _atom("//", rest, divisor)

    def __mod__(self, divisor: int) -> Expr:
        if divisor == 1:
            return Expr()
        _, rest = self._split(divisor)
        if rest.bounds[0] < 0:
            return _atom("%", self, divisor)
        if rest.bounds[1] < divisor:
            return rest
        common = math.gcd(divisor, *(factor for _, factor in rest.terms))
        if common > 1:
            return rest._divided(common) % (divisor // common) * common + rest.constant % common
        if len(rest.terms) == 1 and rest.constant == 0 and rest.terms[0][1] == 1:
            atom = rest.terms[0][0]
            if isinstance(atom, Division) and atom.kind == "%" and atom.divisor % divisor == 0:
                return atom.operand % divisor  # (e % ab) % a
        return _atom("%", rest, divisor)

    def _split(self, divisor: int) -> tuple[Expr, Expr]:
        """Return `whole` and `rest`: self = divisor * whole + rest, 0 ≤ constant of rest < divisor."""
        whole = tuple((atom, k // divisor) for atom, k in self.terms if k % divisor == 0)
        rest = tuple((atom, k) for atom, k in self.terms if k % divisor)
        return _normal(whole, self.constant // divisor), Expr(rest, self.constant % divisor)

    def _divided(self, common: int) -> Expr:
        """Return the quotient by a divisor of all factors."""
        return _normal(((atom, k // common) for atom, k in self.terms), self.constant // common)

    def text(self) -> str:
        """Return the expression as Python."""
        parts = [_product(atom, factor) for atom, factor in self.terms]
        if self.constant or not parts:
            parts.append(str(self.constant))
        return " + ".join(parts).replace("+ -", "- ")


Index: TypeAlias = tuple[Expr, ...]


def linearise(index: Index, shape: Sequence[int]) -> Expr:
    """Return the row-major number of an element of a tensor of this shape."""
    return _sum(index, _row_major(shape))


def delinearise(number: Expr, shape: Sequence[int]) -> Index:
    """Return the index of the element with a row-major number in a tensor of this shape."""
    index: list[Expr] = []
    for d in reversed(range(len(shape))):
        index.append(number % shape[d] if d and shape[d] else number if shape[d] > 1 else Expr())
        number = number // max(shape[d], 1)
    return tuple(reversed(index))


def _row_major(shape: Sequence[int]) -> list[int]:
    return [math.prod(shape[d + 1 :]) for d in range(len(shape))]


def _sum(index: Index, strides: Sequence[int]) -> Expr:
    total = Expr()
    for i, stride in zip(index, strides, strict=True):
        total = total + i * stride
    return total


def _atom(kind: Literal["//", "%"], operand: Expr, divisor: int) -> Expr:
    return Expr(((Division(kind, operand, divisor), 1),))


def _bounds(atom: Atom) -> tuple[int, int]:
    if isinstance(atom, Variable):
        return 0, max(atom.size - 1, 0)
    low, high = atom.operand.bounds
    if atom.kind == "%":
        return 0, atom.divisor - 1 if low < 0 else min(atom.divisor - 1, high)
    return low // atom.divisor, high // atom.divisor


def _normal(terms: Iterable[tuple[Atom, int]], constant: int) -> Expr:
    """Return the sum of products, with equal atoms collected, and quotients and remainders joined."""
    factors: dict[Atom, int] = {}
    for atom, factor in terms:
        factors[atom] = factors.get(atom, 0) + factor
    factors = {atom: factor for atom, factor in factors.items() if factor}
    for atom, factor in factors.items():
        if isinstance(atom, Division) and atom.kind == "%":
            joined = _joined(atom, factor, factors)
            if joined is not None:
                return joined + constant
    return Expr(tuple(sorted(factors.items(), key=_order)), constant)


def _joined(remainder: Division, factor: int, factors: dict[Atom, int]) -> Expr | None:
    """Return the sum without constant if another term completes a remainder; else None.

    d * (e // d) + e % d = e, and d * ((e // d) % k) + e % d = e % (d * k)
    """
    quotient = remainder.operand // remainder.divisor
    if len(quotient.terms) == 1 and quotient.constant == 0 and quotient.terms[0][1] == 1:
        partner, whole = quotient.terms[0][0], remainder.operand
        if factors.get(partner) == factor * remainder.divisor:
            return _without(factors, remainder, partner) + whole * factor
    for partner, other in factors.items():
        if (
            isinstance(partner, Division)
            and partner.kind == "%"
            and partner.operand == quotient
            and other == factor * remainder.divisor
        ):
            whole = remainder.operand % (remainder.divisor * partner.divisor)
            return _without(factors, remainder, partner) + whole * factor
    return None


def _without(factors: dict[Atom, int], *atoms: Atom) -> Expr:
    return _normal([(atom, k) for atom, k in factors.items() if atom not in atoms], 0)


def _order(term: tuple[Atom, int]) -> tuple[int, str]:
    atom, factor = term
    return -abs(factor), _text(atom)


def _text(atom: Atom) -> str:
    if isinstance(atom, Variable):
        return atom.name
    operand = atom.operand.text()
    if "+" in operand or "-" in operand or "*" in operand:
        operand = f"({operand})"
    return f"{operand} {atom.kind} {atom.divisor}"


def _product(atom: Atom, factor: int) -> str:
    text = _text(atom)
    if factor == 1:
        return text
    return f"{factor} * ({text})" if " " in text else f"{factor} * {text}"
