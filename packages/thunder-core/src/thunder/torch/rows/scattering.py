"""Gather, scatter and masks."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from thunder.base.dtypes import int64
from thunder.base.errors import OperatorError
from thunder.base.tags import OpTags
from thunder.ir.proxies import TensorProxy, pytype
from thunder.ops import prims
from thunder.ops.casting import cast
from thunder.ops.in_place import part, put, restoring_items, restoring_places, restoring_put, restoring_rows
from thunder.ops.layout_rules import REORDERED
from thunder.ops.prims.linalg import broadcast_shapes
from thunder.ops.promotion import result_dtype
from thunder.torch.argument_binding import BindingError
from thunder.torch.batch_rules.batched_kernels import at_dim
from thunder.torch.broadcasting import broadcast_to_shape, canonical_dim, on_one_device
from thunder.torch.registration import method_and_inplace, torchsymbol
from thunder.torch.rows.positions import index_tensors
from thunder.torch.rows.shape import reshape
from thunder.torch.sized_calls import refuse_sizes

SCATTERS = (OpTags.NO_OVERLAP_BUT_FIRST,)


def _scatters(name: str, restoring: Callable[..., Any], *tags: OpTags) -> dict[str, Any]:
    """Return the facts of a function that writes some elements of its first argument."""
    form = partial(part, restoring=restoring)
    return {"layout": REORDERED, "tags": (*SCATTERS, *tags), **method_and_inplace(name, form)}


def _index(index: TensorProxy) -> TensorProxy:
    return cast(index, int64) if index.dtype.is_integer else index


@torchsymbol("torch.gather", methods=("gather",), tags=(OpTags.NO_OVERLAP,))
def gather(input: TensorProxy, dim: int, index: TensorProxy) -> TensorProxy:
    """``out[i][j] = input[index[i][j]][j]`` for ``dim`` 0."""
    return prims.gather(input, index, canonical_dim(dim, len(input.shape)))


@torchsymbol("torch.index_select", methods=("index_select",), tags=(OpTags.NO_OVERLAP,))
def index_select(input: TensorProxy, dim: int, index: TensorProxy) -> TensorProxy:
    """The slices of a dimension at the indices in a vector."""
    if len(index.shape) > 1:
        raise OperatorError("index_select(): Index is supposed to be a vector")
    d = canonical_dim(dim, len(input.shape))
    if not input.shape:
        return prims.reshape(prims.take(reshape(input, (1,)), reshape(index, (-1,)), 0), ())
    return prims.take(input, reshape(index, (-1,)) if not index.shape else index, d)


@torchsymbol("torch.take", methods=("take",), tags=(OpTags.NO_OVERLAP,))
def take(input: TensorProxy, index: TensorProxy) -> TensorProxy:
    """Elements of the flat tensor."""
    return prims.take(reshape(input, (-1,)), _from_front(index, math.prod(input.shape)), 0)


def _from_front(index: TensorProxy, length: int) -> TensorProxy:
    """Return the index with negative positions counted from the front."""
    return prims.where(prims.lt(index, 0), prims.add(index, length), index)


def _take_along_spelling(
    input: Any, indices: Any, dim: int | None = None
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    return (input, indices, dim), {}


@torchsymbol("torch.take_along_dim", methods=("take_along_dim",), spelling=_take_along_spelling)
def take_along_dim(input: TensorProxy, indices: TensorProxy, dim: int | None = None) -> TensorProxy:
    """``gather`` with the other dimensions broadcast; or of the flat tensors without ``dim``."""
    if dim is None:
        # torch counts from the end only with a dimension
        return prims.gather(reshape(input, (-1,)), reshape(indices, (-1,)), 0)
    d = canonical_dim(dim, len(input.shape))
    if len(input.shape) != len(indices.shape):
        raise OperatorError(
            "torch.take_along_dim(): input and indices should have the same number of dimensions, "
            f"but got {len(input.shape)} dimensions for input, "
            f"and {len(indices.shape)} dimensions for indices"
        )
    one = (1,)
    common = broadcast_shapes(
        input.shape[:d] + one + input.shape[d + 1 :], indices.shape[:d] + one + indices.shape[d + 1 :]
    )
    shapes = [(*common[:d], t.shape[d], *common[d + 1 :]) for t in (input, indices)]
    index = _from_front(broadcast_to_shape(indices, shapes[1]), input.shape[d])
    return prims.gather(broadcast_to_shape(input, shapes[0]), index, d)


# -- scatter -------------------------------------------------------------------------------------------------


def _scatter_spelling(
    input: Any, dim: int, index: Any, src: Any = None, *, value: Any = None, reduce: str | None = None
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if src is None and value is None:
        raise BindingError("scatter() missing 1 required positional arguments: 'src'")
    return (input, dim, index, value if src is None else src), {} if reduce is None else {"reduce": reduce}


@torchsymbol("torch.scatter", spelling=_scatter_spelling, **_scatters("scatter", restoring_places))
def scatter(
    input: TensorProxy, dim: int, index: TensorProxy, src: Any, *, reduce: str | None = None
) -> TensorProxy:
    """``out[index[i][j]][j] = src[i][j]`` for ``dim`` 0; other elements are the input's."""
    if reduce is not None:
        return _reduced(input, dim, index, src, reduce)
    return prims.scatter(input, _as_index(index), src, canonical_dim(dim, len(input.shape)))


