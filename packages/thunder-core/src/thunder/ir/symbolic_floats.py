"""Floats that sizes of inputs determine, as the numbers that a program computes with.

Note [Floats of sizes]
An operation of Python on a size whose result is a float is an expression of the trace, printed where it is
used and computed by Python in each call, so that it is exact:

    scale = q.shape[-1] ** -0.5    →    t1 = mul(t0, (i3 ** -0.5))

What an operation needs (a root of a number that is not negative, a divisor that is not 0) and each comparison
is a fact. Rounded to an integer, a float that is a quotient of integers without an error is one of integers,
else the rounding is an atom of integer expressions. Anything else fixes the sizes.
"""

from __future__ import annotations

import functools
import math
import operator
import sys
from collections.abc import Callable
from typing import Any

from thunder.base.float_expressions import (
    OPERATORS,
    FloatExpression,
    Operand,
    added,
    finite,
    requirements,
)
from thunder.base.integer_operations import result_of
from thunder.base.integer_polynomials import Polynomial
from thunder.ir.exact_quotients import BOUND, quotient_of
from thunder.ir.number_proxies import SWAPPED, FloatProxy, computed, overrides, pytype, quotient_and_rest
from thunder.ir.size_facts import SizeFacts
from thunder.ir.symbolic_numbers import SymbolicNumber

__all__ = [
    "SymbolicFloat",
    "compared",
    "divided",
    "float_of",
    "logarithm",
    "of_function",
    "square_root",
    "total",
]

_LARGEST = sys.float_info.max
_SIGNS = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}


class SymbolicFloat(SymbolicNumber, FloatProxy):
    """A float that sizes of inputs determine, see Note [Floats of sizes]."""

    formula: FloatExpression

    def __init__(self, facts: SizeFacts, expression: FloatExpression, variable: int | None = None) -> None:
        super().__init__(facts, expression, float, variable)

    @property
    def stand_in(self) -> float:
        """The number in the call that is traced: metadata depend on the type alone."""
        return float(self.hint)

    def __float__(self) -> float:
        return float(self.value)

    def __index__(self) -> int:
        raise TypeError("'float' object cannot be interpreted as an integer")

    def __int__(self) -> int:
        return int(self.__trunc__())

    def __bool__(self) -> bool:
        return bool(compared(self.facts, "ne", self, 0.0))

    __hash__ = SymbolicNumber.__hash__

    def __pos__(self) -> SymbolicFloat:
        return self

    def __neg__(self) -> Any:
        return float_of(self.facts, operator.neg, self)

    def __abs__(self) -> Any:
        return float_of(self.facts, operator.abs, self)

    def __floor__(self) -> Any:
        return self._rounded("floor")

    def __ceil__(self) -> Any:
        return self._rounded("ceil")

    def __trunc__(self) -> Any:
        if self.exact_quotient() is None:
            return self._rounded("trunc")
        return self.__floor__() if compared(self.facts, "ge", self, 0) else self.__ceil__()

    def __round__(self, digits: int | None = None) -> Any:
        return self._rounded("round") if digits is None else float_of(self.facts, round, self, digits)

    def is_integer(self) -> bool:
        """Return whether it has no fraction, which is a fact."""
        return bool(self == self.__floor__())

    def _rounded(self, operation: str) -> Any:
        """Return the integer of an operation of ``INTEGER_OPERATIONS``, or raise Python's error."""
        quotient = self.exact_quotient() if operation in ("floor", "ceil") else None
        if quotient is not None:
            p, q = quotient
            return SymbolicNumber.integer(
                self.facts, p.divided(q, "//") if operation == "floor" else -(-p).divided(q, "//")
            )
        if not all(_holds(self.facts, *bound) for bound in finite(self.formula)):
            return result_of(operation, (self.value,))
        return SymbolicNumber.integer(self.facts, Polynomial.applied(operation, self.formula))

    def exact_quotient(self) -> tuple[Polynomial, Polynomial] | None:
        """Return the integers of which it is the quotient without an error; else None.

        It is one for sizes with less than 40 bits, which is a fact from then on.
        """
        found = quotient_of(self.formula)
        if found is None:
            return None
        for variable in sorted(found[0].variables | found[1].variables):
            size = Polynomial.variable(variable)
            for side in (Polynomial.of(BOUND) - size, size + Polynomial.of(BOUND)):
                if not self.facts.ask(side, ">="):
                    return None
        return found if self.facts.ask(found[1] - Polynomial.of(1), ">=") else None


