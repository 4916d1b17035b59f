"""Concatenation and splitting of tensors."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from itertools import pairwise
from numbers import Integral
from typing import Any

from thunder.base.dtypes import int64
from thunder.base.errors import OperatorError, UnsupportedOperator
from thunder.base.tags import OpTags
from thunder.ir.proxies import TensorProxy, constant_value
from thunder.ir.recorder import UNDECIDED
from thunder.ir.refused_methods import decided, elements
from thunder.ir.symbolic_sizes import SymbolicInt
from thunder.ops import prims
from thunder.ops.casting import cast
from thunder.ops.promotion import result_dtype
from thunder.ops.torch_errors import OperatorIndexError
from thunder.torch.broadcasting import canonical_dim, on_one_device
from thunder.torch.registration import torch_names, torchsymbol
from thunder.torch.rows.shape import COPY, VIEW, atleast_1d, atleast_2d, atleast_3d, reshape, unsqueeze

Tensors = Sequence[TensorProxy]

SEVERAL = (*VIEW, OpTags.SEVERAL_VIEWS)

# -- joining -------------------------------------------------------------------------------------------------


@torchsymbol("torch.cat", "torch.concat", "torch.concatenate", tags=(*COPY, OpTags.NO_OVERLAP))
def cat(tensors: Tensors, dim: int = 0) -> TensorProxy:
    """The tensors joined along a dimension; vectors without elements do not count."""
    if not tensors:
        raise OperatorError("torch.cat(): expected a non-empty list of Tensors")
    dtype = result_dtype(*tensors)
    counted = list(tensors)
    if len({len(t.shape) for t in tensors}) > 1:
        counted = [t for t in tensors if len(t.shape) != 1 or t.shape[0] != 0] or counted
    d = canonical_dim(dim, len(counted[0].shape))
    if any(not t.shape for t in tensors):
        raise OperatorError("zero-dimensional tensor (at position 0) cannot be concatenated")
    return prims.cat([cast(t, dtype) for t in on_one_device(counted)], d)


@torchsymbol("torch.stack", tags=COPY)
def stack(tensors: Tensors, dim: int = 0) -> TensorProxy:
    """The tensors joined along a new dimension."""
    if not tensors:
        raise OperatorError("stack expects a non-empty TensorList")
    if any(t.shape != tensors[0].shape for t in tensors):
        raise OperatorError("stack expects each tensor to be equal size")
    d = canonical_dim(dim, len(tensors[0].shape) + 1)
    dtype = result_dtype(*tensors)
    return prims.cat([unsqueeze(cast(t, dtype), d) for t in on_one_device(tensors)], d)


@torchsymbol("torch.hstack", tags=COPY)
def hstack(tensors: Tensors) -> TensorProxy:
    """The tensors joined along the second dimension, vectors along the first."""
    raised = [atleast_1d(t) for t in tensors]
    return cat(raised, 0 if len(raised[0].shape) == 1 else 1)


@torchsymbol("torch.vstack", "torch.row_stack", tags=COPY)
def vstack(tensors: Tensors) -> TensorProxy:
    """The tensors joined along the first dimension; vectors are rows."""
    return cat([atleast_2d(t) for t in tensors], 0)


@torchsymbol("torch.dstack", tags=COPY)
def dstack(tensors: Tensors) -> TensorProxy:
    """The tensors joined along the third dimension."""
    return cat([atleast_3d(t) for t in tensors], 2)


@torchsymbol("torch.column_stack", tags=COPY)
def column_stack(tensors: Tensors) -> TensorProxy:
    """The tensors joined along the second dimension; vectors are columns."""
    columns = [reshape(t, (math.prod(t.shape), 1)) if len(t.shape) <= 1 else t for t in tensors]
    return cat(columns, 1)


# -- cutting -------------------------------------------------------------------------------------------------


def narrowed(a: TensorProxy, dim: int, start: int, end: int) -> TensorProxy:
    """Return elements ``start`` to ``end`` of a dimension, a view."""
    starts = [0] * len(a.shape)
    ends = list(a.shape)
    starts[dim], ends[dim] = start, end
    return prims.slice_prim(a, starts, ends)


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


@torchsymbol("torch.split", "torch.unsafe_split", methods=("split", "unsafe_split"), tags=SEVERAL)
def split(
    tensor: TensorProxy, split_size_or_sections: int | Sequence[int], dim: int = 0
) -> tuple[TensorProxy, ...]:
    """Pieces of one size (the last may be smaller), or of a list of sizes."""
    _require_dims("split", tensor)
    d = canonical_dim(dim, len(tensor.shape))
    if not isinstance(split_size_or_sections, int | Integral | TensorProxy | SymbolicInt):
        return _pieces(tensor, split_size_or_sections, d)
    is_symbol = isinstance(split_size_or_sections, SymbolicInt)
    size: Any = split_size_or_sections if is_symbol else operator.index(split_size_or_sections)
    length = tensor.shape[d]
    if size < 0 or (size == 0 and length):
        raise OperatorError(f"split expects split_size be non-negative, but got split_size={size}")
    return _pieces(tensor, _lengths(length, size) if length else [0], d)


def _lengths(length: int, size: int) -> list[int]:
    """Return the lengths of pieces of one size, whose number is fixed; the last may be smaller."""
    whole = int((length + size - 1) // size) - 1
    return [*[size] * whole, length - whole * size]


@torchsymbol("torch.split_with_sizes", methods=("split_with_sizes",), tags=SEVERAL)
def split_with_sizes(input: TensorProxy, split_sizes: Sequence[int], dim: int = 0) -> tuple[TensorProxy, ...]:
    """Pieces of these sizes."""
    _require_dims("split_with_sizes", input)
    return _pieces(input, split_sizes, canonical_dim(dim, len(input.shape)))


@torchsymbol("torch.chunk", "torch.unsafe_chunk", methods=("chunk", "unsafe_chunk"), tags=SEVERAL)
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
    return _pieces(input, _lengths(length, size), d)


def _tensor_split_spelling(
    input: Any, indices_or_sections: Any = None, dim: int = 0, *, indices: Any = None, sections: Any = None
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    cuts = next((c for c in (indices_or_sections, indices, sections) if c is not None), None)
    if isinstance(cuts, TensorProxy):
        if cuts.dtype is not int64:
            raise OperatorError("tensor_split expected tensor_indices_or_sections to have dtype of long")
        cuts = _elements(cuts)
    return (input, cuts, dim), {}


def _elements(cuts: TensorProxy) -> Any:
    """Return the number or the numbers in a tensor, where they are known, decided or found."""
    value = constant_value(cuts)
    if value is not None:
        return value.tolist()
    answer = elements(cuts) if cuts.shape else decided("tolist", cuts)
    return cuts if answer is UNDECIDED else answer


@torchsymbol(
    "torch.tensor_split",
    methods=("tensor_split",),
    spelling=_tensor_split_spelling,
    tags=(*VIEW, OpTags.RAISES_ON_DATA),
)
def tensor_split(
    input: TensorProxy, indices_or_sections: int | Sequence[int], dim: int = 0
) -> tuple[TensorProxy, ...]:
    """Pieces of nearly one size, ``indices_or_sections`` in number, or cuts at the indices."""
    _require_dims("tensor_split", input)
    d = canonical_dim(dim, len(input.shape))
    length = input.shape[d]
    if isinstance(indices_or_sections, TensorProxy):
        raise UnsupportedOperator(
            "torch.tensor_split at indices in a tensor gives shapes that depend on data",
            hint="Give the indices as Python integers.",
        )
    if isinstance(indices_or_sections, int | Integral | SymbolicInt):
        n = int(indices_or_sections)
        if n <= 0:
            raise OperatorError(f"number of sections must be larger than 0, got {n}")
        cuts = [i * (length // n) + min(i, length % n) for i in range(1, n)]
    else:
        cuts = list(indices_or_sections)
    bounds = [0, *(_clipped(c, length) for c in cuts), length]
    return tuple(narrowed(input, d, a, max(a, b)) for a, b in pairwise(bounds))


def _clipped(index: int, length: int) -> int:
    return max(0, min(length, index + length if index < 0 else index))


def _split_along(name: str, least: int, dim_of: Callable[[int], int]) -> None:
    """Register ``tensor_split`` along the dimension of ``hsplit``, ``vsplit`` or ``dsplit``."""

    @torch_names(f"torch.{name}", methods=(name,))
    def split_along(input: TensorProxy, *where: Any, **named: Any) -> tuple[TensorProxy, ...]:
        parts = named["sections"] if "sections" in named else named.get("indices")
        parts = parts if named else where[0] if len(where) == 1 else where
        parts = int(parts) if isinstance(parts, SymbolicInt) else parts
        rank = len(input.shape)
        if rank < least:
            raise OperatorError(f"torch.{name} requires a tensor with at least {least} dimensions")
        d = dim_of(rank)
        if isinstance(parts, Integral) and (parts < 1 or input.shape[d] % parts):
            raise OperatorError(
                f"torch.{name} attempted to split along dimension {d}, but the size of the dimension "
                f"{input.shape[d]} is not divisible by the split_size {parts}!"
            )
        return tensor_split(input, parts, d)


_split_along("hsplit", 1, lambda rank: 0 if rank == 1 else 1)
_split_along("vsplit", 2, lambda rank: 0)
_split_along("dsplit", 3, lambda rank: 2)


@torchsymbol("torch.select", methods=("select",), tags=VIEW)
def select(input: TensorProxy, dim: int, index: int) -> TensorProxy:
    """One element of a dimension, which is removed."""
    if not input.shape:
        raise OperatorIndexError("select() cannot be applied to a 0-dim tensor.")
    d = canonical_dim(dim, len(input.shape))
    length = input.shape[d]
    if not -length <= index < length:
        raise OperatorIndexError(
            f"select(): index {index} out of range for tensor of size {list(input.shape)} at dimension {d}"
        )
    at = index % length
    return prims.squeeze(narrowed(input, d, at, at + 1), (d,))


@torchsymbol("torch.unbind", methods=("unbind",), tags=SEVERAL)
def unbind(input: TensorProxy, dim: int = 0) -> tuple[TensorProxy, ...]:
    """All elements of a dimension, which is removed."""
    if not input.shape:
        raise OperatorError("Dimension specified as 0 but tensor has no dimensions")
    d = canonical_dim(dim, len(input.shape))
    return tuple(prims.squeeze(narrowed(input, d, i, i + 1), (d,)) for i in range(input.shape[d]))


@torchsymbol("torch.narrow", methods=("narrow",), integers="sizes", tags=VIEW)
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
