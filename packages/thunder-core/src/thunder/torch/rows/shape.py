"""Shapes: other arrangements of a tensor's elements. Most results are views of the input."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from thunder.base import dtypes
from thunder.base.errors import OperatorError
from thunder.base.tags import OpTags
from thunder.ir.proxies import TensorProxy
from thunder.ir.symbolic_sizes import are_same
from thunder.ops import prims
from thunder.ops.casting import cast
from thunder.ops.primitive_batching import batched_shapes as batched
from thunder.ops.promotion import sum_result
from thunder.torch.argument_binding import BindingError, Spelling, unpacked
from thunder.torch.broadcasting import (
    Shape,
    broadcast_to_shape,
    canonical_dim,
    canonical_dims,
    common_shape,
    integers,
)
from thunder.torch.registration import alias, torch_names, torchsymbol
from thunder.torch.rows.casts import contiguous, view_dtype

VIEW = (OpTags.SHAPE_OP, OpTags.VIEW)
OF_LAYOUT = (*VIEW, OpTags.READS_LAYOUT)
MAYBE_VIEW = (OpTags.SHAPE_OP, OpTags.MAYBE_VIEW)
COPY = (OpTags.SHAPE_OP,)


def inferred_shape(shape: Sequence[int], count: int) -> Shape:
    """Return ``shape`` with -1 replaced so that it has ``count`` elements.

    Raises OperatorError.
    """
    shape = tuple(shape)
    if -1 not in shape:
        if math.prod(shape) != count or any(s < 0 for s in shape):
            raise OperatorError(f"shape '{list(shape)}' is invalid for input of size {count}")
        return shape
    at = shape.index(-1)
    rest = math.prod(shape[:at] + shape[at + 1 :])
    if any(s < 0 for s in shape[:at] + shape[at + 1 :]) or (count % rest if rest else True):
        raise OperatorError(f"shape '{list(shape)}' is invalid for input of size {count}")
    return (*shape[:at], count // rest, *shape[at + 1 :])


def _shape_spelling(keyword: str) -> Spelling:
    """Bind ``x.view(2, 3)``, ``x.view((2, 3))`` and ``x.view(size=(2, 3))``."""

    def spelling(input: Any, *values: Any, **kwargs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
        if keyword in kwargs and not values:
            values = (kwargs.pop(keyword),)
        if kwargs:
            raise BindingError(f"unexpected keyword argument {next(iter(kwargs))!r}")
        return (input, unpacked(values)), {}

    return spelling


@torchsymbol(
    "torch.reshape",
    methods=("reshape",),
    spelling=_shape_spelling("shape"),
    integers="sizes",
    tags=MAYBE_VIEW,
)
def reshape(input: TensorProxy, shape: Sequence[int]) -> TensorProxy:
    """The elements in another shape; one length may be -1."""
    new_shape = inferred_shape(shape, math.prod(input.shape))
    # a new tensor even where nothing changes: it may be written, or gradients may be off
    return prims.shallow_copy(input) if are_same(new_shape, input.shape) else prims.reshape(input, new_shape)


def _is_dtype(x: Any) -> bool:
    return isinstance(x, torch.dtype | dtypes.dtype)


def _view_spelling(input: Any, *values: Any, **kwargs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Bind ``x.view(2, 3)``, and ``x.view(torch.int32)``, which has one argument."""
    if "dtype" in kwargs or (len(values) == 1 and _is_dtype(values[0])):
        return (input, values[0] if values else kwargs["dtype"]), {}
    return _shape_spelling("size")(input, *values, **kwargs)


@torchsymbol("torch.Tensor.view", spelling=_view_spelling, integers="sizes", tags=OF_LAYOUT)
def view(input: TensorProxy, size: Any) -> TensorProxy:
    """A view in another shape, or as another dtype."""
    if _is_dtype(size):
        return view_dtype(input, size)
    return prims.view(input, inferred_shape(size, math.prod(input.shape)))


@torchsymbol("torch.Tensor.view_as", tags=OF_LAYOUT)
def view_as(input: TensorProxy, other: TensorProxy) -> TensorProxy:
    """A view in the other's shape."""
    return prims.view(input, inferred_shape(other.shape, math.prod(input.shape)))


@torch_names(methods=("reshape_as",))
def reshape_as(input: TensorProxy, other: TensorProxy) -> TensorProxy:
    """The elements in the other's shape."""
    return reshape(input, other.shape)


