"""Elementwise operations as Triton expressions, by the kind of their arguments.

Floating-point functions are CUDA's (libdevice), which eager's kernels on CUDA call too. Division and square
root are rounded to nearest, as eager's are. bfloat16 and float16 are held in float32.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final, Literal

import torch

from .nodes import Number

__all__ = [
    "cast",
    "expression",
    "filled",
    "has_operation",
    "held",
    "kind_of",
    "literal",
    "type_name",
    "words",
]

Kind = Literal["float", "int", "bool"]

_NAMES: Final[Mapping[torch.dtype, str]] = {
    torch.float32: "tl.float32",
    torch.float64: "tl.float64",
    torch.bfloat16: "tl.bfloat16",
    torch.float16: "tl.float16",
    torch.int64: "tl.int64",
    torch.int32: "tl.int32",
    torch.int16: "tl.int16",
    torch.int8: "tl.int8",
    torch.uint8: "tl.uint8",
    torch.bool: "tl.int1",
}
_LOW: Final = (torch.bfloat16, torch.float16)


def words(text: str) -> tuple[str, ...]:
    """Return the words of a text."""
    return tuple(text.split())


#: functions of one argument
_LIBRARY: Final = words(
    "acos acosh asin asinh atan atanh ceil cos cosh erf erfc erfinv exp exp2 expm1 floor lgamma log log10 "
    "log1p log2 rsqrt sin sinh tan tanh trunc"
)
_COMPARISONS = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
_PROPAGATE = "propagate_nan=tl.PropagateNan.ALL"

#: operation → expression of floating-point arguments
FLOATS: Final[Mapping[str, str]] = {
    **{name: f"libdevice.{name}({{0}})" for name in _LIBRARY},
    **{name: f"({{0}} {sign} {{1}})" for name, sign in _COMPARISONS.items()},
    **{name: f"libdevice.{name}({{0}}, {{1}})" for name in ("atan2", "copysign", "fmod", "hypot", "pow")},
    "abs": "tl.abs({0})",
    "add": "({0} + {1})",
    "div": "tl.div_rn({0}, {1})",
    "isfinite": '(tl.abs({0}) < float("inf"))',
    "isinf": '(tl.abs({0}) == float("inf"))',
    "isnan": "({0} != {0})",
    "logical_not": "({0} == 0.0)",
    "maximum": f"tl.maximum({{0}}, {{1}}, {_PROPAGATE})",
    "minimum": f"tl.minimum({{0}}, {{1}}, {_PROPAGATE})",
    "mul": "({0} * {1})",
    # Triton's `-x` is `0 - x`, which loses the sign of zeros
    "neg": "({0} * -1.0)",
    "reciprocal": "tl.div_rn(1.0, {0})",
    "round": "libdevice.rint({0})",
    "sgn": "tl.where({0} > 0, 1.0, tl.where({0} < 0, -1.0, 0.0))",
    "sigmoid": "tl.div_rn(1.0, 1.0 + libdevice.exp({0} * -1.0))",
    "sign": "tl.where({0} > 0, 1.0, tl.where({0} < 0, -1.0, 0.0))",
    "signbit": "({0}.to(tl.int32, bitcast=True) < 0)",
    "sqrt": "tl.sqrt_rn({0})",
    "sub": "({0} - {1})",
    "where": "tl.where({0}, {1}, {2})",
}

#: operation → expression of float64 arguments, where it differs
_DOUBLES: Final[Mapping[str, str]] = {
    "div": "({0} / {1})",
    "reciprocal": "(1.0 / {0})",
    "sigmoid": "(1.0 / (1.0 + libdevice.exp({0} * -1.0)))",
    "signbit": "({0}.to(tl.int64, bitcast=True) < 0)",
    "sqrt": "tl.sqrt({0})",
}

#: operation → expression of integer arguments
INTEGERS: Final[Mapping[str, str]] = {
    **{name: f"({{0}} {sign} {{1}})" for name, sign in _COMPARISONS.items()},
    **dict.fromkeys(("ceil", "floor", "trunc"), "{0}"),
    "abs": "tl.where({0} < 0, 0 - {0}, {0})",
    "add": "({0} + {1})",
    "bitwise_and": "({0} & {1})",
    "bitwise_not": "({0} ^ -1)",
    "bitwise_or": "({0} | {1})",
    "bitwise_xor": "({0} ^ {1})",
    "isfinite": "({0} == {0})",
    "isinf": "({0} != {0})",
    "isnan": "({0} != {0})",
    "logical_not": "({0} == 0)",
    "maximum": "tl.maximum({0}, {1})",
    "minimum": "tl.minimum({0}, {1})",
    "mul": "({0} * {1})",
    "neg": "(0 - {0})",
    "sgn": "(({0} > 0).to(tl.int32) - ({0} < 0).to(tl.int32))",
    "sign": "(({0} > 0).to(tl.int32) - ({0} < 0).to(tl.int32))",
    "signbit": "({0} < 0)",
    "sub": "({0} - {1})",
    "where": "tl.where({0}, {1}, {2})",
}

#: operation → expression of bools
BOOLS: Final[Mapping[str, str]] = {
    **{
        name: f"({{0}}.to(tl.int32) {sign} {{1}}.to(tl.int32))"
        for name, sign in _COMPARISONS.items()
        if name not in ("eq", "ne")
    },
    "add": "({0} | {1})",
    "bitwise_and": "({0} & {1})",
    "bitwise_not": "({0} == 0)",
    "bitwise_or": "({0} | {1})",
    "bitwise_xor": "({0} ^ {1})",
    "eq": "({0} == {1})",
    "logical_not": "({0} == 0)",
    "maximum": "({0} | {1})",
    "minimum": "({0} & {1})",
    "mul": "({0} & {1})",
    "ne": "({0} != {1})",
    "where": "tl.where({0}, {1}, {2})",
}

#: dtype → -0.0, made of its bits: Triton's numbers that equal 0 are 0.0
_NEGATIVE_ZEROS: Final[Mapping[torch.dtype, str]] = {
    torch.float32: f"tl.full([], {-(2**31)}, tl.int32).to(tl.float32, bitcast=True)",
    torch.float64: f"tl.full([], {-(2**63)}, tl.int64).to(tl.float64, bitcast=True)",
}

_TABLES: Final[Mapping[Kind, Mapping[str, str]]] = {"float": FLOATS, "int": INTEGERS, "bool": BOOLS}


def type_name(dtype: torch.dtype) -> str:
    """Return Triton's name of a dtype, `tl.bfloat16`."""
    return _NAMES[dtype]


