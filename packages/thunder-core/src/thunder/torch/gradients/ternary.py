"""Gradients of choices and interpolations."""

from __future__ import annotations

from typing import Any

from thunder.ir.proxies import TensorProxy
from thunder.ops.gradient_rules import conj, formulas
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