@torchsymbol("torch.ravel", methods=("ravel",), tags=MAYBE_VIEW)
def ravel(input: TensorProxy) -> TensorProxy:
    """All elements in one contiguous dimension."""
    return prims.view(contiguous(input), (math.prod(input.shape),))


@torchsymbol("torch.flatten", methods=("flatten",), tags=MAYBE_VIEW)
def flatten(input: TensorProxy, start_dim: int = 0, end_dim: int = -1) -> TensorProxy:
    """Dimensions ``start_dim`` to ``end_dim`` flattened to one."""
    rank = len(input.shape)
    start, end = canonical_dim(start_dim, rank), canonical_dim(end_dim, rank)
    if start > end:
        raise OperatorError("flatten() has invalid args: start_dim cannot come after end_dim")
    if rank and start == end:
        return input
    shape = (*input.shape[:start], math.prod(input.shape[start : end + 1]), *input.shape[end + 1 :])
    return prims.reshape(input, shape)


@torchsymbol("torch.unflatten", methods=("unflatten",), tags=OF_LAYOUT)
def unflatten(input: TensorProxy, dim: int, sizes: Sequence[int]) -> TensorProxy:
    """One dimension split into several."""
    d = canonical_dim(dim, len(input.shape))
    sizes = inferred_shape(sizes, input.shape[d])
    return prims.view(input, (*input.shape[:d], *sizes, *input.shape[d + 1 :]))


# -- broadcasting --------------------------------------------------------------------------------------------


@torchsymbol("torch.Tensor.expand", spelling=_shape_spelling("size"), integers="sizes", tags=VIEW)
def expand(input: TensorProxy, size: Sequence[int]) -> TensorProxy:
    """Dimensions of length 1 repeated without copying; -1 keeps a length."""
    lead = len(size) - len(input.shape)
    if lead < 0:
        raise OperatorError(
            f"the number of sizes provided ({len(size)}) must be greater or equal to the number of "
            f"dimensions in the tensor ({len(input.shape)})"
        )
    shape = []
    for d, length in enumerate(size):
        have = input.shape[d - lead] if d >= lead else None
        if (length == -1 and have is None) or (have not in (None, length, 1) and length != -1):
            raise OperatorError(
                f"The expanded size of the tensor ({length}) does not fit dimension {d} of {size}"
            )
        shape.append(have if length == -1 else length)
    if are_same(tuple(shape), input.shape):
        return prims.shallow_copy(input)
    return broadcast_to_shape(input, tuple(shape))  # type: ignore[arg-type]


@torch_names(methods=("expand_as",))
def expand_as(input: TensorProxy, other: TensorProxy) -> TensorProxy:
    """The input expanded to the other's shape."""
    return expand(input, other.shape)


alias(expand, "torch.broadcast_to", methods=("broadcast_to",))


@torchsymbol("torch.broadcast_tensors", spelling=lambda *tensors: (unpacked(tensors), {}), tags=MAYBE_VIEW)
def broadcast_tensors(*tensors: TensorProxy) -> tuple[TensorProxy, ...]:
    """The tensors expanded to one shape."""
    shape = common_shape([t.shape for t in tensors])
    return tuple(t if t.shape == shape else broadcast_to_shape(t, shape) for t in tensors)


# -- dimensions of length one --------------------------------------------------------------------------------


def _squeeze_spelling(input: Any, dim: Any = None) -> tuple[tuple[Any, ...], dict[str, Any]]:
    return ((input,) if dim is None else (input, dim)), {}


@torchsymbol("torch.squeeze", methods=("squeeze",), spelling=_squeeze_spelling, tags=VIEW)
def squeeze(input: TensorProxy, dim: int | Sequence[int] | None = None) -> TensorProxy:
    """The tensor without dimensions of length 1: all of them, or those of ``dim``."""
    rank = len(input.shape)
    dims = tuple(range(rank)) if dim is None else integers(dim)
    dims = canonical_dims(dims, rank) if dims else ()
    return prims.squeeze(input, tuple(d for d in dims if input.shape[d] == 1))


