"""Expressions of sizes in a text, read as the formulas that they were written from."""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable
from typing import Any, Final

from thunder.base.float_expressions import FUNCTIONS, OPERATORS, FloatExpression, FloatVariable, added
from thunder.base.integer_operations import INTEGER_OPERATIONS
from thunder.base.integer_polynomials import Polynomial
from thunder.ir.size_facts import SizeFacts
from thunder.ir.symbolic_sizes import SymbolicFloat, expression

__all__ = ["number_formula", "size_formula", "size_of", "sizes_by_name"]

_BINARY: Final[dict[type, str]] = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.Div: "/",
    ast.FloorDiv: "//",
    ast.Mod: "%",
    ast.Pow: "**",
    ast.BitAnd: "&",
    ast.BitOr: "|",
    ast.BitXor: "^",
    ast.LShift: "<<",
    ast.RShift: ">>",
}
_OF_FLOATS: Final = {sign: operation for operation, sign in OPERATORS.items()}
_FLOAT_FUNCTIONS: Final[dict[str, Callable[..., Any]]] = {
    **{text: function for function, text in FUNCTIONS.items()},
    "abs": operator.abs,
}
_INTEGER_FUNCTIONS: Final = {
    row.text.partition("(")[0]: name
    for name, row in INTEGER_OPERATIONS.items()
    if row.text.startswith("math.")
}
_METHODS: Final = ("bit_length", "bit_count")

#: a number of a formula; literals stay numbers of Python
_Number = Polynomial | FloatExpression | int | float


def sizes_by_name(facts: SizeFacts) -> dict[str, Any]:
    """Return the sizes and numbers of a program that a text can name."""
    return dict(zip(facts.names, facts.symbols, strict=False))


def size_of(node: ast.expr, facts: SizeFacts) -> Any:
    """Return the number that an expression is; raise ValueError for one that is no expression of sizes."""
    formula = _formula(node, facts)
    if isinstance(formula, Polynomial):
        return expression(facts, formula)
    if isinstance(formula, FloatVariable):
        return facts.symbols[formula.number]
    return SymbolicFloat(facts, formula) if isinstance(formula, FloatExpression) else formula


def size_formula(text: str, facts: SizeFacts) -> Polynomial:
    """Return the polynomial that a text is; raise ValueError for one that is no expression of integers."""
    formula = number_formula(text, facts)
    if isinstance(formula, float | FloatExpression):
        raise ValueError(text)
    return _polynomial(formula)


def number_formula(text: str, facts: SizeFacts) -> Polynomial | FloatExpression | float:
    """Return the formula of a number that a text is; raise ValueError for another text."""
    try:
        parsed = ast.parse(text, mode="eval")
    except SyntaxError as error:
        raise ValueError(text) from error
    return _formula(parsed.body, facts)


def _formula(node: ast.expr, facts: SizeFacts) -> _Number:
    match node:
        case ast.Constant(value=int() | float() as number) if type(number) is not bool:
            return number
        case ast.Name(id=name) if name in facts.names:
            return facts.leaf(facts.names.index(name))
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return _negative(_formula(operand, facts))
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
            return _combined(_BINARY[type(op)], _formula(left, facts), _formula(right, facts))
        case ast.Call(func=ast.Attribute(value=value, attr=name), args=[]) if name in _METHODS:
            return _applied(name, _formula(value, facts))
        case ast.Call(func=ast.Name("sum"), args=[ast.Tuple(elts=numbers), start], keywords=[]):
            return FloatExpression(added, tuple(_formula(x, facts) for x in (start, *numbers)))
        case ast.Call(func=function, args=args, keywords=[]):
            return _called(ast.unparse(function), [_formula(a, facts) for a in args])
    raise ValueError(ast.unparse(node))


def _negative(x: _Number) -> _Number:
    return FloatExpression(operator.neg, (x,)) if isinstance(x, FloatExpression) else -x


def _combined(sign: str, a: _Number, b: _Number) -> _Number:
    if _is_float(a) or _is_float(b) or sign == "/" or (sign == "**" and type(b) is int and b < 0):
        if sign not in _OF_FLOATS:
            raise ValueError(sign)
        return FloatExpression(_OF_FLOATS[sign], (a, b))
    p, q = _polynomial(a), _polynomial(b)
    match sign:
        case "+":
            return p + q
        case "-":
            return p - q
        case "*":
            return p * q
        case "//" | "%":
            if q.constant == 0:
                raise ValueError("division by 0")
            return p.divided(q, "//" if sign == "//" else "%")
        case "**" if type(b) is int:
            return math.prod([p] * b, start=Polynomial.of(1)) if b <= _LARGEST_POWER else _refuse(sign)
    return _applied(sign, p, q)


#: of a sum: more terms than a program writes
_LARGEST_POWER: Final = 16


def _refuse(text: str) -> Any:
    raise ValueError(text)


def _called(function: str, args: list[_Number]) -> _Number:
    if function == "round" and len(args) == 1:
        return _applied("round", *args)
    if function in _INTEGER_FUNCTIONS:
        return _applied(_INTEGER_FUNCTIONS[function], *args)
    if function in _FLOAT_FUNCTIONS and args:
        return FloatExpression(_FLOAT_FUNCTIONS[function], tuple(args))
    raise ValueError(function)


def _applied(operation: str, *operands: _Number) -> Polynomial:
    texts = INTEGER_OPERATIONS[operation].text
    if texts.count("{}") != len(operands) or any(type(x) is float for x in operands):
        raise ValueError(operation)
    return Polynomial.applied(
        operation, *(x if isinstance(x, FloatExpression) else _polynomial(x) for x in operands)
    )


def _is_float(x: _Number) -> bool:
    return isinstance(x, float | FloatExpression)


def _polynomial(x: Any) -> Polynomial:
    return x if isinstance(x, Polynomial) else Polynomial.of(x)
