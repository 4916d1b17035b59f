"""Elementwise operators of three tensors: choices, bounds, interpolation."""

from __future__ import annotations

from typing import Any

import torch

from thunder.base.dtypes import bool8
from thunder.base.errors import OperatorError
from thunder.ir.proxies import TensorProxy
from thunder.ops import prims
from thunder.ops.casting import cast
from thunder.ops.in_place import elementwise_kernel
from thunder.ops.promotion import result_dtype
from thunder.torch.broadcasting import (
    all_operands,
    broadcast_to_shape,
    common_shape,
    on_one_device,
    require_tensor,
)
from thunder.torch.registration import method_and_inplace, torch_names, torchsymbol
from thunder.torch.rows.binary import add, div, mul
from thunder.torch.rows.positions import nonzero


def _positions(condition: TensorProxy, *values: Any, **named: Any) -> Any:
    """``torch.where(condition)``: the positions at which it is True."""
    return NotImplemented if values or named else nonzero(condition, as_tuple=True)


@torchsymbol("torch.where", other_forms=_positions, with_out=torch.where, integers="values")
def where(condition: TensorProxy, input: Any, other: Any) -> TensorProxy:
    """``input`` where the condition is True, else ``other``."""
    require_tensor("where", condition)
    if condition.dtype is not bool8:
        raise OperatorError(
            f"where expected condition to be a boolean tensor, but got a tensor with dtype {condition.dtype}"
        )
    dtype = result_dtype(input, other)
    tensors = on_one_device([x for x in (condition, input, other) if isinstance(x, TensorProxy)])
    shape = common_shape([t.shape for t in tensors])
    ready = iter([broadcast_to_shape(t, shape) for t in tensors])
    pred = next(ready)
    a, b = (cast(next(ready), dtype) if isinstance(x, TensorProxy) else x for x in (input, other))
    if not isinstance(a, TensorProxy) and not isinstance(b, TensorProxy):
        a = prims.full(shape, a, device=pred.device, dtype=dtype)
    return prims.where(pred, a, b)


@torch_names(methods=("where",))
def where_method(input: TensorProxy, condition: TensorProxy, other: Any) -> TensorProxy:
    """``x.where(condition, other)``."""
    return where(condition, input, other)


@torchsymbol(
    "torch.clamp",
    "torch.clip",
    methods=("clamp", "clip"),
    inplace=("clamp_", "clip_"),
    inplace_functions=("torch.clamp_", "torch.clip_"),
    **elementwise_kernel("clamp"),
    integers="values",
)
def clamp(input: TensorProxy, min: Any = None, max: Any = None) -> TensorProxy:
    """``input``, not below ``min`` and not above ``max``; nan stays nan."""
    if min is None and max is None:
        raise OperatorError("torch.clamp: At least one of 'min' or 'max' must not be None")
    a, *bounds = all_operands(input, *(x for x in (min, max) if x is not None))
    if min is not None:
        a = prims.maximum(a, bounds[0])
    return prims.minimum(a, bounds[-1]) if max is not None else a


@torchsymbol(
    "torch.clamp_min",
    methods=("clamp_min",),
    inplace=("clamp_min_",),
    inplace_functions=("torch.clamp_min_",),
    **elementwise_kernel("clamp_min"),
)
def clamp_min(input: TensorProxy, min: Any) -> TensorProxy:
    """``input``, not below ``min``."""
    return prims.maximum(*all_operands(input, min))


@torchsymbol(
    "torch.clamp_max",
    methods=("clamp_max",),
    inplace=("clamp_max_",),
    inplace_functions=("torch.clamp_max_",),
    **elementwise_kernel("clamp_max"),
)
def clamp_max(input: TensorProxy, max: Any) -> TensorProxy:
    """``input``, not above ``max``."""
    return prims.minimum(*all_operands(input, max))


@torchsymbol("torch.lerp", with_out=torch.lerp, **method_and_inplace("lerp"))
def lerp(input: TensorProxy, end: TensorProxy, weight: Any) -> TensorProxy:
    """``input + weight * (end - input)``; all of one dtype."""
    require_tensor("lerp", input, end)
    tensors = [x for x in (input, end, weight) if isinstance(x, TensorProxy)]
    if any(t.dtype is not input.dtype for t in tensors):
        raise OperatorError(f"expected dtype {input.dtype.torch_dtype} for `end` and `weight`")
    return prims.lerp(*all_operands(input, end, weight))


def _factor(value: Any) -> Any:
    """Return a factor as a number: torch takes a bool here, and ``torch.add`` does not."""
    return int(value) if isinstance(value, bool) else value


@torchsymbol("torch.addcmul", with_out=torch.addcmul, **method_and_inplace("addcmul"))
def addcmul(input: TensorProxy, tensor1: TensorProxy, tensor2: TensorProxy, *, value: Any = 1) -> TensorProxy:
    """``input + value * tensor1 * tensor2``."""
    product = mul(tensor1, tensor2)
    return add(input, product, alpha=_factor(value))


@torchsymbol("torch.addcdiv", with_out=torch.addcdiv, **method_and_inplace("addcdiv"))
def addcdiv(input: TensorProxy, tensor1: TensorProxy, tensor2: TensorProxy, *, value: Any = 1) -> TensorProxy:
    """``input + value * tensor1 / tensor2``; integers are refused."""
    if not tensor1.dtype.is_inexact and not tensor2.dtype.is_inexact:
        raise OperatorError("Integer division with addcdiv is no longer supported")
    return add(input, div(tensor1, tensor2), alpha=_factor(value))