@torchsymbol("torch.unsqueeze", methods=("unsqueeze",), tags=VIEW)
def unsqueeze(input: TensorProxy, dim: int) -> TensorProxy:
    """The tensor with a new dimension of length 1 at ``dim``."""
    rank = len(input.shape)
    d = canonical_dim(dim, rank + 1)
    shape = (*input.shape[:d], 1, *input.shape[d:])
    old_dims = tuple(i for i in range(rank + 1) if i != d)
    return prims.broadcast_in_dim(input, shape, old_dims)


def _at_least(rank: int, where: Sequence[tuple[int, ...]]) -> Any:
    """Register ``atleast_*d``; ``where[r]`` are the places of new dimensions for rank ``r``."""

    def one(input: TensorProxy) -> TensorProxy:
        if len(input.shape) >= rank:
            return input
        for d in where[len(input.shape)]:
            input = unsqueeze(input, d)
        return input

    @torchsymbol(f"torch.atleast_{rank}d", spelling=lambda *tensors: (tensors, {}), tags=MAYBE_VIEW)
    def symbol(*tensors: Any) -> Any:
        if len(tensors) == 1 and isinstance(tensors[0], TensorProxy):
            return one(tensors[0])
        return tuple(one(t) for t in unpacked(tensors))

    return symbol


atleast_1d = _at_least(1, [(0,)])
atleast_2d = _at_least(2, [(0, 0), (0,)])
atleast_3d = _at_least(3, [(0, 0, 0), (0, 2), (2,)])

# -- order of dimensions -------------------------------------------------------------------------------------


@torchsymbol(
    "torch.transpose",
    "torch.swapaxes",
    "torch.swapdims",
    methods=("transpose", "swapaxes", "swapdims"),
    tags=VIEW,
)
def transpose(input: TensorProxy, dim0: int, dim1: int) -> TensorProxy:
    """Two dimensions exchanged."""
    rank = len(input.shape)
    a, b = canonical_dim(dim0, rank), canonical_dim(dim1, rank)
    order = list(range(rank))
    if rank:
        order[a], order[b] = b, a
    return prims.transpose(input, tuple(order))


@torchsymbol("torch.t", methods=("t",), tags=VIEW)
def t(input: TensorProxy) -> TensorProxy:
    """A matrix transposed; a vector as it is."""
    if len(input.shape) > 2:
        raise OperatorError(f"t() expects a tensor with <= 2 dimensions, but self is {len(input.shape)}D")
    return prims.transpose(input, tuple(reversed(range(len(input.shape)))))


@torchsymbol("torch.permute", methods=("permute",), spelling=_shape_spelling("dims"), tags=VIEW)
def permute(input: TensorProxy, dims: Sequence[int]) -> TensorProxy:
    """The dimensions in another order."""
    rank = len(input.shape)
    if len(dims) != rank:
        raise OperatorError(
            f"permute(sparse_coo): number of dimensions in the tensor input does not match {dims}"
        )
    order = tuple(canonical_dim(d, rank) for d in dims)
    return prims.transpose(input, order)


@torchsymbol("torch.movedim", "torch.moveaxis", methods=("movedim", "moveaxis"), tags=VIEW)
def movedim(input: TensorProxy, source: int | Sequence[int], destination: int | Sequence[int]) -> TensorProxy:
    """Dimensions ``source`` moved to the places ``destination``; the others keep their order."""
    rank = len(input.shape)
    sources = [canonical_dim(d, rank) for d in integers(source)]
    places = [canonical_dim(d, rank) for d in integers(destination)]
    if len(set(sources)) != len(sources) or len(set(places)) != len(places) or len(sources) != len(places):
        raise OperatorError(f"movedim: Invalid source or destination dims: {sources} {places}")
    order = [d for d in range(rank) if d not in sources]
    for place, d in sorted(zip(places, sources, strict=True)):
        order.insert(place, d)
    return prims.transpose(input, tuple(order) if rank else ())


@torch_names(properties=("T",))
def reversed_dims(input: TensorProxy) -> TensorProxy:
    """``x.T``: the dimensions in reverse order."""
    return permute(input, tuple(reversed(range(len(input.shape)))))


@torch_names(properties=("mT",))
def matrix_transpose(input: TensorProxy) -> TensorProxy:
    """``x.mT``: the last two dimensions exchanged."""
    if not input.shape:  # deprecated, and supported, in torch
        return input
    if len(input.shape) < 2:
        raise OperatorError(
            "tensor.mT is only supported on matrices or batches of matrices. "
            f"Got {len(input.shape)}-D tensor."
        )
    return transpose(input, -2, -1)


