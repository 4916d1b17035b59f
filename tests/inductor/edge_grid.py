"""Calls of operators, and values at which compiled kernels may differ: zeros, NaN, limits of dtypes."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.nn import functional as F

__all__ = ["DTYPES", "FLOATS", "KINDS", "difference", "grid", "tensors"]

Case = Callable[..., Any]


def _names(text: str) -> list[str]:
    return text.split()


FLOATS = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool)
DTYPES = FLOATS + INTEGERS
NUMBERS = (2, 0.5, -1, 0, -0.0, 3.7, 1e30, math.nan, math.inf, -math.inf, -7, True, 0.3, 3)

UNARY = _names("""
    abs acos acosh asin asinh atan atanh bitwise_not ceil cos cosh erf erfc erfinv exp exp2 expm1 floor
    isfinite isinf isnan lgamma log log10 log1p log2 logical_not neg reciprocal round rsqrt sgn sigmoid sign
    signbit sin sinh sqrt tan tanh trunc square relu frac nan_to_num deg2rad rad2deg sinc logit isposinf
    isneginf positive fix clone
""")
ACTIVATIONS = _names("""
    silu gelu softplus elu hardtanh leaky_relu relu6 hardswish logsigmoid mish selu softsign hardshrink
    softshrink tanhshrink hardsigmoid celu
""")
BINARY = _names("""
    add sub mul div pow maximum minimum atan2 eq ne lt le gt ge logical_and logical_or logical_xor
    bitwise_and bitwise_or bitwise_xor hypot xlogy fmax fmin rsub logaddexp copysign nextafter heaviside
    float_power ldexp bitwise_left_shift bitwise_right_shift
