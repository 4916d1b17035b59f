"""Linear layers with packed weights."""

from __future__ import annotations

import math
from typing import Any, Final

import torch

from thunder import TensorProxy, float32
from thunder.extend import Refusal, SymbolicInt
from thunder_onednn.activations import NO_ACTIVATION
from thunder_onednn.packed_weights import LIBRARY, PackedWeight, ex, pack_linear, refusal

__all__ = ["linear", "linear_add"]

#: multiplications in float32 up to which the call of oneDNN takes longer than what its kernel gains
_FEW: Final = 1 << 22


def _linear_meta(
    x: Any, weight: Any, bias: Any, features: int, name: str, numbers: tuple[float, ...], algorithm: str
) -> TensorProxy:
    return TensorProxy(like=x, shape=(*x.shape[:-1], features))


def _linear(
    x: torch.Tensor,
    weight: PackedWeight,
    bias: torch.Tensor | None,
    features: int,
    name: str,
    numbers: tuple[float, ...],
    algorithm: str,
) -> torch.Tensor:
    y: torch.Tensor = LIBRARY._linear_pointwise(x, weight.tensor, bias, name, list(numbers), algorithm)
    return y


def _linear_add(
    x: torch.Tensor, other: torch.Tensor, weight: PackedWeight, bias: torch.Tensor | None, features: int
) -> torch.Tensor:
    y: torch.Tensor = LIBRARY._linear_pointwise.binary(x, other, weight.tensor, bias, "add")
    return y


linear = ex.register_operator("onednn_linear", meta=_linear_meta, fn=_linear)
linear_add = ex.register_operator(
    "onednn_linear_add",
    meta=lambda x, other, weight, bias, features: TensorProxy(like=x, shape=(*x.shape[:-1], features)),
    fn=_linear_add,
)


def _may_take_linear(input: Any, weight: Any, bias: Any = None) -> bool | Refusal:
    reason = refusal(input, weight, bias)
    if reason is not None:
        return reason
    if weight.ndim != 2 or input.ndim < 2 or (bias is not None and bias.ndim != 1):
        return Refusal("shape", "it takes matrices", input=tuple(input.shape), weight=tuple(weight.shape))
    rows = _rows(input)
    count = None if rows is None else rows * weight.numel
    if weight.dtype is float32 and count is not None and count < _FEW:
        return Refusal("small", "another kernel is as fast for so few numbers", multiplications=count)
    return True


def _rows(x: Any) -> int | None:
    """Return the number of rows of an input, or None if that differs from call to call."""
    return None if any(isinstance(n, SymbolicInt) for n in x.shape[:-1]) else math.prod(x.shape[:-1])


def _linear_transform(input: Any, weight: Any, bias: Any = None) -> Any:
    # in float32 the form of a product of one row is another one than that of all others
    rows = 1 if _rows(input) == 1 and weight.dtype is float32 else None
    packed = pack_linear(weight, rows)
    return linear(input, packed, bias, weight.shape[0], *NO_ACTIVATION.arguments)


ex.register_implementation(
    "torch.nn.functional.linear", checker=_may_take_linear, execution_transform=_linear_transform
)
