"""Tensors put together, cut apart, repeated and turned."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from thunder.core import prims
from thunder.core.dtypes import int64
from thunder.core.errors import OperatorError, UnsupportedOperator
from thunder.core.promotion import result_dtype
from thunder.core.proxies import TensorProxy
from thunder.core.tags import OpTags
from thunder.torch.broadcasting import canonical_dim, canonical_dims, cast, on_one_device
from thunder.torch.registration import spelt_as, torchsymbol, unpacked
from thunder.torch.shape import (
    COPY,
    VIEW,
    atleast_1d,
    atleast_2d,
    atleast_3d,
    expand,
    permute,
    reshape,
    transpose,
    unsqueeze,
)

Tensors = Sequence[TensorProxy]

# -- joining -------------------------------------------------------------------------------------------------


@torchsymbol("torch.cat", "torch.concat", "torch.concatenate", tags=COPY, autocast="promote")
def cat(tensors: Tensors, dim: int = 0) -> TensorProxy:
    """The tensors one after the other along a dimension; empty vectors (shape ``(0,)``) do not count."""
    if not tensors:
        raise OperatorError("torch.cat(): expected a non-empty list of Tensors")
    dtype = result_dtype(*tensors)
    counted = [t for t in tensors if t.shape != (0,)] or list(tensors[:1])
    d = canonical_dim(dim, len(counted[0].shape))
    if any(not t.shape for t in tensors):
        raise OperatorError("zero-dimensional tensor (at position 0) cannot be concatenated")
    return prims.cat([cast(t, dtype) for t in on_one_device(counted)], d)  # type: ignore[no-any-return]


@torchsymbol("torch.stack", tags=COPY, autocast="promote")
def stack(tensors: Tensors, dim: int = 0) -> TensorProxy:
    """The tensors one after the other along a new dimension."""
    if not tensors:
        raise OperatorError("stack expects a non-empty TensorList")
    if any(t.shape != tensors[0].shape for t in tensors):
        raise OperatorError("stack expects each tensor to be equal size")
    d = canonical_dim(dim, len(tensors[0].shape) + 1)
    dtype = result_dtype(*tensors)
    return prims.cat([unsqueeze(cast(t, dtype), d) for t in on_one_device(tensors)], d)  # type: ignore[no-any-return]


@torchsymbol("torch.hstack", tags=COPY)
def hstack(tensors: Tensors) -> TensorProxy:
    """Along the second dimension; vectors along the first."""
    raised = [atleast_1d(t) for t in tensors]
    return cat(raised, 0 if len(raised[0].shape) == 1 else 1)  # type: ignore[no-any-return]


@torchsymbol("torch.vstack", "torch.row_stack", tags=COPY)
def vstack(tensors: Tensors) -> TensorProxy:
    """Along the first dimension; vectors are rows."""
    return cat([atleast_2d(t) for t in tensors], 0)  # type: ignore[no-any-return]


@torchsymbol("torch.dstack", tags=COPY)
def dstack(tensors: Tensors) -> TensorProxy:
    """Along the third dimension."""
    return cat([atleast_3d(t) for t in tensors], 2)  # type: ignore[no-any-return]


@torchsymbol("torch.column_stack", tags=COPY)
def column_stack(tensors: Tensors) -> TensorProxy:
    """Along the second dimension; vectors are columns."""
    columns = [reshape(t, (math.prod(t.shape), 1)) if len(t.shape) <= 1 else t for t in tensors]
    return cat(columns, 1)  # type: ignore[no-any-return]


# -- cutting -------------------------------------------------------------------------------------------------


def narrowed(a: TensorProxy, dim: int, start: int, end: int) -> TensorProxy:
    """Elements ``start`` to ``end`` of a dimension, a view."""
    starts = [0] * len(a.shape)
    ends = list(a.shape)
    starts[dim], ends[dim] = start, end
    return prims.slice_prim(a, starts, ends)  # type: ignore[no-any-return]


def _pieces(a: TensorProxy, sizes: Sequence[int], dim: int) -> tuple[TensorProxy, ...]:
    if any(s < 0 for s in sizes) or sum(sizes) != a.shape[dim]:
        raise OperatorError(
            f"split_with_sizes expects split_sizes to sum exactly to {a.shape[dim]} "
            f"(input tensor's size at dimension {dim}), but got split_sizes={list(sizes)}"
        )
    pieces, start = [], 0
    for size in sizes:
        pieces.append(narrowed(a, dim, start, start + size))
        start += size
    return tuple(pieces)


def _require_dims(name: str, a: TensorProxy) -> None:
    if not a.shape:
        raise OperatorError(f"{name} expects at least a 1-dimensional tensor")


@torchsymbol("torch.split", "torch.unsafe_split", methods=("split", "unsafe_split"), tags=VIEW)
def split(
    tensor: TensorProxy, split_size_or_sections: int | Sequence[int], dim: int = 0
) -> tuple[TensorProxy, ...]:
    """Pieces of one size (the last may be smaller), or of the given sizes."""
    _require_dims("split", tensor)
    d = canonical_dim(dim, len(tensor.shape))
    size = split_size_or_sections
    if not isinstance(size, int):
        return _pieces(tensor, size, d)
    length = tensor.shape[d]
    if size < 0 or (size == 0 and length):
        raise OperatorError(f"split expects split_size be non-negative, but got split_size={size}")
    sizes = [min(size, length - at) for at in range(0, length, size)] if length else [0]
    return _pieces(tensor, sizes, d)


@torchsymbol("torch.split_with_sizes", methods=("split_with_sizes",), tags=VIEW)
def split_with_sizes(input: TensorProxy, split_sizes: Sequence[int], dim: int = 0) -> tuple[TensorProxy, ...]:
    """Pieces of the given sizes."""
    _require_dims("split_with_sizes", input)
    return _pieces(input, split_sizes, canonical_dim(dim, len(input.shape)))


@torchsymbol("torch.chunk", "torch.unsafe_chunk", methods=("chunk", "unsafe_chunk"), tags=VIEW)
def chunk(input: TensorProxy, chunks: int, dim: int = 0) -> tuple[TensorProxy, ...]:
    """At most ``chunks`` pieces of one size; the last may be smaller."""
    _require_dims("chunk", input)
    if chunks <= 0:
        raise OperatorError(f"chunk expects `chunks` to be greater than 0, got: {chunks}")
    d = canonical_dim(dim, len(input.shape))
    length = input.shape[d]
    size = -(-length // chunks)
    if size == 0:
        return tuple(narrowed(input, d, 0, 0) for _ in range(chunks))
    return _pieces(input, [min(size, length - at) for at in range(0, length, size)], d)


@torchsymbol("torch.tensor_split", methods=("tensor_split",), tags=VIEW)
def tensor_split(
    input: TensorProxy, indices_or_sections: int | Sequence[int], dim: int = 0
) -> tuple[TensorProxy, ...]:
    """That many pieces of nearly one size, or cuts at the indices."""
    _require_dims("tensor_split", input)
    d = canonical_dim(dim, len(input.shape))
    length = input.shape[d]
    if isinstance(indices_or_sections, TensorProxy):
        raise UnsupportedOperator(
            "torch.tensor_split at indices in a tensor gives shapes that depend on data",
            hint="Give the indices as Python integers.",
        )
    if isinstance(indices_or_sections, int):
        n = indices_or_sections
        if n <= 0:
            raise OperatorError(f"number of sections must be larger than 0, got {n}")
        cuts = [i * (length // n) + min(i, length % n) for i in range(1, n)]
    else:
        cuts = list(indices_or_sections)
    bounds = [0, *(_clipped(c, length) for c in cuts), length]
    return tuple(narrowed(input, d, a, max(a, b)) for a, b in pairwise(bounds))


def _clipped(index: int, length: int) -> int:
    return max(0, min(length, index + length if index < 0 else index))


@spelt_as("torch.hsplit", methods=("hsplit",))
def hsplit(input: TensorProxy, indices_or_sections: Any) -> tuple[TensorProxy, ...]:
    """``tensor_split`` along the second dimension; of a vector along the first."""
    if (
        isinstance(indices_or_sections, int)
        and input.shape[-1 if len(input.shape) == 1 else 1] % indices_or_sections
    ):
        raise OperatorError("torch.hsplit attempted to split unevenly")
    return tensor_split(input, indices_or_sections, 0 if len(input.shape) == 1 else 1)  # type: ignore[no-any-return]


@spelt_as("torch.vsplit", methods=("vsplit",))
def vsplit(input: TensorProxy, indices_or_sections: Any) -> tuple[TensorProxy, ...]:
    """``tensor_split`` along the first dimension."""
    if len(input.shape) < 2 or (
        isinstance(indices_or_sections, int) and input.shape[0] % indices_or_sections
    ):
        raise OperatorError("torch.vsplit requires a tensor with at least 2 dimensions, evenly split")
    return tensor_split(input, indices_or_sections, 0)  # type: ignore[no-any-return]


@spelt_as("torch.dsplit", methods=("dsplit",))
def dsplit(input: TensorProxy, indices_or_sections: Any) -> tuple[TensorProxy, ...]:
    """``tensor_split`` along the third dimension."""
    if len(input.shape) < 3 or (
        isinstance(indices_or_sections, int) and input.shape[2] % indices_or_sections
    ):
        raise OperatorError("torch.dsplit requires a tensor with at least 3 dimensions, evenly split")
    return tensor_split(input, indices_or_sections, 2)  # type: ignore[no-any-return]


@torchsymbol("torch.select", methods=("select",), tags=VIEW)
def select(input: TensorProxy, dim: int, index: int) -> TensorProxy:
    """One element of a dimension, which goes."""
    if not input.shape:
        raise IndexError("select() cannot be applied to a 0-dim tensor.")
    d = canonical_dim(dim, len(input.shape))
    length = input.shape[d]
    if not -length <= index < length:
        raise IndexError(
            f"select(): index {index} out of range for tensor of size {list(input.shape)} at dimension {d}"
        )
    at = index % length
    return prims.squeeze(narrowed(input, d, at, at + 1), (d,))  # type: ignore[no-any-return]


@torchsymbol("torch.unbind", methods=("unbind",), tags=VIEW)
def unbind(input: TensorProxy, dim: int = 0) -> tuple[TensorProxy, ...]:
    """All elements of a dimension, which goes."""
    if not input.shape:
        raise OperatorError("Dimension specified as 0 but tensor has no dimensions")
    d = canonical_dim(dim, len(input.shape))
    return tuple(prims.squeeze(narrowed(input, d, i, i + 1), (d,)) for i in range(input.shape[d]))


@torchsymbol("torch.narrow", methods=("narrow",), tags=VIEW)
def narrow(input: TensorProxy, dim: int, start: int, length: int) -> TensorProxy:
    """``length`` elements of a dimension from ``start`` on."""
    if not input.shape:
        raise OperatorError("narrow() cannot be applied to a 0-dim tensor.")
    if isinstance(start, TensorProxy):
        raise UnsupportedOperator(
            "torch.narrow with a start in a tensor", hint="Give the start as a Python integer."
        )
    d = canonical_dim(dim, len(input.shape))
    size = input.shape[d]
    begin = start + size if start < 0 else start
    if length < 0 or not 0 <= begin <= size or begin + length > size:
        raise OperatorError(f"start ({start}) + length ({length}) exceeds dimension size ({size}).")
    return narrowed(input, d, begin, begin + length)


# -- repeating -----------------------------------------------------------------------------------------------


def _repeat_spelling(input: Any, *repeats: Any, **kwargs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if kwargs:
        (key, value) = kwargs.popitem()
        if kwargs or repeats or key not in ("repeats", "dims"):
            raise TypeError(f"unexpected keyword argument {key!r}")
        repeats = (value,)
    return (input, unpacked(repeats)), {}


@torchsymbol("torch.Tensor.repeat", spelling=_repeat_spelling, tags=COPY)
def repeat(input: TensorProxy, repeats: Sequence[int]) -> TensorProxy:
    """The tensor ``repeats[d]`` times along each dimension; further repeats are leading dimensions."""
    if len(repeats) < len(input.shape) or any(r < 0 for r in repeats):
        raise OperatorError(
            "Number of dimensions of repeat dims can not be smaller than number of dimensions of tensor"
        )
    shape = (1,) * (len(repeats) - len(input.shape)) + input.shape
    if all(r == 1 for r in repeats):
        return prims.clone(reshape(input, shape))  # type: ignore[no-any-return]
    # (r0, s0, r1, s1, …): each dimension behind its count, then both made one
    spread = tuple(x for pair in zip(repeats, shape, strict=True) for x in pair)
    first = len(repeats) - len(input.shape)
    places = tuple(2 * (first + i) + 1 for i in range(len(input.shape)))
    spread_input = prims.broadcast_in_dim(input, spread, places)
    return prims.reshape(spread_input, tuple(r * s for r, s in zip(repeats, shape, strict=True)))  # type: ignore[no-any-return]


@torchsymbol("torch.tile", methods=("tile",), spelling=_repeat_spelling, tags=COPY)
def tile(input: TensorProxy, dims: Sequence[int]) -> TensorProxy:
    """As ``repeat``; missing repeats are 1."""
    return repeat(input, (1,) * (len(input.shape) - len(dims)) + tuple(dims))  # type: ignore[no-any-return]


@torchsymbol("torch.repeat_interleave", methods=("repeat_interleave",), tags=COPY)
def repeat_interleave(
    input: TensorProxy, repeats: int, dim: int | None = None, *, output_size: int | None = None
) -> TensorProxy:
    """Each element of a dimension ``repeats`` times in a row."""
    if isinstance(repeats, TensorProxy):
        raise UnsupportedOperator(
            "torch.repeat_interleave with repeats in a tensor gives a shape that depends on data",
            hint="Give the repeats as a Python integer.",
        )
    if repeats < 0:
        raise OperatorError("repeats can not be negative")
    a = reshape(input, (-1,)) if dim is None else input
    d = canonical_dim(dim or 0, len(a.shape))
    if not a.shape:
        a = reshape(a, (1,))
    spread = expand(unsqueeze(a, d + 1), (*a.shape[: d + 1], repeats, *a.shape[d + 1 :]))
    return prims.reshape(spread, (*a.shape[:d], a.shape[d] * repeats, *a.shape[d + 1 :]))  # type: ignore[no-any-return]


# -- turning -------------------------------------------------------------------------------------------------


def _flip_spelling(input: Any, *dims: Any, **kwargs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    return (input, unpacked((kwargs.pop("dims"),) if "dims" in kwargs else dims)), kwargs


@torchsymbol("torch.flip", methods=("flip",), spelling=_flip_spelling, tags=COPY)
def flip(input: TensorProxy, dims: Sequence[int]) -> TensorProxy:
    """Some dimensions in reverse order."""
    found = tuple(canonical_dim(d, len(input.shape)) for d in dims)
    return prims.flip(input, found) if input.shape else prims.clone(input)


@spelt_as("torch.fliplr", methods=("fliplr",))
def fliplr(input: TensorProxy) -> TensorProxy:
    """The second dimension in reverse order."""
    if len(input.shape) < 2:
        raise OperatorError("Input must be >= 2-d.")
    return flip(input, (1,))  # type: ignore[no-any-return]


@spelt_as("torch.flipud", methods=("flipud",))
def flipud(input: TensorProxy) -> TensorProxy:
    """The first dimension in reverse order."""
    if not input.shape:
        raise OperatorError("Input must be >= 1-d.")
    return flip(input, (0,))  # type: ignore[no-any-return]


@torchsymbol("torch.roll", methods=("roll",), tags=COPY)
def roll(
    input: TensorProxy, shifts: int | Sequence[int], dims: int | Sequence[int] | None = None
) -> TensorProxy:
    """Elements moved along dimensions, those that leave coming back at the other end; without dimensions, of
    the flat tensor.
    """
    shifts = (shifts,) if isinstance(shifts, int) else tuple(shifts)
    if dims is None or dims == ():
        if len(shifts) != 1:
            raise OperatorError(f"shifts and dimensions must align. shifts: {len(shifts)}, dims:0")
        flat = prims.reshape(input, (math.prod(input.shape),))
        return prims.reshape(_rolled(flat, shifts[0], 0), input.shape)  # type: ignore[no-any-return]
    dims = (dims,) if isinstance(dims, int) else tuple(dims)
    if len(dims) != len(shifts):
        raise OperatorError(f"shifts and dimensions must align. shifts: {len(shifts)}, dims:{len(dims)}")
    for shift, d in zip(shifts, dims, strict=True):
        input = _rolled(input, shift, canonical_dim(d, len(input.shape)))
    return input


def _rolled(a: TensorProxy, shift: int, dim: int) -> TensorProxy:
    length = a.shape[dim] if a.shape else 1
    at = (length - shift) % length if length else 0
    if at == 0:
        return prims.clone(a)  # type: ignore[no-any-return]
    return prims.cat([narrowed(a, dim, at, length), narrowed(a, dim, 0, at)], dim)  # type: ignore[no-any-return]


@torchsymbol("torch.rot90", methods=("rot90",), tags=COPY)
def rot90(input: TensorProxy, k: int = 1, dims: Sequence[int] = (0, 1)) -> TensorProxy:
    """``k`` quarter turns in the plane of two dimensions."""
    a, b = canonical_dims(dims, len(input.shape))
    if len(input.shape) < 2 or len(dims) != 2:
        raise OperatorError(f"expected total rotation dims == 2, but got dims = {len(dims)}")
    turns = k % 4
    if turns == 0:
        return prims.clone(input)  # type: ignore[no-any-return]
    if turns == 2:
        return prims.flip(input, (a, b))  # type: ignore[no-any-return]
    flipped = prims.flip(input, (b if turns == 1 else a,))
    return transpose(flipped, a, b)  # type: ignore[no-any-return]


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
    return permute(full, tuple(order))  # type: ignore[no-any-return]


@torchsymbol("torch.diag", methods=("diag",), tags=(OpTags.SHAPE_OP,))
def diag(input: TensorProxy, diagonal: int = 0) -> TensorProxy:
    """A matrix's diagonal, or the matrix of a diagonal."""
    if len(input.shape) == 1:
        return diag_embed(input, diagonal)  # type: ignore[no-any-return]
    if len(input.shape) != 2:
        raise OperatorError(f"diag(): Supports 1D or 2D tensors. Got {len(input.shape)}D")
    return prims.clone(prims.diagonal(input, diagonal, 0, 1))  # type: ignore[no-any-return]
