"""Metadata of tensors as a traced program sees them: torch's own types, recording nothing.

``ATTRIBUTES`` are read as ``x.name``; ``METHODS`` are called as ``x.name(…)``. Everything else is an
operator.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from thunder.base import devices, dtypes
from thunder.base.langctx import TORCH
from thunder.base.memory_layout import is_dense_in_order
from thunder.ir.proxies import TensorProxy
from thunder.ir.symbolic_sizes import has_symbols, shape_of
from thunder.ir.trace_context import get_tracectx
from thunder.ops.layouts import strides_of
from thunder.ops.promotion import result_dtype
from thunder.ops.stand_ins import stand_in_tensor
from thunder.torch.inplace import is_leaf


def _device(x: TensorProxy) -> torch.device:
    return devices.to_torch_device(x.device)


def _strides(x: TensorProxy, dim: int | None = None) -> Any:
    strides = strides_of(x, get_tracectx())
    return strides if dim is None else strides[dim]


def is_contiguous(x: TensorProxy, memory_format: torch.memory_format = torch.contiguous_format) -> bool:
    """Return whether the elements are in the order of a memory format, without gaps."""
    strides = strides_of(x, get_tracectx())
    if has_symbols((*x.shape, *strides)) and memory_format is torch.contiguous_format:
        return is_dense_in_order(x.shape, strides)
    with torch._C.DisableTorchFunction():
        stand_in = stand_in_tensor(x, "meta", strides=strides)
        return stand_in.is_contiguous(memory_format=memory_format)


def _itemsize(x: TensorProxy) -> int:
    return dtypes.to_torch_dtype(x.dtype).itemsize


ATTRIBUTES: dict[str, Callable[[TensorProxy], Any]] = {
    "shape": lambda x: shape_of(x.shape),
    "dtype": lambda x: dtypes.to_torch_dtype(x.dtype),
    "device": _device,
    "ndim": lambda x: len(x.shape),
    "requires_grad": lambda x: x.requires_grad,
    "is_leaf": is_leaf,
    "layout": lambda x: torch.strided,
    "is_cuda": lambda x: _device(x).type == "cuda",
    "is_cpu": lambda x: _device(x).type == "cpu",
    "is_meta": lambda x: _device(x).type == "meta",
    "is_mps": lambda x: _device(x).type == "mps",
    "is_xpu": lambda x: _device(x).type == "xpu",
    "is_xla": lambda x: False,
    "is_sparse": lambda x: False,
    "is_sparse_csr": lambda x: False,
    "is_quantized": lambda x: False,
    "is_nested": lambda x: False,
    "is_mkldnn": lambda x: False,
    "is_vulkan": lambda x: False,
    "is_ipu": lambda x: False,
    "is_maia": lambda x: False,
    "is_mtia": lambda x: False,
    "itemsize": _itemsize,
    "nbytes": lambda x: math.prod(x.shape) * _itemsize(x),
    "names": lambda x: (None,) * len(x.shape),
    "name": lambda x: None,  # that of a variable in C++, which Python cannot set
}

METHODS: dict[str, Callable[..., Any]] = {
    "dim": lambda x: len(x.shape),
    "ndimension": lambda x: len(x.shape),
    "size": lambda x, dim=None: shape_of(x.shape) if dim is None else shape_of(x.shape)[dim],
    "numel": lambda x: math.prod(x.shape),
    "nelement": lambda x: math.prod(x.shape),
    "element_size": _itemsize,
    "is_floating_point": lambda x: x.dtype.is_floating_point,
    "is_complex": lambda x: x.dtype.is_complex,
    "get_device": lambda x: _device(x).index if _device(x).type == "cuda" else -1,
    "is_signed": lambda x: dtypes.to_torch_dtype(x.dtype).is_signed,
    "is_same_size": lambda x, other: x.shape == other.shape,
    "stride": _strides,
    "is_contiguous": is_contiguous,
    "is_distributed": lambda x: False,
    "dense_dim": lambda x: len(x.shape),
    "sparse_dim": lambda x: 0,
    "has_names": lambda x: False,
}

#: torch functions that return what methods return
FUNCTIONS: dict[Any, Callable[..., Any]] = {
    torch.is_tensor: lambda obj, /: isinstance(obj, torch.Tensor),
    torch.is_floating_point: METHODS["is_floating_point"],
    torch.is_complex: METHODS["is_complex"],
    torch.is_signed: METHODS["is_signed"],
    torch.is_same_size: METHODS["is_same_size"],
    torch.numel: METHODS["numel"],
    torch.get_device: METHODS["get_device"],
    torch.is_distributed: METHODS["is_distributed"],
    torch.result_type: lambda tensor1, tensor2: result_dtype(tensor1, tensor2).torch_dtype,
    torch.promote_types: torch.promote_types,
    torch.can_cast: torch.can_cast,
}


def _fill_table() -> None:
    """Add the metadata to the language, for code that uses ``__torch_function__``."""
    for name, read in ATTRIBUTES.items():
        if hasattr(torch.Tensor, name):
            TORCH.functions.setdefault(getattr(torch.Tensor, name).__get__, read)
    for name, answer in METHODS.items():
        if hasattr(torch.Tensor, name):
            TORCH.functions.setdefault(getattr(torch.Tensor, name), answer)
    for fn, answer in FUNCTIONS.items():
        TORCH.functions.setdefault(fn, answer)


_fill_table()
