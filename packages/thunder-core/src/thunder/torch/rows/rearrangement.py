"""Tensors repeated, turned, and written to diagonals."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from thunder.base.dtypes import int64
from thunder.base.errors import OperatorError
from thunder.base.tags import OpTags
from thunder.ir.proxies import TensorProxy
from thunder.ops import prims
from thunder.ops.layout_rules import BY_KERNEL
from thunder.torch.argument_binding import BindingError, unpacked
from thunder.torch.broadcasting import canonical_dim, canonical_dims, integers
from thunder.torch.registration import torch_names, torchsymbol
from thunder.torch.rows.cat_split import narrowed
from thunder.torch.rows.counts import repeated_elements
from thunder.torch.rows.shape import COPY, expand, permute, reshape, transpose, unsqueeze

# -- repeating -----------------------------------------------------------------------------------------------


def _repeat_spelling(input: Any, *repeats: Any, **kwargs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if kwargs:
        (key, value) = kwargs.popitem()
        if kwargs or repeats or key not in ("repeats", "dims"):
            raise BindingError(f"unexpected keyword argument {key!r}")
        repeats = (value,)
    return (input, unpacked(repeats)), {}


@torchsymbol("torch.Tensor.repeat", spelling=_repeat_spelling, integers="sizes", tags=COPY)
def repeat(input: TensorProxy, repeats: Sequence[int]) -> TensorProxy:
    """The tensor ``repeats[d]`` times along each dimension; extra repeats lead."""
    if len(repeats) < len(input.shape) or any(r < 0 for r in repeats):
        raise OperatorError(
            "Number of dimensions of repeat dims can not be smaller than number of dimensions of tensor"
        )
    shape = (1,) * (len(repeats) - len(input.shape)) + input.shape
    if all(r == 1 for r in repeats):
        return prims.clone(reshape(input, shape))
    # (r0, s0, r1, s1, …): each dimension after its count, then both flattened to one
    spread = tuple(x for pair in zip(repeats, shape, strict=True) for x in pair)
    first = len(repeats) - len(input.shape)
    places = tuple(2 * (first + i) + 1 for i in range(len(input.shape)))
    spread_input = prims.broadcast_in_dim(input, spread, places)
    return prims.reshape(spread_input, tuple(r * s for r, s in zip(repeats, shape, strict=True)))


@torchsymbol("torch.tile", methods=("tile",), spelling=_repeat_spelling, tags=COPY)
def tile(input: TensorProxy, dims: Sequence[int]) -> TensorProxy:
    """``repeat``, where missing repeats are 1."""
    return repeat(input, (1,) * (len(input.shape) - len(dims)) + tuple(dims))


@torchsymbol(
    "torch.repeat_interleave", methods=("repeat_interleave",), other_forms=repeated_elements, tags=COPY
)
def repeat_interleave(
    input: TensorProxy, repeats: int, dim: int | None = None, *, output_size: int | None = None
) -> TensorProxy:
    """Each element of a dimension ``repeats`` times in a row."""
    if repeats < 0:
        raise OperatorError("repeats can not be negative")
    a = reshape(input, (-1,)) if dim is None else input
    d = canonical_dim(dim or 0, len(a.shape))
    if not a.shape:
        a = reshape(a, (1,))
    spread = prims.clone(expand(unsqueeze(a, d + 1), (*a.shape[: d + 1], repeats, *a.shape[d + 1 :])))
    return prims.reshape(spread, (*a.shape[:d], a.shape[d] * repeats, *a.shape[d + 1 :]))


# -- turning -------------------------------------------------------------------------------------------------


def _flip_spelling(input: Any, *dims: Any, **kwargs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    return (input, unpacked((kwargs.pop("dims"),) if "dims" in kwargs else dims)), kwargs


@torchsymbol("torch.flip", methods=("flip",), spelling=_flip_spelling, tags=COPY)
def flip(input: TensorProxy, dims: Sequence[int]) -> TensorProxy:
    """Some dimensions in reverse order."""
    canonical = tuple(canonical_dim(d, len(input.shape)) for d in dims)
    return prims.flip(input, canonical) if input.shape else prims.clone(input)


@torch_names("torch.fliplr", methods=("fliplr",))
def fliplr(input: TensorProxy) -> TensorProxy:
    """The second dimension in reverse order."""
    if len(input.shape) < 2:
        raise OperatorError("Input must be >= 2-d.")
    return flip(input, (1,))


@torch_names("torch.flipud", methods=("flipud",))
def flipud(input: TensorProxy) -> TensorProxy:
    """The first dimension in reverse order."""
    if not input.shape:
        raise OperatorError("Input must be >= 1-d.")
    return flip(input, (0,))


@torchsymbol("torch.roll", methods=("roll",), layout=BY_KERNEL, tags=COPY)
def roll(
    input: TensorProxy, shifts: int | Sequence[int], dims: int | Sequence[int] | None = None
) -> TensorProxy:
    """Elements moved along dimensions; those that leave come back at the other end.

    Without dimensions, of the flat tensor.
    """
    shifts = integers(shifts)
    dims = () if dims is None else integers(dims)
    if not dims:
        if len(shifts) != 1:
            raise OperatorError(f"shifts and dimensions must align. shifts: {len(shifts)}, dims:0")
        flat = prims.reshape(input, (math.prod(input.shape),))
        return prims.reshape(_rolled(flat, shifts[0], 0), input.shape)
    if len(dims) != len(shifts):
        raise OperatorError(f"shifts and dimensions must align. shifts: {len(shifts)}, dims:{len(dims)}")
    for shift, d in zip(shifts, dims, strict=True):
        input = _rolled(input, shift, canonical_dim(d, len(input.shape)))
    return input


def _rolled(a: TensorProxy, shift: int, dim: int) -> TensorProxy:
    length = a.shape[dim] if a.shape else 1
    at = (length - shift) % length if length else 0
    if at == 0:
        return prims.clone(a)
    return prims.cat([narrowed(a, dim, at, length), narrowed(a, dim, 0, at)], dim)


@torchsymbol("torch.rot90", methods=("rot90",), tags=COPY)
def rot90(input: TensorProxy, k: int = 1, dims: Sequence[int] = (0, 1)) -> TensorProxy:
    """``k`` quarter turns in the plane of two dimensions."""
    a, b = canonical_dims(dims, len(input.shape))
    if len(input.shape) < 2 or len(dims) != 2:
        raise OperatorError(f"expected total rotation dims == 2, but got dims = {len(dims)}")
    turns = k % 4
    if turns == 0:
        return prims.clone(input)
    if turns == 2:
        return prims.flip(input, (a, b))
    flipped = prims.flip(input, (b if turns == 1 else a,))
    return transpose(flipped, a, b)


# -- diagonals -----------------------------------------------------------------------------------------------


@torchsymbol("torch.diag_embed", methods=("diag_embed",), tags=COPY)
def diag_embed(input: TensorProxy, offset: int = 0, dim1: int = -2, dim2: int = -1) -> TensorProxy:
    """The last dimension on a diagonal of two new dimensions, zeros elsewhere."""
    rank = len(input.shape) + 1
    a, b = canonical_dim(dim1, rank), canonical_dim(dim2, rank)
    if a == b:
        raise OperatorError(f"diagonal dimensions cannot be identical {dim1}, {dim2}")
    if a > b:
        a, b, offset = b, a, -offset
    length = input.shape[-1] + abs(offset)
    low = max(offset, 0), max(-offset, 0)
    # columns hold the values shifted by the offset; a comparison of row and column numbers picks the diagonal
    row = prims.pad(input, 0, [*([(0, 0, 0)] * (rank - 2)), (low[0], low[1], 0)])
    shape = (*input.shape[:-1], length, length)
    spread = prims.broadcast_in_dim(row, shape, (*range(rank - 2), rank - 1))
    numbers = prims.iota(length, start=0, step=1, device=input.device, dtype=int64)
    rows = prims.broadcast_in_dim(prims.add(numbers, offset), shape, (rank - 2,))
    columns = prims.broadcast_in_dim(numbers, shape, (rank - 1,))
    zero = prims.full(shape, 0, device=input.device, dtype=input.dtype)
    full = prims.where(prims.eq(rows, columns), spread, zero)
    order = list(range(rank - 2))
    order.insert(a, rank - 2)
    order.insert(b, rank - 1)
    return permute(full, tuple(order))


@torchsymbol("torch.diag", methods=("diag",), tags=(OpTags.SHAPE_OP,))
def diag(input: TensorProxy, diagonal: int = 0) -> TensorProxy:
    """A matrix's diagonal, or the matrix of a diagonal."""
    if len(input.shape) == 1:
        return diag_embed(input, diagonal)
    if len(input.shape) != 2:
        raise OperatorError(f"diag(): Supports 1D or 2D tensors. Got {len(input.shape)}D")
    return prims.clone(prims.diagonal(input, diagonal, 0, 1))