@torchsymbol("torch.adjoint", methods=("adjoint",), properties=("mH",), tags=VIEW)
def adjoint(input: TensorProxy) -> TensorProxy:
    """The last two dimensions exchanged, conjugated if complex."""
    if not input.shape:
        return conj(input)
    if len(input.shape) < 2:
        raise OperatorError("tensor.adjoint() is only supported on matrices or batches of matrices.")
    rank = len(input.shape)
    swapped = prims.transpose(input, (*range(rank - 2), rank - 1, rank - 2))
    return prims.conj(swapped) if input.dtype.is_complex else swapped


@torch_names(properties=("H",))
def conjugate_transpose(input: TensorProxy) -> TensorProxy:
    """``x.H``, the adjoint of a matrix."""
    if len(input.shape) not in (0, 2):
        raise OperatorError(
            f"tensor.H is only supported on matrices (2-D tensors). Got {len(input.shape)}-D tensor. "
            "For batches of matrices, consider using tensor.mH"
        )
    return adjoint(input)


@torchsymbol("torch.conj", methods=("conj",), tags=VIEW)
def conj(input: TensorProxy) -> TensorProxy:
    """The conjugate; a real tensor itself."""
    return prims.conj(input) if input.dtype.is_complex else input


@torchsymbol("torch.view_as_real", tags=VIEW)
def view_as_real(input: TensorProxy) -> TensorProxy:
    """``(*, n)`` complex → ``(*, n, 2)`` real."""
    return prims.view_as_real(input)


@torchsymbol("torch.view_as_complex", tags=OF_LAYOUT)
def view_as_complex(input: TensorProxy) -> TensorProxy:
    """``(*, n, 2)`` real → ``(*, n)`` complex."""
    return prims.view_as_complex(input)


# -- views by windows and diagonals --------------------------------------------------------------------------


@torch_names("torch.linalg.diagonal")
def linalg_diagonal(A: TensorProxy, *, offset: int = 0, dim1: int = -2, dim2: int = -1) -> TensorProxy:
    """The diagonal of the last two dimensions."""
    return diagonal(A, offset, dim1, dim2)


@torchsymbol("torch.diagonal", methods=("diagonal",), tags=VIEW)
def diagonal(input: TensorProxy, offset: int = 0, dim1: int = 0, dim2: int = 1) -> TensorProxy:
    """The diagonal of two dimensions, as the last dimension."""
    rank = len(input.shape)
    a, b = canonical_dim(dim1, rank), canonical_dim(dim2, rank)
    return prims.diagonal(input, offset, a, b)


@torchsymbol("torch.Tensor.unfold", tags=VIEW)
def unfold(input: TensorProxy, dimension: int, size: int, step: int) -> TensorProxy:
    """Windows along a dimension, each in a new last dimension."""
    if not input.shape:
        return prims.reshape(input, (size,))
    return prims.unfold(input, canonical_dim(dimension, len(input.shape)), size, step)


@torchsymbol("torch.Tensor.sum_to_size", spelling=_shape_spelling("size"))
def sum_to_size(input: TensorProxy, size: Sequence[int]) -> TensorProxy:
    """The sum over the dimensions that broadcasting from ``size`` would repeat."""
    lead = len(input.shape) - len(size)
    if lead < 0 or any(s not in (1, have) for s, have in zip(size, input.shape[max(0, lead) :], strict=True)):
        raise OperatorError(f"size {list(size)} is not expandable to size {list(input.shape)}.")
    once = [lead + d for d, s in enumerate(size) if s == 1 and input.shape[lead + d] != 1]
    dims = (*range(lead), *once)
    if not dims and size:
        return input
    return prims.reshape(prims.sum(cast(input, sum_result(input.dtype)), dims), tuple(size))


@torchsymbol(
    "torch.as_strided",
    methods=("as_strided",),
    prim=True,
    integers="sizes",
    batch=batched.as_strided,
    tags=OF_LAYOUT,
)
def as_strided(
    input: TensorProxy, size: Sequence[int], stride: Sequence[int], storage_offset: int | None = None
) -> TensorProxy:
    """A view by sizes and strides of the input's storage."""
    if len(size) != len(stride):
        raise OperatorError("mismatch in length of strides and shape")
    return TensorProxy(shape=size, device=input.device, dtype=input.dtype)
