"""Polynomials with integer coefficients: the lengths that a program computes from sizes of its inputs.

A polynomial has one form: equal ones are equal objects of Python, so that a program which writes
``n * 4`` and ``4 * n`` has computed one number. Results of other operations, ``n // 2`` and ``round(n / 3)``,
are atoms of polynomials.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, Protocol, TypeAlias

from thunder.base.integer_operations import INTEGER_OPERATIONS, Interval, result_of

__all__ = ["Atom", "Interval", "Polynomial"]

Division: TypeAlias = Literal["//", "%"]
#: atoms with their powers written out, in order
Monomial: TypeAlias = "tuple[Atom, ...]"


class Operand(Protocol):
    """A number to which an operation of :data:`INTEGER_OPERATIONS` is applied: a polynomial, or a float."""

    @property
    def key(self) -> str: ...
    @property
    def variables(self) -> frozenset[int]: ...
    @property
    def is_one_word(self) -> bool: ...
    @property
    def reads_math(self) -> bool: ...
    def value(self, values: Callable[[int], Any]) -> Any: ...
    def substituted(self, replacements: Mapping[int, Polynomial]) -> Operand: ...
    def text(self, names: Callable[[int], str]) -> str: ...


@dataclass(frozen=True)
class Atom:
    """A variable by its number, or the result of an operation, by its name, on polynomials and floats."""

    variable: int = -1
    operation: str | None = None
    operands: tuple[Operand, ...] = ()

    @cached_property
    def key(self) -> str:
        """The position of the atom in a monomial: variables first, in order."""
        if self.operation is None:
            return f"{self.variable:08}"
        return f"x{self.operation}({', '.join(x.key for x in self.operands)})"

    @cached_property
    def variables(self) -> frozenset[int]:
        """The variables that occur in the atom."""
        if self.operation is None:
            return frozenset((self.variable,))
        return frozenset().union(*(x.variables for x in self.operands))

    @property
    def reads_math(self) -> bool:
        """Whether the text names the module ``math``."""
        if self.operation is None:
            return False
        return INTEGER_OPERATIONS[self.operation].reads_math or any(x.reads_math for x in self.operands)

    @cached_property
    def is_arithmetic(self) -> bool:
        """Whether it is a variable, or a quotient or remainder of sums and products of such."""
        if self.operation is None:
            return True
        of_integers = all(isinstance(x, Polynomial) and x.is_arithmetic for x in self.operands)
        return self.operation in ("//", "%") and of_integers


class Polynomial:
    """A sum of monomials with coefficients."""

    def __init__(self, terms: Mapping[Monomial, int]) -> None:
        self.terms = {m: c for m, c in terms.items() if c}

    @classmethod
    def _with(cls, terms: dict[Monomial, int]) -> Polynomial:
        """Return a polynomial with terms of which no coefficient is 0."""
        polynomial = cls.__new__(cls)
        polynomial.terms = terms
        return polynomial

    @classmethod
    def of(cls, number: int) -> Polynomial:
        """Return a constant."""
        return cls._with({(): number} if number else {})

    @classmethod
    def applied(cls, operation: str, *operands: Operand) -> Polynomial:
        """Return the result of an operation that has no other form; a number for numbers."""
        atom = Atom(-1, operation, operands)
        if not atom.variables:
            with suppress(ArithmeticError, ValueError):  # of operations on numbers that no call has
                return cls.of(_value(atom, _no_variable))
        return cls._with({(atom,): 1})

    @classmethod
    def variable(cls, number: int) -> Polynomial:
        """Return a variable by its number."""
        return cls._with({(Atom(number),): 1})

    @cached_property
    def key(self) -> str:
        """A text that equal polynomials share."""
        return "+".join(f"{c}{[a.key for a in m]}" for m, c in self._sorted)

    @cached_property
    def _sorted(self) -> list[tuple[Monomial, int]]:
        return sorted(self.terms.items(), key=lambda term: (-len(term[0]), [a.key for a in term[0]]))

    @cached_property
    def variables(self) -> frozenset[int]:
        """The variables that occur in it."""
        return frozenset().union(*(a.variables for m in self.terms for a in m))

    @cached_property
    def is_without_quotients(self) -> bool:
        """Whether its atoms are variables, so that it has a value for all of them."""
        return all(atom.operation is None for monomial in self.terms for atom in monomial)

    @property
    def is_arithmetic(self) -> bool:
        """Whether sums, products, quotients and remainders of integers are all that it has."""
        return all(a.is_arithmetic for m in self.terms for a in m)

    @property
    def reads_math(self) -> bool:
        """Whether the text names the module ``math``."""
        return not self.is_without_quotients and any(a.reads_math for m in self.terms for a in m)

    @property
    def constant(self) -> int | None:
        """The number that it is, or None if it has variables."""
        if not self.terms:
            return 0
        return self.terms.get(()) if len(self.terms) == 1 else None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Polynomial) and self.terms == other.terms

    def __hash__(self) -> int:
        return hash(self.key)

    # -- arithmetic ------------------------------------------------------------------------------------------

    def __add__(self, other: Polynomial) -> Polynomial:
        return self._plus(other, 1)

    def __neg__(self) -> Polynomial:
        return Polynomial._with({m: -c for m, c in self.terms.items()})

    def __sub__(self, other: Polynomial) -> Polynomial:
        return self._plus(other, -1)

    def _plus(self, other: Polynomial, sign: int) -> Polynomial:
        terms = dict(self.terms)
        for monomial, coefficient in other.terms.items():
            total = terms.get(monomial, 0) + sign * coefficient
            if total:
                terms[monomial] = total
            else:
                del terms[monomial]
        return Polynomial._with(terms)

    def __mul__(self, other: Polynomial) -> Polynomial:
        for a, b in ((self, other), (other, self)):
            constant = a.constant
            if constant is not None:
                return Polynomial._with({m: c * constant for m, c in b.terms.items()} if constant else {})
        terms: dict[Monomial, int] = {}
        for m, c in self.terms.items():
            for n, d in other.terms.items():
                product = tuple(sorted((*m, *n), key=lambda atom: atom.key))
                terms[product] = terms.get(product, 0) + c * d
        return Polynomial(terms)

    def divided(self, divisor: Polynomial, operation: Division) -> Polynomial:
        """Return Python's quotient or remainder. The divisor is not 0.

        Terms that the divisor divides leave no remainder: ``(n * m + 1) // n`` is ``m + 1 // n``.
        """
        quotient, rest = self._split(divisor)
        a, b = rest.constant, divisor.constant
        if operation == "//":
            if a == 0:
                return quotient
            if a is not None and b:
                return quotient + Polynomial.of(a // b)
            return quotient + Polynomial.applied("//", rest, divisor)
        if a == 0 or b in (1, -1):
            return Polynomial.of(0)
        if a is not None and b:
            return Polynomial.of(a % b)
        return Polynomial.applied("%", rest, divisor)

    def _split(self, divisor: Polynomial) -> tuple[Polynomial, Polynomial]:
        """Return ``(q, r)`` with ``self == q * divisor + r``."""
        if self == divisor:
            return Polynomial.of(1), Polynomial.of(0)
        if len(divisor.terms) != 1:
            return Polynomial.of(0), self
        ((monomial, coefficient),) = divisor.terms.items()
        quotient: dict[Monomial, int] = {}
        rest: dict[Monomial, int] = {}
        for m, c in self.terms.items():
            left = _without(m, monomial)
            if left is None:
                rest[m] = c
                continue
            # for a number as the divisor, the part of the coefficient that it divides
            if c % coefficient == 0 or not monomial:
                quotient[left] = c // coefficient
                if c % coefficient:
                    rest[m] = c % coefficient
            else:
                rest[m] = c
        return Polynomial(quotient), Polynomial(rest)

    def in_remainders(self) -> Polynomial:
        """Return the polynomial with a remainder in the place of a number without its quotient, if any.

        ``n - 2 * (n // 2) - 1`` is ``n % 2 - 1``, so that both are one fact.
        """
        if self.is_without_quotients:
            return self
        for m, c in self.terms.items():
            if len(m) != 1 or m[0].operation != "//":
                continue
            number, divisor = m[0].operands
            assert isinstance(number, Polynomial), "a quotient of integers"
            assert isinstance(divisor, Polynomial), "a quotient of integers"
            d = divisor.constant
            if not d or c % d:
                continue
            factor = Polynomial.of(-(c // d))
            rest = self - Polynomial({m: c}) - factor * number
            if rest.constant is not None:
                return rest + factor * Polynomial.applied("%", number, divisor)
        return self

    # -- values ----------------------------------------------------------------------------------------------

    def value(self, values: Callable[[int], int]) -> int:
        """Return the value for these values of the variables."""
        return sum(c * math.prod(_value(a, values) for a in m) for m, c in self.terms.items())

    def substituted(self, replacements: Mapping[int, Polynomial]) -> Polynomial:
        """Return the polynomial in which polynomials replace variables."""
        if self.variables.isdisjoint(replacements):
            return self
        total = Polynomial.of(0)
        for m, c in self.terms.items():
            product = Polynomial.of(c)
            for atom in m:
                product = product * _substituted(atom, replacements)
            total = total + product
        return total

    def interval(self, bounds: Callable[[int], Interval]) -> Interval:
        """Return an interval that contains all values, for the intervals of the variables."""
        total = Interval(0, 0)
        for m, c in self.terms.items():
            product = Interval(1, 1)
            for atom in m:
                product = product * _interval(atom, bounds)
            total = total + product.scaled(c)
        return total

    # -- text ------------------------------------------------------------------------------------------------

    def magnitude(self, most: int) -> int | None:
        """Return a bound of the absolute values with which it is computed, for variables up to ``most``.

        None where an operation other than a division is applied, of which none is known.
        """
        total = 0
        for monomial, coefficient in self.terms.items():
            product = abs(coefficient)
            for atom in monomial:
                largest = _magnitude(atom, most)
                if largest is None:
                    return None
                product *= largest
            total += product
        return total

    def text(self, names: Callable[[int], str]) -> str:
        """Return the expression of Python, for the names of the variables."""
        parts = []
        for monomial, coefficient in self._sorted:
            sign = "-" if coefficient < 0 else "+"
            parts += [sign, _product_text(monomial, abs(coefficient), names)]
        if not parts:
            return "0"
        first = parts[1] if parts[0] == "+" else f"-{parts[1]}"
        return " ".join([first, *parts[2:]])

    @property
    def is_one_word(self) -> bool:
        """Return whether its text needs no parentheses as an operand."""
        if len(self.terms) != 1:
            return not self.terms
        ((monomial, coefficient),) = self.terms.items()
        return (not monomial and coefficient >= 0) or (len(monomial) == 1 and coefficient == 1)

    def sides(self) -> tuple[Polynomial, Polynomial]:
        """Return the terms with positive coefficients, and the others with their signs changed."""
        positive = {m: c for m, c in self.terms.items() if c > 0}
        return Polynomial(positive), Polynomial({m: -c for m, c in self.terms.items() if c < 0})

    def solved(self) -> Iterator[tuple[int, Polynomial]]:
        """Yield variables with what they are where the polynomial is 0, as far as it is linear in them."""
        for m, c in self.terms.items():
            if len(m) == 1 and m[0].operation is None and c in (1, -1):
                variable = m[0].variable
                rest = Polynomial({n: -c * d for n, d in self.terms.items() if n != m})
                if variable not in rest.variables:
                    yield variable, rest


def _without(monomial: Monomial, divisor: Monomial) -> Monomial | None:
    """Return a monomial divided by another one, or None if that does not divide it."""
    left = list(monomial)
    for atom in divisor:
        if atom not in left:
            return None
        left.remove(atom)
    return tuple(left)


def _no_variable(number: int) -> int:
    raise AssertionError(f"variable {number} in an operation on numbers")


def _value(atom: Atom, values: Callable[[int], int]) -> int:
    if atom.operation is None:
        return values(atom.variable)
    result: int = result_of(atom.operation, tuple(x.value(values) for x in atom.operands))
    return result


def _substituted(atom: Atom, replacements: Mapping[int, Polynomial]) -> Polynomial:
    if atom.operation is None:
        return replacements.get(atom.variable) or Polynomial({(atom,): 1})
    operands = tuple(x.substituted(replacements) for x in atom.operands)
    match operands:
        case Polynomial() as a, Polynomial() as b if atom.operation in ("//", "%") and b.constant != 0:
            return a.divided(b, atom.operation)  # type: ignore[arg-type]
    return Polynomial.applied(atom.operation, *operands)


def _magnitude(atom: Atom, most: int) -> int | None:
    if atom.operation is None:
        return most
    known = [x.magnitude(most) if isinstance(x, Polynomial) else None for x in atom.operands]
    if atom.operation not in ("//", "%") or None in known:
        return None
    return max(n for n in known if n is not None)


def _interval(x: Any, bounds: Callable[[int], Interval]) -> Interval:
    """Return an interval of an atom or an operand; nothing is known of a float."""
    if isinstance(x, Polynomial):
        return x.interval(bounds)
    if not isinstance(x, Atom):
        return Interval(None, None)
    if x.operation is None:
        return bounds(x.variable)
    return INTEGER_OPERATIONS[x.operation].interval(*(_interval(y, bounds) for y in x.operands))


def _product_text(monomial: Monomial, coefficient: int, names: Callable[[int], str]) -> str:
    factors = [] if coefficient == 1 and monomial else [str(coefficient)]
    factors += [_atom_text(atom, names) for atom in monomial]
    return " * ".join(factors)


def _atom_text(atom: Atom, names: Callable[[int], str]) -> str:
    if atom.operation is None:
        return names(atom.variable)
    operation = INTEGER_OPERATIONS[atom.operation]
    texts = [
        x.text(names) if operation.is_call or x.is_one_word else f"({x.text(names)})" for x in atom.operands
    ]
    text = operation.text.format(*texts)
    return text if operation.is_one_word else f"({text})"
