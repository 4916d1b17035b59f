"""Decompositions that have eager's results at infinities, zeros and large numbers.

TorchInductor writes `remainder(x, y)` as `x - floor(x / y) * y`, which is NaN where `y` is infinite, and
`expm1(x)` as `exp(x) - 1`, which is 0 for small `x`. Here they consist of operators that agree with eager.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch

__all__ = ["WITH_EDGE_VALUES"]

_aten = torch.ops.aten
_SHORT = (torch.bfloat16, torch.float16)
Number = float | int | bool
Operand = torch.Tensor | Number


def _computed_in_float32(function: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """Return the function of one tensor, computed in float32 for 16 bits; integers become floats first."""

    def compute(x: torch.Tensor) -> torch.Tensor:
        if x.dtype in _SHORT:
            return function(x.to(torch.float32)).to(x.dtype)
        return function(x if x.is_floating_point() else x.to(torch.get_default_dtype()))

    return compute


@_computed_in_float32
def _expm1(x: torch.Tensor) -> torch.Tensor:
    """Return exp(x) - 1; near zero by 2 t / (1 - t) with t = tanh(x / 2), which does not cancel."""
    t = _aten.tanh(x * 0.5)
    return torch.where(x.abs() < 0.5, 2 * t / (1 - t), x.exp() - 1)


@_computed_in_float32
def _atanh(x: torch.Tensor) -> torch.Tensor:
    """Return half of log1p(x) - log1p(-x), which keeps the sign of zeros."""
    return (torch.log1p(x) - torch.log1p(-x)) * 0.5


@_computed_in_float32
def _acosh(x: torch.Tensor) -> torch.Tensor:
    """Return log(x + sqrt(x² - 1)), as log(x) + log(2) where the square has no finite value."""
    t = x - 1
    near = _aten.log1p(t + _aten.sqrt(t) * _aten.sqrt(x + 1))
    return torch.where(x > 1e8, _aten.log(x) + math.log(2.0), near)


def _remainder(x: Operand, y: Operand) -> Any:
    """Return what fmod leaves, moved to the sign of the divisor as eager's kernel moves it."""
    dtype = torch.result_type(x, y)
    if not dtype.is_floating_point:
        return NotImplemented
    x, y = _as_tensor(x, dtype, y), _as_tensor(y, dtype, x)
    rest = _aten.fmod(x, y)
    return torch.where((rest != 0) & ((y < 0) != (rest < 0)), rest + y, rest)


def _as_tensor(x: Operand, dtype: torch.dtype, like: Operand) -> torch.Tensor:
    if isinstance(x, torch.Tensor):
        return x.to(dtype)
    assert isinstance(like, torch.Tensor), "an operator of two numbers"
    return torch.full([], x, dtype=dtype, device=like.device)


def _addcdiv(x: torch.Tensor, y: torch.Tensor, z: torch.Tensor, *, value: Number = 1) -> Any:
    """Return x + (value * y) / z; in 16 bits rounded once."""
    if not torch.result_type(y, z).is_floating_point:
        return NotImplemented
    short = x.dtype if x.dtype in _SHORT and x.dtype == y.dtype == z.dtype else None
    if short is not None:
        x, y, z = x.to(torch.float32), y.to(torch.float32), z.to(torch.float32)
    result = x + value * y / z
    return result if short is None else result.to(short)


def _add(x: Operand, y: Operand, *, alpha: Number = 1) -> Any:
    """Return x or y for bools with a factor, for which TorchInductor writes beyond the result's memory."""
    if alpha == 1 or torch.result_type(x, y) is not torch.bool:
        return NotImplemented
    x, y = _as_tensor(x, torch.bool, y), _as_tensor(y, torch.bool, x)
    return _aten.logical_or(x, y) if alpha else _aten.logical_or(x, torch.zeros_like(y))


def _softshrink(x: torch.Tensor, lambd: Number = 0.5) -> torch.Tensor:
    """Return 0, not the zero of x's sign, in the interval; NaN for NaN."""
    return torch.where(_aten.abs(x) > lambd, x - _aten.sign(x) * lambd, x - x)


def _threshold(x: torch.Tensor, threshold: Number, value: Number) -> torch.Tensor:
    """Return the value where x is not above the threshold; integers are compared with integers."""
    if not x.is_floating_point():
        threshold, value = int(threshold), int(value)
    return torch.where(x <= threshold, _aten.full([], value, dtype=x.dtype, device=x.device), x)


def _clamp_min(x: torch.Tensor, bound: Number) -> Any:
    """Return the maximum with the bound as its first argument: of equal numbers, as 0 and -0, eager has x."""
    if not x.is_floating_point() or math.isnan(bound):
        return NotImplemented
    return _aten.maximum(_aten.full([], bound, dtype=x.dtype, device=x.device), x)


def _clamp_max(x: torch.Tensor, bound: Number) -> Any:
    """Return the minimum with the bound as its first argument."""
    if not x.is_floating_point() or math.isnan(bound):
        return NotImplemented
    return _aten.minimum(_aten.full([], bound, dtype=x.dtype, device=x.device), x)


#: operator → its decomposition; NotImplemented leaves a call to TorchInductor
WITH_EDGE_VALUES: Mapping[Any, Callable[..., Any]] = {
    _aten.expm1.default: _expm1,
    _aten.atanh.default: _atanh,
    _aten.acosh.default: _acosh,
    _aten.remainder.Tensor: _remainder,
    _aten.remainder.Scalar: _remainder,
    _aten.remainder.Scalar_Tensor: _remainder,
    _aten.addcdiv.default: _addcdiv,
    _aten.add.Tensor: _add,
    _aten.add.Scalar: _add,
    _aten.softshrink.default: _softshrink,
    _aten.threshold.default: _threshold,
    _aten.clamp_min.default: _clamp_min,
    _aten.clamp_max.default: _clamp_max,
}
