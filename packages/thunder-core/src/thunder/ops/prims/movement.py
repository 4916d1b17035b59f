"""Primitives that move data: between dtypes, devices, layouts, and into a tensor."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from thunder.base.devices import Device, to_device, to_torch_device
from thunder.base.dtypes import dtype as Dtype
from thunder.base.dtypes import to_dtype, to_torch_dtype
from thunder.base.errors import OperatorError
from thunder.base.tags import OpTags
from thunder.ir.proxies import ComplexProxy, FloatProxy, IntegerProxy, NumberProxy, TensorProxy
from thunder.ir.symbol import Symbol
from thunder.ops.operator import NONDIFFERENTIABLE
from thunder.ops.primitive_batching import batched_shapes as batched
from thunder.ops.prims.declaration import composite, primitive
from thunder.ops.view_rules import ViewRule, same_elements

# fmt: off
__all__ = [
    "bitcast", "clone", "convert_element_type", "copy_", "detach", "device_put", "item", "overwrite",
    "replace_data", "shallow_copy", "stride_order", "untracked_alias", "update_aliases",
]
# fmt: on

_POINTWISE = (OpTags.POINTWISE_OP,)


def _convert_element_type_meta(a: TensorProxy, dtype: Dtype) -> TensorProxy:
    return TensorProxy(shape=a.shape, device=a.device, dtype=dtype)


convert_element_type = primitive(
    "convert_element_type",
    _convert_element_type_meta,
    eager=lambda a, dtype: a.to(to_torch_dtype(dtype)),
    tags=_POINTWISE,
)


def _device_put_meta(a: TensorProxy, device: Device) -> TensorProxy:
    return TensorProxy(shape=a.shape, device=to_device(device), dtype=a.dtype)


device_put = primitive(
    "device_put",
    _device_put_meta,
    eager=lambda a, device: a.to(to_torch_device(device)),
    tags=(OpTags.DEVICE_SYNC_OP,),
    batch=batched.device_put,
)


def _bitcast_meta(a: TensorProxy, dtype: Dtype) -> TensorProxy:
    old, new = a.dtype.itemsize, to_dtype(dtype).itemsize
    if old == new:
        shape = a.shape
    elif not a.shape or (a.shape[-1] * old) % new:
        raise OperatorError(
            f"the last dimension of shape {a.shape} does not hold whole elements of {dtype!r}"
        )
    else:
        shape = (*a.shape[:-1], a.shape[-1] * old // new)
    return TensorProxy(shape=shape, device=a.device, dtype=dtype)


bitcast: Symbol = primitive(
    "bitcast",
    _bitcast_meta,
    eager=lambda a, dtype: a.view(to_torch_dtype(dtype)),
    tags=(OpTags.VIEW, OpTags.CHEAP_TO_RECOMPUTE),
    view=ViewRule(inverse=lambda call, base, value: bitcast(value, base.dtype)),
    batch=batched.bitcast,
)


def like_meta(a: TensorProxy) -> TensorProxy:
    """Return a proxy of the same shape, dtype and device."""
    return TensorProxy(shape=a.shape, device=a.device, dtype=a.dtype)


clone = primitive("clone", like_meta, eager=torch.clone, eager_path="torch.clone", tags=_POINTWISE)

#: an alias: the same memory under another name
shallow_copy = primitive(
    "shallow_copy",
    like_meta,
    eager=lambda a: a.view_as(a),
    tags=(*_POINTWISE, OpTags.VIEW),
    view=same_elements(),
)


def _update_aliases(tensors: Sequence[TensorProxy]) -> tuple[TensorProxy, ...]:
    """The tensors under other names, for what reads them after a write to their memory."""
    return tuple(shallow_copy(t) for t in tensors)


update_aliases = composite("update_aliases", _update_aliases)

#: an alias through which no gradient flows
detach: Symbol = primitive(
    "detach",
    like_meta,
    eager=torch.detach,
    eager_path="torch.detach",
    tags=(*_POINTWISE, OpTags.VIEW, OpTags.SAME_ELEMENTS),
    view=same_elements(lambda value: detach(value) if value.requires_grad else value),
    vjp=NONDIFFERENTIABLE,
)


#: an alias that torch does not track as a view, so that the caller may write to it
untracked_alias = primitive(
    "untracked_alias",
    like_meta,
    eager=torch.detach,
    tags=(OpTags.VIEW,),
    vjp={"a": lambda call: call.g},
    batch=batched.of_each_example,
)


def _overwrite_meta(a: TensorProxy, old: TensorProxy) -> TensorProxy:
    return like_meta(a)


#: ``a`` as the new value of a tensor that held ``old``: as for torch's autograd, a function of ``old`` too,
#: whose gradient is zero
overwrite = primitive(
    "overwrite",
    _overwrite_meta,
    eager=lambda a, old: a.clone(),
    batch=batched.overwrite,
)

#: ``a`` as the new numbers of a tensor that held ``old``, written where gradients are off: as for torch's
#: autograd, still the same function of what ``old`` was computed from
replace_data = primitive(
    "replace_data",
    _overwrite_meta,
    eager=lambda a, old: a.clone(),
    tags=(OpTags.SAME_ELEMENTS,),
    batch=batched.overwrite,
)


def _stride_order_meta(a: TensorProxy, order: Sequence[int]) -> TensorProxy:
    if sorted(order) != list(range(len(a.shape))):
        raise OperatorError(f"{tuple(order)} is not an order of {len(a.shape)} dimensions")
    return like_meta(a)


def _stride_order_eager(a: torch.Tensor, order: Sequence[int]) -> torch.Tensor:
    # order[i] is the rank of the stride of dimension i; the innermost dimension has rank 0
    outer_first = sorted(range(a.dim()), key=lambda d: -order[d])
    inverse = [outer_first.index(d) for d in range(a.dim())]
    return a.permute(outer_first).contiguous().permute(inverse)


stride_order = primitive(
    "stride_order",
    _stride_order_meta,
    eager=_stride_order_eager,
    tags=(OpTags.MAYBE_VIEW, OpTags.SAME_ELEMENTS),
    view=ViewRule(inverse=lambda call, base, value: value),
    batch=batched.stride_order,
)


def _copy_meta(copy_from: TensorProxy, copy_to: TensorProxy, *, grad_enabled: bool) -> TensorProxy:
    if copy_from.shape != copy_to.shape or copy_from.dtype != copy_to.dtype:
        raise OperatorError(f"copy_ from {copy_from.type_string()} to {copy_to.type_string()}")
    return like_meta(copy_to)


def _copy_eager(copy_from: torch.Tensor, copy_to: torch.Tensor, *, grad_enabled: bool) -> Any:
    if not (grad_enabled or copy_from.requires_grad or copy_to.requires_grad):
        return copy_to.copy_(copy_from)  # in any mode: torch's autograd has nothing to track
    with torch.set_grad_enabled(grad_enabled):
        return copy_to.copy_(copy_from)


#: writes ``copy_from`` to the memory of ``copy_to``
copy_ = primitive(
    "copy_",
    _copy_meta,
    eager=_copy_eager,
    tags=(OpTags.IN_PLACE, OpTags.DONT_DCE, OpTags.NEVER_RAISES),
    short_id="COPY_",
)


def _item_meta(t: TensorProxy) -> NumberProxy:
    count = math.prod(t.shape)
    if count != 1:
        raise OperatorError(f"a Tensor with {count} elements cannot be converted to Scalar")
    if t.dtype.is_complex:
        return ComplexProxy()
    if t.dtype.is_floating_point:
        return FloatProxy()
    return IntegerProxy(python_type=bool if t.dtype.is_bool else int)


#: the number in a tensor of one element
item = primitive(
    "item", _item_meta, eager=torch.Tensor.item, eager_path="torch.Tensor.item", tags=(OpTags.DEVICE_SYNC_OP,)
)
