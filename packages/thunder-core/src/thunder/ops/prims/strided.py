"""Primitives for strided views of memory, and for functional writes through them."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from thunder.base.errors import OperatorError
from thunder.base.tags import OpTags
from thunder.ir.proxies import TensorProxy
from thunder.ir.symbol import Symbol
from thunder.ops.in_place import part, restoring_all
from thunder.ops.primitive_batching import batched_shapes as batched
from thunder.ops.prims.declaration import primitive
from thunder.ops.prims.movement import like_meta
from thunder.ops.view_rules import ViewRule

__all__ = ["as_strided", "as_strided_scatter", "diagonal_scatter"]


def _as_strided_meta(a: TensorProxy, size: Sequence[int], stride: Sequence[int], offset: int) -> TensorProxy:
    return TensorProxy(shape=size, device=a.device, dtype=a.dtype)


#: a view of the memory of ``a``; ``stride`` and ``offset`` count elements from the start of that memory
as_strided = primitive(
    "as_strided",
    _as_strided_meta,
    eager=torch.as_strided,
    eager_path="torch.as_strided",
    tags=(OpTags.VIEW,),
    view=ViewRule(inverse=lambda call, base, value: as_strided_scatter(base, value, *call.args[1:])),
    batch=batched.as_strided,
)


def _as_strided_scatter_meta(
    a: TensorProxy, value: TensorProxy, size: Sequence[int], stride: Sequence[int], offset: int
) -> TensorProxy:
    if value.shape != tuple(size) or value.dtype is not a.dtype:
        raise OperatorError(f"as_strided_scatter of {value.type_string()} into a view of shape {tuple(size)}")
    return like_meta(a)


#: a copy of ``a`` in which that view has the value ``value``
as_strided_scatter: Symbol = primitive(
    "as_strided_scatter",
    _as_strided_scatter_meta,
    eager=torch.as_strided_scatter,
    eager_path="torch.as_strided_scatter",
    tags=(OpTags.OTHER_TANGENTS,),
)


def _diagonal_scatter_meta(
    a: TensorProxy, value: TensorProxy, offset: int, dim1: int, dim2: int
) -> TensorProxy:
    if value.dtype is not a.dtype:
        raise OperatorError(f"diagonal_scatter of {value.type_string()} into {a.type_string()}")
    return like_meta(a)


#: a copy of ``a`` whose diagonal is ``value``
diagonal_scatter = primitive(
    "diagonal_scatter",
    _diagonal_scatter_meta,
    eager=torch.diagonal_scatter,
    eager_path="torch.diagonal_scatter",
    in_place=part(
        lambda a, value, *which: torch.diagonal(a, *which).copy_(value),
        lambda a, value, *which: restoring_all(torch.diagonal(a, *which)),
    ),
    batch=batched.diagonal_scatter,
)