def float_of(facts: SizeFacts, operation: Callable[..., Any], *operands: Any) -> Any:
    """Return the float that an operation of Python computes from sizes and numbers, or raise its error."""
    formulas = tuple(map(_formula, operands))
    values = [x if isinstance(x, int | float) else facts.hint(x) for x in formulas]
    try:
        computed = operation(*values)
    except (ArithmeticError, ValueError):  # what Python raises for this call
        _fix(facts, formulas)
        raise
    if type(computed) is not float or not _is_defined(facts, operation, formulas):
        _fix(facts, formulas)
        return computed
    return SymbolicFloat(facts, FloatExpression(operation, formulas))


def _formula(x: Any) -> Operand:
    """Return the expression of a number; of a constant, Python's number."""
    formula = x.formula if isinstance(x, SymbolicNumber) else x
    if isinstance(formula, Polynomial) and formula.constant is not None:
        return formula.constant
    return formula


def _fix(facts: SizeFacts, operands: tuple[Operand, ...]) -> None:
    for x in operands:
        if not isinstance(x, int | float):
            facts.fix(x)


def _is_defined(facts: SizeFacts, operation: Callable[..., Any], operands: tuple[Operand, ...]) -> bool:
    """Return whether the facts from now on say that an operation raises nothing and gives a finite float."""
    if any(isinstance(x, float) and not math.isfinite(x) for x in operands):
        return False
    try:
        needed = list(requirements(operation, operands))
    except ValueError:
        return False
    return all(_holds(facts, *each) for each in (*needed, *_finite(facts, operands)))


def _finite(facts: SizeFacts, operands: tuple[Operand, ...]) -> list[tuple[Operand, str, float]]:
    """Return the bounds of integers that come as arguments: sizes are never too large for a float."""
    return [
        (Polynomial.variable(v), *bound)
        for x in operands
        if isinstance(x, Polynomial)
        for v in sorted(x.variables)
        if not facts.is_size(v)
        for bound in (("<=", BOUND), (">=", -BOUND))
    ]


def _holds(facts: SizeFacts, operand: Operand, relation: str, bound: float) -> bool:
    """Ask whether an operand is in a relation to a number."""
    if isinstance(operand, Polynomial):
        return _integer_in_relation(facts, operand, relation, bound)
    return facts.compare(operand, relation, bound)


def _integer_in_relation(facts: SizeFacts, p: Polynomial, relation: str, number: float) -> bool:
    """Ask for the relation of an integer to a finite number, as a question about integers."""
    low, high = math.floor(number), math.ceil(number)
    if relation in ("==", "!="):
        return relation == "!=" if low != high else facts.ask(p - Polynomial.of(low), relation)  # type: ignore[arg-type]
    if relation == ">=":
        return facts.ask(p - Polynomial.of(high), ">=")
    if relation == ">":
        return facts.ask(p - Polynomial.of(low + 1), ">=")
    if relation == "<=":
        return facts.ask(Polynomial.of(low) - p, ">=")
    return facts.ask(Polynomial.of(high - 1) - p, ">=")


def compared(facts: SizeFacts, operation: str, left: Any, right: Any) -> bool:
    """Return the answer to ``left < right``, of which one is a float: a fact."""
    a, b = _formula(left), _formula(right)
    if isinstance(a, int | float):
        return compared(facts, SWAPPED.get(operation, operation), right, left)
    if isinstance(b, int | float):
        if not math.isfinite(b):
            return _compared_with_infinity(facts, operation, a, b)
        if isinstance(left, SymbolicFloat):
            quotient = left.exact_quotient() if quotient_of(left.formula, dyadic=True) else None
            if quotient is not None:
                p, q = quotient
                numerator, denominator = b.as_integer_ratio()
                difference = p * Polynomial.of(denominator) - q * Polynomial.of(numerator)
                return _integer_in_relation(facts, difference, _SIGNS[operation], 0)
        return _holds(facts, a, _SIGNS[operation], b)
    return facts.compare(a, _SIGNS[operation], b)


