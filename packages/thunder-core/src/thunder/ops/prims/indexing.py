"""Primitives that gather, scatter and write at indices. A write returns a new tensor.

Indices are integer tensors, except those of ``copy_with_setitem``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

from thunder.base.dtypes import bool8, int64
from thunder.base.errors import OperatorError
from thunder.base.tags import OpTags
from thunder.ir.proxies import TensorProxy
from thunder.ir.symbol import BoundSymbol, Symbol
from thunder.ops.in_place import (
    by_dim_last,
    part,
    put,
    restoring_items,
    restoring_places,
    restoring_put,
    restoring_rows,
    set_item,
)
from thunder.ops.meta_kernels import torch_meta
from thunder.ops.primitive_batching import batched_indexing as batched
from thunder.ops.primitive_batching.batched_shapes import of_each_example
from thunder.ops.prims.declaration import primitive
from thunder.ops.prims.movement import convert_element_type, like_meta
from thunder.ops.view_rules import ViewRule

# fmt: off
__all__ = [
    "copy_with_setitem", "dynamic_select", "gather", "index", "index_add", "index_copy", "index_put",
    "scatter", "scatter_add", "take", "take_along_axis", "tril", "triu",
]
# fmt: on

#: reads an index, which may be out of range
_AT_INDEX = (OpTags.RAISES_ON_DATA, OpTags.ASSERTS_ON_GPU)


def _check_index(name: str, index: TensorProxy) -> None:
    if not index.dtype.is_integer:
        raise OperatorError(f"{name}(): Expected dtype int32/int64 for index, not {index.type_string()}")


def _check_dim(name: str, a: TensorProxy, dim: int) -> None:
    if not 0 <= dim < max(1, len(a.shape)):
        raise OperatorError(f"{name}: {dim} is not a dimension of a tensor of shape {a.shape}")


def _replaced(shape: Sequence[int], dim: int, sizes: Sequence[int]) -> tuple[int, ...]:
    return (*shape[:dim], *sizes, *shape[dim + 1 :])


def _gather_meta(a: TensorProxy, index: TensorProxy, dim: int) -> TensorProxy:
    _check_index("gather", index)
    _check_dim("gather", a, dim)
    if 0 in index.shape:
        return TensorProxy(shape=index.shape, device=a.device, dtype=a.dtype)
    if len(a.shape) != len(index.shape) and a.shape and index.shape:
        raise OperatorError("Index tensor must have the same number of dimensions as input tensor")
    if any(i > s for d, (i, s) in enumerate(zip(index.shape, a.shape, strict=False)) if d != dim):
        raise OperatorError(f"Size does not match: index {index.shape}, input {a.shape}, dimension {dim}")
    return TensorProxy(shape=index.shape, device=a.device, dtype=a.dtype)


gather = primitive(
    "gather",
    _gather_meta,
    eager=lambda a, index, dim: torch.gather(a, dim, index),
    tags=_AT_INDEX,
    batch=batched.gather,
)


def _take_meta(a: TensorProxy, index: TensorProxy, dim: int) -> TensorProxy:
    """Rows of ``a`` along ``dim``: that dimension becomes the dimensions of ``index``."""
    _check_index("take", index)
    _check_dim("take", a, dim)
    return TensorProxy(shape=_replaced(a.shape, dim, index.shape), device=a.device, dtype=a.dtype)


def _take_eager(a: torch.Tensor, index: torch.Tensor, dim: int) -> torch.Tensor:
    shape = _replaced(a.shape, dim, index.shape)
    return torch.index_select(a, dim, index.reshape(-1)).reshape(shape)


take = primitive(
    "take",
    _take_meta,
    eager=_take_eager,
    tags=_AT_INDEX,
    batch=batched.take,
)


def _take_along_axis_meta(a: TensorProxy, index: TensorProxy, dim: int) -> TensorProxy:
    _check_index("take_along_axis", index)
    _check_dim("take_along_axis", a, dim)
    if _replaced(a.shape, dim, ()) != _replaced(index.shape, dim, ()):
        raise OperatorError(
            f"take_along_axis: shapes {a.shape} and {index.shape} differ outside dimension {dim}"
        )
    return TensorProxy(shape=index.shape, device=a.device, dtype=a.dtype)


take_along_axis = primitive(
    "take_along_axis",
    _take_along_axis_meta,
    eager=lambda a, index, dim: torch.take_along_dim(a, index, dim),
    tags=_AT_INDEX,
    batch=batched.gather,
)


def _scattered(name: str, a: TensorProxy, index: TensorProxy, src: Any, dim: int) -> TensorProxy:
    """Return the result of the primitive ``name``; raise OperatorError for arguments that do not fit."""
    _check_index(name, index)
    _check_dim(name, a, dim)
    if isinstance(src, TensorProxy) and src.dtype is not a.dtype:
        raise OperatorError(f"{name}(): Expected self.dtype to be equal to src.dtype")
    if len(index.shape) != len(a.shape) and index.shape and a.shape:
        raise OperatorError("Index tensor must have the same number of dimensions as self tensor")
    sources = src.shape if isinstance(src, TensorProxy) else index.shape
    for d, (i, s) in enumerate(zip(index.shape, a.shape, strict=False)):
        if (d != dim and i > s) or (sources and i > sources[d]):
            raise OperatorError(f"{name}: index {index.shape} does not fit in {a.shape} and {sources}")
    return like_meta(a)


def _scatter_meta(a: TensorProxy, index: TensorProxy, src: Any, dim: int) -> TensorProxy:
    return _scattered("scatter", a, index, src, dim)


def _scatter_add_meta(a: TensorProxy, index: TensorProxy, value: TensorProxy, dim: int) -> TensorProxy:
    return _scattered("scatter_add", a, index, value, dim)


scatter = primitive(
    "scatter",
    _scatter_meta,
    eager=lambda a, index, src, dim: torch.scatter(a, dim, index, src),
    in_place=by_dim_last(torch.Tensor.scatter_, restoring_places),
    tags=_AT_INDEX,
    batch=batched.scatter,
)
scatter_add = primitive(
    "scatter_add",
    _scatter_add_meta,
    eager=lambda a, index, value, dim: torch.scatter_add(a, dim, index, value),
    in_place=by_dim_last(torch.Tensor.scatter_add_, restoring_places),
    tags=_AT_INDEX,
    batch=batched.scatter,
)


def _indexed_write(name: str, eager: Callable[..., Any]) -> Symbol:
    def meta(a: TensorProxy, index: TensorProxy, value: TensorProxy, dim: int) -> TensorProxy:
        _check_index(name, index)
        _check_dim(name, a, dim)
        if value.dtype is not a.dtype:
            raise OperatorError(f"{name}(): self and source expected to have the same dtype")
        count = index.shape[0] if index.shape else 1
        if len(index.shape) > 1 or (value.shape and value.shape != _replaced(a.shape, dim, (count,))):
            raise OperatorError(f"{name}: {value.shape} are not {index.shape} slices of {a.shape}")
        return like_meta(a)

    return primitive(
        name,
        meta,
        eager=lambda a, index, value, dim: eager(a, dim, index, value),
        in_place=by_dim_last(getattr(torch.Tensor, f"{name}_"), restoring_rows),
        batch=batched.indexed_write,
        tags=_AT_INDEX,
    )


index_add = _indexed_write("index_add", torch.index_add)
index_copy = _indexed_write("index_copy", torch.index_copy)


def _index_put_meta(
    a: TensorProxy, indices: Sequence[Any], values: TensorProxy, accumulate: bool
) -> TensorProxy:
    if values.dtype is not a.dtype:
        raise OperatorError(
            f"Index put requires the source and destination dtypes match, got {values.type_string()}"
        )
    if len(indices) > len(a.shape):
        raise OperatorError(f"too many indices for tensor of dimension {len(a.shape)} (got {len(indices)})")
    return like_meta(a)


def _index_put_eager(
    a: torch.Tensor, indices: Sequence[Any], values: torch.Tensor, accumulate: bool
) -> torch.Tensor:
    return torch.ops.aten.index_put(a, list(indices), values, accumulate)  # type: ignore[no-any-return]


index_put = primitive(
    "index_put",
    _index_put_meta,
    eager=_index_put_eager,
    in_place=part(put, restoring_put, keeps_layout=True),
    tags=_AT_INDEX,
    batch=batched.index_put,
)


def _index_eager(a: torch.Tensor, indices: Sequence[Any]) -> torch.Tensor:
    return torch.ops.aten.index(a, list(indices))  # type: ignore[no-any-return]


def _by_equal_indices(a: TensorProxy, indices: Sequence[Any]) -> TensorProxy | None:
    """Return the result of an index of integers of one shape for neighbouring dimensions; else None."""
    used = [d for d, i in enumerate(indices) if i is not None]
    given = [indices[d] for d in used]
    if used != [*range(used[0], used[0] + len(used))] or len(indices) > len(a.shape) or not all(a.shape):
        return None
    if any(i.dtype is not int64 or i.device is not a.device or i.shape != given[0].shape for i in given):
        return None
    shape = (*a.shape[: used[0]], *given[0].shape, *a.shape[used[-1] + 1 :])
    return TensorProxy(shape=shape, device=a.device, dtype=a.dtype)


_index_shape = torch_meta(_index_eager, usual=_by_equal_indices)


def _index_meta(a: TensorProxy, indices: Sequence[Any]) -> TensorProxy:
    """``a[i, :, j]`` with integer tensors for some of the dimensions, None for the others."""
    if any(i is not None and i.dtype is bool8 for i in indices):
        raise OperatorError("a boolean index gives a tensor whose shape depends on data")
    used = [(d, i) for d, i in enumerate(indices) if i is not None]
    if len(used) == 1:
        d, i = used[0]
        return TensorProxy(shape=_replaced(a.shape, d, i.shape), device=a.device, dtype=a.dtype)
    return _index_shape(a, indices)  # type: ignore[no-any-return]


index = primitive(
    "index",
    _index_meta,
    eager=_index_eager,
    tags=_AT_INDEX,
    batch=batched.index,
)


def _dynamic_select_meta(a: TensorProxy, index: TensorProxy, dim: int) -> TensorProxy:
    _check_dim("dynamic_select", a, dim)
    if index.shape or not a.shape[dim]:
        raise OperatorError(
            f"dynamic_select of {index.type_string()} in dimension {dim} of {a.type_string()}"
        )
    return TensorProxy(shape=_replaced(a.shape, dim, ()), device=a.device, dtype=a.dtype)


def _dynamic_select_eager(a: torch.Tensor, index: torch.Tensor, dim: int) -> torch.Tensor:
    # of a tensor without data only the strides are read, which are the same at each position
    without_data = index.is_meta or isinstance(index, FakeTensor)
    return a.select(dim, 0 if without_data else int(index))


def _with_selected(call: BoundSymbol, base: TensorProxy, value: TensorProxy) -> TensorProxy:
    _, index, dim = call.args
    index = index if index.dtype is int64 else convert_element_type(index, int64)
    return index_put(base, [*[None] * dim, index], value, False)  # type: ignore[no-any-return]


#: the view ``a.select(dim, index)``, where ``index`` is a tensor without dimensions
dynamic_select = primitive(
    "dynamic_select",
    _dynamic_select_meta,
    eager=_dynamic_select_eager,
    tags=(OpTags.VIEW, OpTags.CHEAP_TO_RECOMPUTE),
    view=ViewRule(inverse=_with_selected),
    batch=batched.dynamic_select,
)


def _setitem_eager(a: torch.Tensor, key: Any, value: Any) -> torch.Tensor:
    out = a.clone()
    out[tuple(key) if isinstance(key, list) else key] = value
    return out


def _copy_with_setitem_meta(a: TensorProxy, key: Any, value: Any) -> TensorProxy:
    result = like_meta(a)
    torch_meta(_setitem_eager)(a, key, value)
    return result


#: a copy of ``a`` after ``a[key] = value``
copy_with_setitem = primitive(
    "copy_with_setitem",
    _copy_with_setitem_meta,
    eager=_setitem_eager,
    in_place=part(set_item, restoring_items, keeps_layout=True),
    batch=batched.copy_with_setitem,
)


def _triangle(name: str, eager: Callable[..., Any]) -> Symbol:
    def meta(a: TensorProxy, diagonal: int) -> TensorProxy:
        if len(a.shape) < 2:
            raise OperatorError(f"{name}: input tensor must have at least 2 dimensions")
        return like_meta(a)

    return primitive(
        name, meta, eager=eager, eager_path=f"torch.{name}", tags=(OpTags.SHAPE_OP,), batch=of_each_example
    )


tril = _triangle("tril", torch.tril)
triu = _triangle("triu", torch.triu)
