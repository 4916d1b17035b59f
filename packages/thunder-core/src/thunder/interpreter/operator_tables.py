"""Binary, unary and comparison operators: their functions, symbols and special methods."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, Final, NamedTuple


class BinaryOperator(NamedTuple):
    """A row of the table of binary operators."""

    native: Callable[[Any, Any], Any]
    symbol: str
    method: str
    reflected: str
    inplace: str | None = None


def _binary(symbol: str, name: str) -> BinaryOperator:
    native = getattr(operator, f"__{name}__")
    return BinaryOperator(native, symbol, f"__{name}__", f"__r{name}__")


def _inplace(row: BinaryOperator) -> BinaryOperator:
    name = "__i" + row.method[2:]
    return row._replace(native=getattr(operator, name), symbol=row.symbol + "=", inplace=name)


_ARITHMETIC: Final = [
    _binary(symbol, name)
    for symbol, name in [
        ("+", "add"),
        ("&", "and"),
        ("//", "floordiv"),
        ("<<", "lshift"),
        ("@", "matmul"),
        ("*", "mul"),
        ("%", "mod"),
        ("|", "or"),
        ("**", "pow"),
        (">>", "rshift"),
        ("-", "sub"),
        ("/", "truediv"),
        ("^", "xor"),
    ]
]

BINARY_OPERATORS: Final = {row.symbol: row for row in [*_ARITHMETIC, *map(_inplace, _ARITHMETIC)]}
"""Rows by symbol, in-place ones under ``"+="`` and so on."""

DIVMOD: Final = BinaryOperator(divmod, "divmod()", "__divmod__", "__rdivmod__")


class ComparisonOperator(NamedTuple):
    """A row of the table of rich comparisons."""

    native: Callable[[Any, Any], Any]
    symbol: str
    method: str
    swapped: str


COMPARISON_OPERATORS: Final = {
    row.symbol: row
    for row in [
        ComparisonOperator(operator.lt, "<", "__lt__", "__gt__"),
        ComparisonOperator(operator.le, "<=", "__le__", "__ge__"),
        ComparisonOperator(operator.eq, "==", "__eq__", "__eq__"),
        ComparisonOperator(operator.ne, "!=", "__ne__", "__ne__"),
        ComparisonOperator(operator.gt, ">", "__gt__", "__lt__"),
        ComparisonOperator(operator.ge, ">=", "__ge__", "__le__"),
    ]
}
"""Rows by symbol."""


class UnaryOperator(NamedTuple):
    """A row of the table of unary operators."""

    native: Callable[[Any], Any]
    method: str


UNARY_NEGATIVE: Final = UnaryOperator(operator.neg, "__neg__")
UNARY_POSITIVE: Final = UnaryOperator(operator.pos, "__pos__")
UNARY_INVERT: Final = UnaryOperator(operator.invert, "__invert__")
ABSOLUTE: Final = UnaryOperator(abs, "__abs__")
