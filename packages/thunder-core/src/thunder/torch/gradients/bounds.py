"""Gradients of ``clamp``, ``clamp_min`` and ``clamp_max``.

Where the bounds cross, the upper one is the result. At a bound torch 2.13 gives the gradient to the input;
torch 2.14 halves it between the input and a tensor, and drops it at a number.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from thunder.base.torch_versions import BOUNDS_SHARE_GRADIENTS
from thunder.ir.proxies import TensorProxy
from thunder.ops.gradient_rules import VjpCall, formulas
from thunder.torch.gradients.binary import gradient_of_choice
from thunder.torch.namespace import ltorch
from thunder.torch.rows import ternary  # noqa: F401  (the rows)

Tensor = TensorProxy


def _bounds(c: VjpCall) -> tuple[Any, Any]:
    """Return the lower and the upper bound, None where there is none."""
    return c.arguments.get("min"), c.arguments.get("max")


def _where_all(conditions: Sequence[Tensor], g: Tensor) -> Tensor:
    """Return ``g`` where one or two conditions hold, and 0 elsewhere."""
    return ltorch.where(ltorch.logical_and(*conditions) if len(conditions) == 2 else conditions[0], g, 0.0)


# -- torch 2.13: the input has the gradient at a bound -------------------------------------------------------


def _of_input(c: VjpCall) -> Tensor:
    low, high = _bounds(c)
    inside = [] if low is None else [c.input >= low]
    inside += [] if high is None else [c.input <= high]
    return _where_all(inside, c.g)


def _of_lower_bound(c: VjpCall) -> Tensor:
    low, high = _bounds(c)
    return _where_all([c.input < low] if high is None else [c.input < low, low < high], c.g)


def _of_upper_bound(c: VjpCall) -> Tensor:
    low, high = _bounds(c)
    above = c.input > high
    return ltorch.where(above if low is None else ltorch.logical_or(above, high < low), c.g, 0.0)


# -- torch 2.14: the input and a tensor share it -------------------------------------------------------------


def _of_sharing_input(c: VjpCall) -> Tensor:
    low, high = _bounds(c)
    if not isinstance(low, TensorProxy) and not isinstance(high, TensorProxy):
        inside = [] if low is None else [c.input > low]
        inside += [] if high is None else [c.input < high]
        return _where_all(inside, c.g)
    if high is None:
        return gradient_of_choice(c.g, c.input, low, c.input < low)
    if low is None:
        return gradient_of_choice(c.g, c.input, high, c.input > high)
    is_tie = ltorch.logical_or(ltorch.eq(c.input, low), ltorch.eq(c.input, high))
    is_outside = ltorch.logical_or(c.input < low, c.input > high)
    half = ltorch.where(ltorch.logical_and(is_tie, low < high), c.g / 2, c.g)
    return ltorch.where(is_outside, 0.0, half)


def _of_sharing_lower_bound(c: VjpCall) -> Tensor:
    low, high = _bounds(c)
    if high is None:
        return gradient_of_choice(c.g, low, c.input, c.input > low)
    is_result = ltorch.logical_and(c.input < low, low <= high)
    half = _where_all([ltorch.eq(c.input, low), low < high], c.g / 2)
    return ltorch.where(is_result, c.g, half)


def _of_sharing_upper_bound(c: VjpCall) -> Tensor:
    low, high = _bounds(c)
    if low is None:
        return gradient_of_choice(c.g, high, c.input, c.input < high)
    is_result = ltorch.logical_or(ltorch.logical_and(c.input > high, low <= high), low > high)
    half = _where_all([ltorch.eq(c.input, high), low < high], c.g / 2)
    return ltorch.where(is_result, c.g, half)


# -- the rules -----------------------------------------------------------------------------------------------

if BOUNDS_SHARE_GRADIENTS:
    _INPUT, _LOW, _HIGH = _of_sharing_input, _of_sharing_lower_bound, _of_sharing_upper_bound
else:
    _INPUT, _LOW, _HIGH = _of_input, _of_lower_bound, _of_upper_bound

formulas("torch.clamp", input=_INPUT, min=_LOW, max=_HIGH)
formulas("torch.clamp_min", input=_INPUT, min=_LOW)
formulas("torch.clamp_max", input=_INPUT, max=_HIGH)
