"""Relations between sizes on which a program depends, see Note [Symbolic sizes]."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal

from thunder.base.float_expressions import FloatVariable, Operand, compare, key_of, text_of, variables_of
from thunder.base.integer_polynomials import Polynomial

__all__ = ["FloatFact", "Relation", "SizeFact", "implies", "implies_float", "relates"]

#: a relation between a polynomial and 0
Relation = Literal["==", "!=", ">="]


@dataclass(frozen=True)
class SizeFact:
    """A relation between sizes that a program depends on: ``polynomial`` is equal to 0, not so, or not less.

    ``origin`` is where the question was.
    """

    polynomial: Polynomial
    relation: Relation
    origin: str = ""

    @property
    def variables(self) -> frozenset[int]:
        """The sizes that it is about, by their numbers."""
        return self.polynomial.variables

    def sides(self) -> tuple[Polynomial, Polynomial]:
        """Return two numbers between which the relation holds."""
        return self.polynomial.sides()

    def holds(self, values: Callable[[int], int]) -> bool:
        """Return whether the fact holds for these sizes."""
        return relates(self.polynomial.value(values), self.relation)

    def text(self, names: Callable[[int], str]) -> str:
        """Return the condition as an expression of Python."""
        polynomial, relation = self.polynomial, self.relation
        left, right = polynomial.sides()
        if not left.terms or (left.constant is not None and right.constant is None):
            left, right = right, left
            return f"{left.text(names)} {'<=' if relation == '>=' else relation} {right.text(names)}"
        return f"{left.text(names)} {relation} {right.text(names)}"


@dataclass(frozen=True)
class FloatFact:
    """A comparison of numbers, one of which is a float, on which a program depends."""

    left: Operand
    relation: str
    right: Operand
    origin: str = ""

    @property
    def variables(self) -> frozenset[int]:
        """The sizes that it is about, by their numbers."""
        return variables_of(self.left) | variables_of(self.right)

    @property
    def fixes_float(self) -> bool:
        """Whether it says what the value of a float among the arguments is."""
        return isinstance(self.left, FloatVariable) and self.relation == "==" and not variables_of(self.right)

    def sides(self) -> tuple[Operand, Operand]:
        """Return the two numbers that are compared."""
        return self.left, self.right

    def holds(self, values: Callable[[int], int]) -> bool:
        """Return whether the fact holds for these sizes."""
        try:
            return compare(self.left, self.relation, self.right, values)
        except (ArithmeticError, ValueError):  # for sizes for which another fact does not hold
            return False

    def text(self, names: Callable[[int], str]) -> str:
        """Return the condition as an expression of Python."""
        return f"{text_of(self.left, names)} {self.relation} {text_of(self.right, names)}"


def implies_float(fact: FloatFact, other: FloatFact) -> bool:
    """Return whether the bound of a float implies a weaker one, or that a number is not reached.

    A bound holds of numbers only, so that nan needs no thought.
    """
    a, b = fact.right, other.right
    if not isinstance(a, int | float) or not isinstance(b, int | float) or fact.relation not in _SIDES:
        return False
    if key_of(fact.left) != key_of(other.left) or fact is other:
        return False
    sign, is_strict = _SIDES[fact.relation]
    if other.relation == "!=":
        return a * sign > b * sign or (a == b and is_strict)
    if other.relation not in _SIDES or _SIDES[other.relation][0] != sign:
        return False
    return a * sign > b * sign or (a == b and is_strict and not _SIDES[other.relation][1])


#: relation → 1 for a lower bound and -1 for an upper one, and whether the bound itself is excluded
_SIDES: Final = {">": (1, True), ">=": (1, False), "<": (-1, True), "<=": (-1, False)}


def relates(value: int, relation: Relation) -> bool:
    """Return whether a number has a relation to 0."""
    return value == 0 if relation == "==" else value != 0 if relation == "!=" else value >= 0


def implies(fact: SizeFact, other: SizeFact) -> bool:
    """Return whether a bound implies a weaker one, or that a number is not reached."""
    if fact.relation != ">=":
        return False
    if other.relation == ">=":
        slack = (other.polynomial - fact.polynomial).constant
        return slack is not None and slack > 0
    if other.relation == "!=":
        for sign in (other.polynomial, -other.polynomial):
            slack = (sign - fact.polynomial).constant
            if slack is not None and slack > 0:
                return True
    return False