""")
#: what raises for integers divided by 0, and is undefined for the smallest integer divided by -1
DIVISIONS = ("floor_divide", "remainder", "fmod")
REDUCTIONS = _names("sum mean amax amin prod var std any all argmax argmin var_mean logsumexp softmax")


def grid(dtype: torch.dtype) -> torch.Tensor:
    """Return the values of a dtype: `(n,)`."""
    if dtype is torch.bool:
        return torch.tensor([True, False, True, True])
    if not dtype.is_floating_point:
        low, high = torch.iinfo(dtype).min, torch.iinfo(dtype).max
        values = [0, 1, 2, 3, 5, 7, 100, high, high - 1, low, low + 1]
        return torch.tensor([*values, *([-1, -2, -3, -5, -7, -100] if low else [128, 200])], dtype=dtype)
    limits = torch.finfo(dtype)
    subnormal = limits.smallest_normal / 4
    positive = [0.0, 1, 0.5, 1.5, 2.5, 3, 0.3, 0.7, 7, 100, 1e4, 127.5, 255, 256, 20, 90, math.pi, 1e-5]
    positive += [math.inf, math.nan, limits.max, limits.smallest_normal, subnormal]
    return torch.tensor([*positive, *(-x for x in positive)], dtype=torch.float64).to(dtype)


def _of_one(dtype: torch.dtype) -> dict[str, Case]:
    cases: dict[str, Case] = {name: getattr(torch, name) for name in UNARY}
    cases |= {f"F.{name}": getattr(F, name) for name in ACTIVATIONS}
    cases |= {f"to {other}": lambda x, other=other: x.to(other) for other in DTYPES}
    return cases | {
        "gelu tanh": lambda x: F.gelu(x, approximate="tanh"),
        "clamp": lambda x: x.clamp(-1, 2),
        "clamp min": lambda x: x.clamp(min=0),
        "clamp max": lambda x: x.clamp(max=0),
        "round 1": lambda x: torch.round(x, decimals=1),
        "threshold": lambda x: F.threshold(x, 0.1, 2.0),
        "where": lambda x: torch.where(x > 0, x, 0),
        "masked_fill": lambda x: x.masked_fill(x > 1, 1),
        "nan_to_num 1": lambda x: torch.nan_to_num(x, 1.0, 2.0, 3.0),
        "addcmul": lambda x: torch.addcmul(x, x, x, value=2),
        "addcdiv": lambda x: torch.addcdiv(x, x, x, value=2),
    }


def _of_two(dtype: torch.dtype) -> dict[str, Case]:
    names = [*BINARY, *DIVISIONS] if dtype.is_floating_point else BINARY
    cases: dict[str, Case] = {name: getattr(torch, name) for name in names}
    return cases | {
        "lerp": lambda x, y: torch.lerp(x, y, 0.25),
        "lerp tensor": lambda x, y: torch.lerp(x, y, y),
        "where": lambda x, y: torch.where(x > y, x, y),
        "isclose": torch.isclose,
        "smooth": lambda x, y: F.smooth_l1_loss(x, y, reduction="none"),
    }


def _of_a_number(dtype: torch.dtype) -> dict[str, Case]:
    def call(name: str, number: float) -> Case:
        return lambda x: getattr(torch, name)(x, number)

    cases = {
        f"{name} {number!r}": call(name, number)
        for number in NUMBERS
        for name in (*BINARY, *DIVISIONS)
        if dtype.is_floating_point or name not in (*DIVISIONS, "div") or number not in (0, 1, -1)
    }
    for number in NUMBERS:
        cases[f"{number!r} ** x"] = lambda x, number=number: number**x
        cases[f"where {number!r}"] = lambda x, number=number: torch.where(x == x, x, number)
        cases[f"clamp {number!r}"] = lambda x, number=number: torch.clamp(x, min=number)
        if dtype.is_floating_point:
            cases[f"rmod {number!r}"] = lambda x, number=number: number % x
            cases[f"{number!r} // x"] = lambda x, number=number: number // x
    return cases


def _divisions(dtype: torch.dtype) -> dict[str, Case]:
    return {
        **{name: getattr(torch, name) for name in (*DIVISIONS, "div", "pow")},
        "floor": lambda x, y: torch.div(x, y, rounding_mode="floor"),
        "trunc": lambda x, y: torch.div(x, y, rounding_mode="trunc"),
    }


def _reductions(dtype: torch.dtype) -> dict[str, Case]:
    def call(name: str, dim: int) -> Case:
        return lambda x: getattr(torch, name)(x, dim=dim)

    return {f"{name} {dim}": call(name, dim) for name in REDUCTIONS for dim in (0, -1)}


#: kind → the calls for tensors of a dtype
KINDS: Mapping[str, Callable[[torch.dtype], dict[str, Case]]] = {
    "of one": _of_one,
    "of two": _of_two,
    "of a number": _of_a_number,
    "divisions": _divisions,
    "reductions": _reductions,
}


def tensors(kind: str, dtype: torch.dtype) -> list[torch.Tensor]:
    """Return the arguments of calls of a kind: more elements than a vector has, and a rest."""
    values = grid(dtype)
    if kind in ("of one", "of a number"):
        return [values.repeat(3)]
    if kind == "reductions":
        return [_rows(values)]
    x, y = (t.clone() for t in torch.meshgrid(values, values, indexing="ij"))
    if kind == "divisions" and not dtype.is_floating_point:
        y[(y == 0) | (y == -1)] = 1 if dtype is torch.bool else 3
    return [x, y]


def _rows(values: torch.Tensor) -> torch.Tensor:
    """Return rows with few special values; sums of large ones would depend on their order."""
    if not values.is_floating_point():
        return values.repeat(24)[: 24 * 20].view(24, 20)
    rows = torch.linspace(-3, 3, 24 * 20).view(24, 20).to(values.dtype)
    for i, special in enumerate((math.nan, math.inf, -math.inf, 0.0, -0.0)):
        rows[i, i] = rows[2 * i + 5, 3 * i + 1] = special
    return rows


def difference(result: torch.Tensor, expected: torch.Tensor) -> str | None:
    """Return the kind of a difference: of class (NaN, infinity, sign), of integers, or of values."""
    if result.dtype != expected.dtype or result.shape != expected.shape:
        return "dtype or shape"
    if not result.dtype.is_floating_point:
        return None if torch.equal(result, expected) else "integer"
    if not torch.equal(result.isnan(), expected.isnan()):
        return "nan"
    if not torch.equal(result.isinf(), expected.isinf()):
        return "infinity"
    if ((result.signbit() != expected.signbit()) & ~expected.isnan()).any():
        return "sign"
    try:
        torch.testing.assert_close(result, expected, equal_nan=True)
    except AssertionError:
        return "value"
    return None