def _reduced(input: TensorProxy, dim: int, index: TensorProxy, src: Any, reduce: str) -> TensorProxy:
    """``scatter`` with a reduction, under older names than ``scatter_reduce``; takes numbers."""
    reductions = {"add": "sum", "multiply": "prod"}
    if reduce not in reductions:
        raise OperatorError("reduce argument must be either add or multiply.")
    if not isinstance(src, TensorProxy):
        src = prims.full(index.shape, src, device=input.device, dtype=input.dtype)
    return scatter_reduce(input, dim, index, src, reductions[reduce])


@torchsymbol("torch.scatter_add", **_scatters("scatter_add", restoring_places))
def scatter_add(input: TensorProxy, dim: int, index: TensorProxy, src: TensorProxy) -> TensorProxy:
    """``scatter`` that adds to the input."""
    return prims.scatter_add(input, _as_index(index), src, canonical_dim(dim, len(input.shape)))


def _as_index(index: TensorProxy) -> TensorProxy:
    """Return an index as integers if it is empty; torch asks only others for their dtype."""
    return index if index.numel() else cast(index, int64)


_REDUCES = ("sum", "prod", "mean", "amax", "amin")


@torchsymbol(
    "torch.scatter_reduce",
    prim=True,
    batch=at_dim,
    **_scatters("scatter_reduce", restoring_places, OpTags.RAISES_ON_DATA),
)
def scatter_reduce(
    input: TensorProxy,
    dim: int,
    index: TensorProxy,
    src: TensorProxy,
    reduce: str,
    *,
    include_self: bool = True,
) -> TensorProxy:
    """``scatter`` with a reduction of elements of one index: sum, prod, mean, amax, amin."""
    if reduce not in _REDUCES or src.dtype is not input.dtype or not index.dtype.is_integer:
        raise OperatorError(f"reduce argument must be either sum, prod, mean, amax or amin, got {reduce}.")
    canonical_dim(dim, len(input.shape))
    return TensorProxy(shape=input.shape, device=input.device, dtype=input.dtype)


# -- indexed writes ------------------------------------------------------------------------------------------


@torchsymbol("torch.index_add", **_scatters("index_add", restoring_rows))
def index_add(
    input: TensorProxy, dim: int, index: TensorProxy, source: TensorProxy, *, alpha: Any = 1
) -> TensorProxy:
    """``input`` with ``alpha`` times each slice of ``source`` added to the slice at its index."""
    value = source if type(alpha) is int and alpha == 1 else prims.mul(source, alpha)
    return prims.index_add(input, index, value, canonical_dim(dim, len(input.shape)))


@torchsymbol("torch.index_copy", **_scatters("index_copy", restoring_rows))
def index_copy(input: TensorProxy, dim: int, index: TensorProxy, source: TensorProxy) -> TensorProxy:
    """``input`` with the slices at the index replaced by those of ``source``."""
    return prims.index_copy(input, index, source, canonical_dim(dim, len(input.shape)))


@torchsymbol(
    "torch.index_fill",
    tags=(OpTags.READS_NUMBER_FIRST, OpTags.RAISES_ON_DATA, OpTags.ASSERTS_ON_GPU),
    **method_and_inplace("index_fill", partial(part, restoring=restoring_rows)),
)
def index_fill(input: TensorProxy, dim: int, index: TensorProxy, value: Any) -> TensorProxy:
    """``input`` with the slices at the index filled with one value."""
    if isinstance(value, TensorProxy) and value.shape:
        raise OperatorError("index_fill_ only supports a 0-dimensional value tensor")
    d = canonical_dim(dim, len(input.shape))
    count = math.prod(index.shape)
    shape = (*input.shape[:d], count, *input.shape[d + 1 :]) if input.shape else ()
    if isinstance(value, TensorProxy):
        filled = broadcast_to_shape(cast(value, input.dtype), shape)
    else:
        filled = prims.full(shape, value, device=input.device, dtype=input.dtype)
    return prims.index_copy(input, index, filled, d)


