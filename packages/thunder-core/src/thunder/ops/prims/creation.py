"""Primitives that create tensors from shapes and Python numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from thunder.base.devices import Device, to_torch_device
from thunder.base.dtypes import dtype as Dtype
from thunder.base.dtypes import to_torch_dtype
from thunder.base.errors import OperatorError
from thunder.base.tags import OpTags
from thunder.ir.proxies import TensorProxy
from thunder.ops.prims.declaration import primitive

__all__ = ["empty", "full", "iota", "linspace", "tensor_from_sequence"]


def _full_meta(shape: Sequence[int], value: complex, *, device: Device, dtype: Dtype) -> TensorProxy:
    return TensorProxy(shape=_lengths(shape), device=device, dtype=dtype)


def _lengths(shape: Sequence[int]) -> tuple[int, ...]:
    for size in shape:
        if size < 0:
            raise OperatorError(f"Trying to create tensor with negative dimension {size}: {list(shape)}")
    return tuple(shape)


def _torch_kwargs(device: Any, dtype: Any) -> dict[str, Any]:
    return {"device": to_torch_device(device), "dtype": to_torch_dtype(dtype)}


full = primitive(
    "full",
    _full_meta,
    eager=lambda shape, value, *, device, dtype: torch.full(shape, value, **_torch_kwargs(device, dtype)),
    tags=(OpTags.POINTWISE_OP,),
)


def _empty_meta(shape: Sequence[int], *, device: Device, dtype: Dtype) -> TensorProxy:
    return TensorProxy(shape=_lengths(shape), device=device, dtype=dtype)


empty = primitive(
    "empty",
    _empty_meta,
    eager=lambda shape, *, device, dtype: torch.empty(shape, **_torch_kwargs(device, dtype)),
    tags=(OpTags.UNINITIALIZED,),
)


def _iota_meta(length: int, *, start: float, step: float, device: Device, dtype: Dtype) -> TensorProxy:
    """``start + step * i`` for ``i`` below ``length``."""
    # torch's kernel reads bounds as numbers, so that strides cannot be asked of it
    return TensorProxy(shape=_lengths((length,)), strides=(1,), device=device, dtype=dtype)


def _iota_eager(length: int, *, start: float, step: float, device: Any, dtype: Any) -> torch.Tensor:
    kwargs = _torch_kwargs(device, dtype)
    if isinstance(start, int) and isinstance(step, int):
        return (torch.arange(length, device=kwargs["device"]) * step + start).to(kwargs["dtype"])
    counts = torch.arange(length, device=kwargs["device"], dtype=torch.float64)
    return (counts * step + start).to(kwargs["dtype"])


iota = primitive("iota", _iota_meta, eager=_iota_eager, tags=(OpTags.POINTWISE_OP,))


def _linspace_meta(start: complex, end: complex, steps: int, *, device: Device, dtype: Dtype) -> TensorProxy:
    """``steps`` numbers at equal distances from ``start`` to ``end``, both included."""
    return TensorProxy(shape=_lengths((steps,)), device=device, dtype=dtype)


linspace = primitive(
    "linspace",
    _linspace_meta,
    eager=lambda start, end, steps, *, device, dtype: torch.linspace(
        start, end, steps, **_torch_kwargs(device, dtype)
    ),
    tags=(OpTags.POINTWISE_OP,),
)


def _sequence_shape(seq: Any) -> tuple[int, ...]:
    if not isinstance(seq, list | tuple):
        return ()
    shapes = {_sequence_shape(x) for x in seq}
    if len(shapes) > 1:
        raise OperatorError(f"expected sequences of equal length in {seq!r}")
    return (len(seq), *(shapes.pop() if shapes else ()))


def _tensor_from_sequence_meta(seq: Any, *, dtype: Dtype, device: Device) -> TensorProxy:
    return TensorProxy(shape=_sequence_shape(seq), device=device, dtype=dtype)


#: a tensor of the numbers in nested lists
tensor_from_sequence = primitive(
    "tensor_from_sequence",
    _tensor_from_sequence_meta,
    eager=lambda seq, *, dtype, device: torch.tensor(seq, **_torch_kwargs(device, dtype)),
)