def held(dtype: torch.dtype) -> torch.dtype:
    """Return the dtype in which a kernel holds values of a dtype."""
    return torch.float32 if dtype in _LOW else dtype


def kind_of(dtype: torch.dtype) -> Kind:
    """Return which table has the operations of a dtype."""
    return "float" if dtype.is_floating_point else "bool" if dtype is torch.bool else "int"


def has_operation(operation: str, dtype: torch.dtype) -> bool:
    """Return whether an operation on arguments of this dtype has an expression."""
    return operation in _TABLES[kind_of(dtype)]


def expression(operation: str, dtype: torch.dtype, result: torch.dtype, arguments: list[str]) -> str:
    """Return the expression of an operation on arguments of a dtype, whose result is held in another."""
    table = _TABLES[kind_of(dtype)]
    if operation == "bitwise_not" and dtype is torch.uint8:
        return f"(255 - {arguments[0]}).to(tl.uint8)"
    template = _DOUBLES.get(operation, "") if dtype is torch.float64 else ""
    text = (template or table[operation]).format(*arguments)
    # arithmetic of small integers may be in int32
    narrow = kind_of(dtype) == "int" and kind_of(result) == "int"
    return f"{text}.to({type_name(result)})" if narrow else text


def literal(value: Number, dtype: torch.dtype) -> str:
    """Return a number as an argument beside values that are held in a dtype."""
    dtype = held(dtype)
    if dtype.is_floating_point and value == 0 and math.copysign(1.0, value) < 0:
        return _NEGATIVE_ZEROS[dtype]
    if dtype is torch.float32:
        return _float_text(float(value))
    if dtype is torch.float64:
        return f"tl.full([], {_float_text(float(value))}, tl.float64)"
    if dtype is torch.bool:
        return f"tl.full([], {int(bool(value))}, tl.int1)"
    return f"tl.full([], {int(value)}, {type_name(dtype)})"


def filled(value: Number, dtype: torch.dtype) -> str:
    """Return a number as a value that is held for a dtype."""
    dtype = held(dtype)
    text = literal(value, dtype)
    return text if text.startswith("tl.full(") else f"tl.full([], {text}, {type_name(dtype)})"


def _float_text(value: float) -> str:
    if math.isfinite(value):
        return repr(value)
    return f'float("{value}")'


def cast(value: str, source: torch.dtype, target: torch.dtype, *, interpreted: bool) -> str:
    """Return a value that is held for one dtype as it is held for another, rounded to the other.

    Triton's interpreter truncates where it converts to bfloat16, so a function of the package rounds there.
    """
    if target is torch.bool:
        return value if source is torch.bool else f"({value} != 0)"
    if target in _LOW:
        single = value if held(source) is torch.float32 else f"{value}.to(tl.float32)"
        if source is torch.bool:
            return single
        if interpreted and target is torch.bfloat16:
            return f"rounded_to_bfloat16({single})"
        return f"{single}.to({type_name(target)}).to(tl.float32)"
    return value if held(source) is target else f"{value}.to({type_name(target)})"