def _index_put_spelling(
    input: Any, indices: Any, values: Any, accumulate: bool = False
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    masked = any(isinstance(i, TensorProxy) and i.dtype.is_bool for i in indices)
    if masked and not _is_choice(input, indices, values, accumulate):
        indices = index_tensors(input, indices)
    return (input, list(indices), values, accumulate), {}


def _is_choice(input: TensorProxy, indices: Sequence[Any], values: TensorProxy, accumulate: bool) -> bool:
    is_whole = len(indices) == 1 and indices[0].dtype.is_bool and indices[0].shape == input.shape
    return is_whole and not values.shape and not accumulate


@torchsymbol(
    "torch.index_put",
    spelling=_index_put_spelling,
    methods=("index_put",),
    inplace=("index_put_",),
    in_place=part(put, restoring_put, keeps_layout=True),
    inplace_functions=("torch.index_put_",),
    tags=SCATTERS,
)
def index_put(
    input: TensorProxy, indices: Sequence[TensorProxy], values: TensorProxy, accumulate: bool = False
) -> TensorProxy:
    """``input`` after ``input[indices] = values``."""
    if any(i.dtype.is_bool for i in indices):
        if not _is_choice(input, indices, values, accumulate):
            raise refuse_sizes("torch.index_put through a boolean mask")
        return prims.where(indices[0], broadcast_to_shape(values, input.shape), input)
    return prims.index_put(input, [_index(i) for i in indices], values, accumulate)


# -- masks and triangles -------------------------------------------------------------------------------------


@torchsymbol(
    "torch.masked_fill",
    layout=REORDERED,
    tags=(OpTags.READS_NUMBER_FIRST,),
    integers="values",
    **method_and_inplace("masked_fill"),
)
def masked_fill(input: TensorProxy, mask: TensorProxy, value: Any) -> TensorProxy:
    """``value`` where the mask is True, else the input."""
    if not mask.dtype.is_bool:
        raise OperatorError(
            f"masked_fill_ only supports boolean masks, but got mask with dtype {mask.dtype.torch_dtype}"
        )
    if isinstance(value, TensorProxy) and value.shape:
        raise OperatorError(
            "masked_fill_ only supports a 0-dimensional value tensor, "
            f"but got tensor with {len(value.shape)} dimension(s)."
        )
    if isinstance(value, TensorProxy):
        value = cast(on_one_device((input, value))[1], input.dtype)
    elif result_dtype(input, pytype(value)(0)) is not input.dtype and not _fits(value, input):
        raise OperatorError(f"value cannot be converted to type {input.dtype.torch_dtype} without overflow")
    shape = broadcast_shapes(input.shape, mask.shape)
    a, held = broadcast_to_shape(input, shape), broadcast_to_shape(mask, shape)
    if isinstance(value, TensorProxy):
        value = broadcast_to_shape(value, shape)
    elif not isinstance(value, bool) and input.dtype.is_bool:
        value = bool(value)
    return prims.where(held, value, a)


def _fits(value: Any, input: TensorProxy) -> bool:
    """Return whether a number of a higher category is a value of the input's type.

    1.0 is one of integers; every number is one of bool.
    """
    return input.dtype.is_bool or (isinstance(value, float) and math.isfinite(value))


@torchsymbol("torch.tril", layout=REORDERED, tags=(OpTags.SHAPE_OP,), **method_and_inplace("tril"))
def tril(input: TensorProxy, diagonal: int = 0) -> TensorProxy:
    """The lower triangle, zeros above it."""
    return prims.tril(input, diagonal)


@torchsymbol("torch.triu", layout=REORDERED, tags=(OpTags.SHAPE_OP,), **method_and_inplace("triu"))
def triu(input: TensorProxy, diagonal: int = 0) -> TensorProxy:
    """The upper triangle, zeros below it."""
    return prims.triu(input, diagonal)


@torchsymbol(
    "torch.masked_scatter",
    prim=True,
    **_scatters(
        "masked_scatter",
        lambda a, mask, _: restoring_items(a, mask.expand_as(a), None),
        OpTags.RAISES_ON_DATA,
    ),
)
def masked_scatter(input: TensorProxy, mask: TensorProxy, source: TensorProxy) -> TensorProxy:
    """The elements of ``source`` in order where the mask is True, else the input."""
    if not mask.dtype.is_bool or source.dtype is not input.dtype:
        raise OperatorError(
            "masked_scatter: expected self and source to have same dtypes, and a boolean mask"
        )
    shape = broadcast_shapes(input.shape, mask.shape)
    return TensorProxy(shape=shape, device=input.device, dtype=input.dtype)
