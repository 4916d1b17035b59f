"""Floats that a program computes from sizes of its inputs, as Python computes them.

    x.shape[-1] ** -0.5    →    (i1 ** -0.5)
    1 / math.sqrt(n)       →    (1 / math.sqrt(i0))

An expression keeps the operations of the program in their order, since floats have no other form that is
equal in each bit. It has the value of the program wherever its operations are defined, for which
:func:`requirements` says what must hold.
"""

from __future__ import annotations

import math
import operator
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, TypeAlias

import torch

from thunder.base.integer_operations import value_of_call
from thunder.base.integer_polynomials import Polynomial

__all__ = [
    "FUNCTIONS",
    "NEGATED",
    "OPERATORS",
    "RELATIONS",
    "FloatExpression",
    "FloatVariable",
    "Operand",
    "Requirement",
    "added",
    "compare",
    "compute",
    "finite",
    "key_of",
    "requirements",
    "text_of",
    "variables_of",
]

Operand: TypeAlias = "FloatExpression | Polynomial | float"
#: ``(operand, relation, bound)``, without which an operation is not defined
Requirement: TypeAlias = "tuple[Operand, str, float]"


def added(start: Any, *numbers: Any) -> Any:
    """Return ``sum`` of numbers, which compensates for rounding from CPython 3.12 on."""
    return sum(map(value_of_call, numbers), value_of_call(start))


#: operators of Python → signs
OPERATORS: Final[dict[Callable[..., Any], str]] = {
    operator.add: "+",
    operator.sub: "-",
    operator.mul: "*",
    operator.truediv: "/",
    operator.floordiv: "//",
    operator.mod: "%",
    operator.pow: "**",
}
#: functions of numbers → their names in the text
FUNCTIONS: Final[dict[Callable[..., Any], str]] = {
    float: "float",
    round: "round",
    **{
        function: f"math.{function.__name__}"
        for function in (
            *(math.sqrt, math.log, math.log2, math.log10, math.log1p, math.exp, math.expm1),
            *(math.sin, math.cos, math.tanh, math.atan, math.atan2, math.erf),
            *(math.fabs, math.fmod, math.hypot, math.degrees, math.radians, math.copysign),
        )
    },
}
_TEXTS: Final[dict[Callable[..., Any], str]] = {
    **OPERATORS,
    **FUNCTIONS,
    operator.neg: "-",
    operator.abs: "abs",
    added: "sum",
}

#: functions of numbers that torch knows by expressions
_OF_TORCH: Final[dict[Callable[..., Any], Callable[..., Any]]] = {
    float: torch.sym_float,
    math.sqrt: torch._sym_sqrt,  # type: ignore[attr-defined]
    math.log2: torch._sym_log2,  # type: ignore[attr-defined]
}

#: relation → the function that compares
RELATIONS: Final = {
    "==": operator.eq,
    "!=": operator.ne,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
}
#: relation → the one that holds of numbers where it does not
NEGATED: Final = {"==": "!=", "!=": "==", ">=": "<", "<": ">=", "<=": ">", ">": "<="}

#: the exponents of powers that no size makes too large
_EXPONENT: Final = 8
#: the bases of such powers, and what is less than the logarithm of the largest float
_BASE: Final = 1e18
_LOGARITHM: Final = 700.0
_SURELY_FINITE: Final = 1e300


@dataclass(frozen=True)
class FloatExpression:
    """An operation of Python on numbers, with a float as its result."""

    operation: Callable[..., Any]
    operands: tuple[Operand, ...]

    @cached_property
    def key(self) -> str:
        """A text that equal expressions share."""
        return f"{_TEXTS[self.operation]}({', '.join(map(key_of, self.operands))})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FloatExpression) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)

    @cached_property
    def variables(self) -> frozenset[int]:
        """The variables that occur in it."""
        return frozenset().union(*(x.variables for x in self.operands if not isinstance(x, int | float)))

    @cached_property
    def reads_math(self) -> bool:
        """Whether the text names the module ``math``."""
        if FUNCTIONS.get(self.operation, "").startswith("math."):
            return True
        return any(x.reads_math for x in self.operands if not isinstance(x, int | float))

    @property
    def is_one_word(self) -> bool:
        """Whether its text needs no parentheses as an operand."""
        return self.operation in FUNCTIONS or self.operation is added

    def value(self, values: Callable[[int], Any]) -> Any:
        """Return the value for these values of the variables; raises what Python raises."""
        return compute(self.operation, *(_value(x, values) for x in self.operands))

    def substituted(self, replacements: Mapping[int, Polynomial]) -> FloatExpression:
        """Return the expression in which polynomials replace variables."""
        if self.variables.isdisjoint(replacements):
            return self
        operands = (x if isinstance(x, int | float) else x.substituted(replacements) for x in self.operands)
        return FloatExpression(self.operation, tuple(operands))

    def text(self, names: Callable[[int], str]) -> str:
        """Return the expression of Python, for the names of the variables."""
        function = FUNCTIONS.get(self.operation)
        if function is not None:
            return f"{function}({', '.join(text_of(x, names) for x in self.operands)})"
        if self.operation is operator.abs:
            return f"abs({text_of(self.operands[0], names)})"
        if self.operation is added:
            start, *numbers = (text_of(x, names) for x in self.operands)
            return f"sum(({', '.join(numbers)},), {start})"
        sign = _TEXTS[self.operation]
        first, *rest = (_word(x, names) for x in self.operands)
        if not rest:
            return f"-{first}"
        return f"{first} {sign} {rest[0]}"