def _compared_with_infinity(
    facts: SizeFacts, operation: str, a: Polynomial | FloatExpression, b: float
) -> bool:
    """Return the answer to ``a < b``, where ``b`` is infinite or nan: a fact with the largest float.

    Integers are finite, and floats of sizes may become infinite.
    """
    if isinstance(a, Polynomial) or math.isnan(b):
        return bool(getattr(operator, operation)(0, b))
    value = facts.hint(a)
    if math.isnan(value):
        return bool(getattr(operator, operation)(facts.fix(a), b))
    is_finite = facts.compare(a, "<=", _LARGEST) if b > 0 else facts.compare(a, ">=", -_LARGEST)
    return bool(getattr(operator, operation)(0.0 if is_finite else b, b))


def of_function(function: Callable[..., Any], *numbers: Any) -> Any:
    """Return the result of a function of ``FUNCTIONS`` for numbers of which sizes determine one."""
    if function is float and isinstance(numbers[0], SymbolicFloat):
        return numbers[0]
    return float_of(next(x.facts for x in numbers if isinstance(x, SymbolicNumber)), function, *numbers)


def total(operands: tuple[Any, ...]) -> Any:
    """Return Python's ``sum`` of numbers, the first of which is its start.

    From CPython 3.12 on it compensates for rounding as soon as one is a float: then it is one operation.
    """
    if all(issubclass(pytype(x), int) for x in operands):
        return functools.reduce(operator.add, operands)
    if all(isinstance(x, SymbolicNumber | int | float) for x in operands):
        return of_function(added, *operands)
    return computed("sum", *operands)


def square_root(number: Any) -> Any:
    """Return ``math.sqrt`` of a number, or of one that sizes determine."""
    return of_function(math.sqrt, number) if isinstance(number, SymbolicNumber) else math.sqrt(number)


def logarithm(number: Any) -> Any:
    """Return ``math.log`` of a number, or of one that sizes and numbers of inputs determine."""
    return of_function(math.log, number) if isinstance(number, SymbolicNumber) else math.log(number)


def _is_number(x: Any) -> bool:
    return type(x) in (int, bool, float) or isinstance(x, SymbolicNumber)


def divided(a: Any, b: Any) -> Any:
    """Return ``divmod`` of two numbers of which sizes determine one; a tensor has none."""
    return (a // b, a % b) if _is_number(a) and _is_number(b) else quotient_and_rest(a, b)


def _method(operation: Callable[..., Any], reflected: bool) -> Callable[..., Any]:
    """Return the method of an operation of arithmetic."""
    name = operation.__name__
    parent = getattr(FloatProxy, f"__{'r' if reflected else ''}{name}__")
    swapped = f"__{'' if reflected else 'r'}{name}__"

    def compute(self: SymbolicFloat, other: Any) -> Any:
        if overrides(other, self, swapped):
            return NotImplemented
        if not _is_number(other):
            if isinstance(other, int | float | complex):
                return operation(other, self.value) if reflected else operation(self.value, other)
            return parent(self, other)
        other = int(other) if type(other) is bool else other
        return float_of(self.facts, operation, *((other, self) if reflected else (self, other)))

    return compute


def _comparison(operation: str) -> Callable[..., Any]:
    """Return the method of a comparison with a number."""
    parent = getattr(FloatProxy, f"__{operation}__")

    def compare(self: SymbolicFloat, other: Any) -> Any:
        if overrides(other, self, f"__{SWAPPED.get(operation, operation)}__"):
            return NotImplemented
        return compared(self.facts, operation, self, other) if _is_number(other) else parent(self, other)

    return compare


for _operation in OPERATORS:
    setattr(SymbolicFloat, f"__{_operation.__name__}__", _method(_operation, False))
    setattr(SymbolicFloat, f"__r{_operation.__name__}__", _method(_operation, True))
setattr(SymbolicFloat, "__divmod__", divided)  # noqa: B010
setattr(SymbolicFloat, "__rdivmod__", lambda self, other: divided(other, self))  # noqa: B010
for _name in _SIGNS:
    setattr(SymbolicFloat, f"__{_name}__", _comparison(_name))
