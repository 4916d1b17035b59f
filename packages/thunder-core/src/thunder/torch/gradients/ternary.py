"""Gradients of choices, bounds and interpolations."""

from __future__ import annotations

from typing import Any

from thunder.ir.proxies import TensorProxy
from thunder.ops.gradient_rules import Call, conj, formulas
from thunder.torch.namespace import ltorch
from thunder.torch.rows import ternary  # noqa: F401  (the rows)

Tensor = TensorProxy

formulas(
    "torch.where",
    input=lambda c: ltorch.where(c.condition, c.g, 0.0),
    other=lambda c: ltorch.where(c.condition, 0.0, c.g),
)
formulas(
    "prims.where",
    a=lambda c: ltorch.where(c.pred, c.g, 0.0),
    b=lambda c: ltorch.where(c.pred, 0.0, c.g),
)


# -- bounds --------------------------------------------------------------------------------------------------
# At a bound the gradient goes to the input, as in torch. Where the bounds cross, the upper one is the result.


def _of_clamped(c: Call) -> Tensor:
    kept = [] if c.min is None else [c.input >= c.min]
    kept += [] if c.max is None else [c.input <= c.max]
    return ltorch.where(ltorch.logical_and(*kept) if len(kept) == 2 else kept[0], c.g, 0.0)


def _of_lower_bound(c: Call) -> Tensor:
    below = c.input < c.min
    if c.max is not None:
        below = ltorch.logical_and(below, c.min < c.max)
    return ltorch.where(below, c.g, 0.0)


def _of_upper_bound(c: Call) -> Tensor:
    above = c.input > c.max
    if c.min is not None:
        above = ltorch.logical_or(above, c.max < c.min)
    return ltorch.where(above, c.g, 0.0)


formulas("torch.clamp", input=_of_clamped, min=_of_lower_bound, max=_of_upper_bound)
formulas(
    "torch.clamp_min",
    input=lambda c: ltorch.where(c.input >= c.min, c.g, 0.0),
    min=lambda c: ltorch.where(c.input < c.min, c.g, 0.0),
)
formulas(
    "torch.clamp_max",
    input=lambda c: ltorch.where(c.input <= c.max, c.g, 0.0),
    max=lambda c: ltorch.where(c.input > c.max, c.g, 0.0),
)


# -- sums and products ---------------------------------------------------------------------------------------

formulas(
    "torch.lerp",
    input=lambda c: c.g * conj(1 - c.weight),
    end=lambda c: c.g * conj(c.weight),
    weight=lambda c: c.g * conj(c.end - c.input),
)
formulas(
    "prims.lerp",
    start=lambda c: c.g * conj(1 - c.weight),
    end=lambda c: c.g * conj(c.weight),
    weight=lambda c: c.g * conj(c.end - c.start),
)


def _times(factor: Tensor, value: Any) -> Any:
    """``value * factor``, conjugated."""
    return conj(factor if type(value) is int and value == 1 else factor * value)


formulas(
    "torch.addcmul",
    input=lambda c: c.g,
    tensor1=lambda c: c.g * _times(c.tensor2, c.value),
    tensor2=lambda c: c.g * _times(c.tensor1, c.value),
)
formulas(
    "torch.addcdiv",
    input=lambda c: c.g,
    tensor1=lambda c: c.g * conj(c.value / c.tensor2),
    tensor2=lambda c: -c.g * _times(c.tensor1 / (c.tensor2 * c.tensor2), c.value),
)