class FloatVariable(FloatExpression):
    """A float that comes with the arguments, by its number among the variables."""

    def __init__(self, number: int) -> None:
        super().__init__(float, ())
        object.__setattr__(self, "number", number)

    number: int

    @property
    def key(self) -> str:
        """A text that equal expressions share."""
        return f"float {self.number}"

    @property
    def variables(self) -> frozenset[int]:
        """The variable itself."""
        return frozenset((self.number,))

    def value(self, values: Callable[[int], Any]) -> Any:
        """Return the value for these values of the variables."""
        return values(self.number)

    def substituted(self, replacements: Mapping[int, Polynomial]) -> FloatExpression:
        """Return itself: polynomials replace integers."""
        return self

    def text(self, names: Callable[[int], str]) -> str:
        """Return its name."""
        return names(self.number)


def compute(operation: Callable[..., Any], *values: Any) -> Any:
    """Return the result of an operation; of torch's numbers without values, that of torch's function."""
    if operation in _OF_TORCH and isinstance(values[0], torch.SymInt | torch.SymFloat):
        return _OF_TORCH[operation](*values)
    return operation(*values)


def requirements(operation: Callable[..., Any], operands: tuple[Operand, ...]) -> Iterator[Requirement]:
    """Yield what must hold so that an operation raises nothing and has a real result.

    Raises ValueError for an operation of which this is not known.
    """
    first, *rest = operands
    if operation is math.sqrt:
        yield first, ">=", 0
    elif operation in (math.log, math.log2, math.log10):
        yield first, ">", 0
    elif operation is math.log1p:
        yield first, ">", -1
    elif operation in (math.exp, math.expm1):
        yield first, "<=", _LOGARITHM
    elif operation in (math.sin, math.cos, round):
        yield from finite(first)
    elif operation in (operator.truediv, operator.floordiv, operator.mod, math.fmod):
        yield rest[0], "!=", 0
        if operation is math.fmod:
            yield from finite(first)
    elif operation is operator.pow:
        yield from _of_power(first, rest[0])


def finite(x: Operand) -> Iterator[Requirement]:
    """Yield what must hold so that a number is finite: nothing where sizes of any length make it so."""
    if isinstance(x, FloatExpression) and not _largest(x) <= _SURELY_FINITE:  # nan, of infinity times 0
        yield x, "<=", sys.float_info.max
        yield x, ">=", -sys.float_info.max


def _largest(x: Operand) -> float:
    """Return a bound of the magnitude of a number, for sizes below 2**63; infinity if there is none."""
    if isinstance(x, int | float):
        return abs(float(x))
    if isinstance(x, Polynomial):
        if not x.is_without_quotients:
            return math.inf
        return sum(abs(c) * 2.0 ** (63 * len(m)) for m, c in x.terms.items())
    operands = [_largest(y) for y in x.operands]
    if x.operation in (operator.add, operator.sub, added):
        return sum(operands)
    if x.operation is operator.mul:
        return math.prod(operands)
    if x.operation is operator.truediv and isinstance(x.operands[1], int | float) and x.operands[1]:
        return operands[0] / operands[1]
    if x.operation in (float, round, operator.neg, operator.abs) and operands:
        return operands[0]
    return math.inf


def _of_power(base: Operand, exponent: Operand) -> Iterator[Requirement]:
    if isinstance(exponent, int | float):
        if abs(exponent) > _EXPONENT:
            raise ValueError("a power that may be too large")
        if exponent != int(exponent):
            yield base, ">=", 0
        if exponent < 0:
            yield base, "!=", 0
            if isinstance(base, FloatExpression):
                yield FloatExpression(operator.abs, (base,)), ">=", 1 / _BASE
        if isinstance(base, FloatExpression):
            yield FloatExpression(operator.abs, (base,)), "<=", _BASE
        return
    if not isinstance(base, int | float) or base <= 0:
        raise ValueError("a power whose result may be complex")
    if base != 1:
        largest = _LOGARITHM / abs(math.log(base))
        yield exponent, "<=", largest
        yield exponent, ">=", -largest


def key_of(x: Operand) -> str:
    """Return a text that equal operands share."""
    if isinstance(x, float):
        return x.hex()
    return str(x) if isinstance(x, int) else x.key


def variables_of(x: Operand) -> frozenset[int]:
    """Return the variables that occur in an operand."""
    return frozenset() if isinstance(x, int | float) else x.variables


def compare(left: Operand, relation: str, right: Operand, values: Callable[[int], Any]) -> bool:
    """Return whether a relation holds for these values of the variables."""
    return bool(RELATIONS[relation](_value(left, values), _value(right, values)))


def _value(x: Operand, values: Callable[[int], Any]) -> Any:
    return x if isinstance(x, int | float) else x.value(values)


def text_of(x: Operand, names: Callable[[int], str]) -> str:
    """Return the text of an operand, for the names of the variables."""
    return repr(x) if isinstance(x, int | float) else x.text(names)


def _word(x: Operand, names: Callable[[int], str]) -> str:
    """Return the text of an operand, in parentheses where it needs them."""
    text = text_of(x, names)
    if isinstance(x, int | float):
        return f"({text})" if x < 0 else text
    return text if x.is_one_word else f"({text})"
