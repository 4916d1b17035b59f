"""Shape primitives: broadcast, permute, slice, join. Dimensions are not negative."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import torch

from thunder.base.errors import OperatorError
from thunder.base.tags import OpTags
from thunder.ir.proxies import TensorProxy
from thunder.ir.symbol import BoundSymbol, Symbol
from thunder.ops.operator import NONDIFFERENTIABLE
from thunder.ops.primitive_batching import batched_shapes as batched
from thunder.ops.prims.declaration import primitive
from thunder.ops.prims.indexing import copy_with_setitem
from thunder.ops.prims.strided import diagonal_scatter
from thunder.ops.promotion import complex_result, real_result
from thunder.ops.view_rules import Place, ViewRule, with_ones

# fmt: off
__all__ = [
    "broadcast_in_dim", "cat", "conj", "diagonal", "flip", "pad", "reshape", "shape", "slice_prim",
    "squeeze", "transpose", "unfold", "view", "view_as_complex", "view_as_real",
]
# fmt: on

Shape = tuple[int, ...]
_VIEW = (OpTags.SHAPE_OP, OpTags.VIEW)
_CHEAP_VIEW = (*_VIEW, OpTags.CHEAP_TO_RECOMPUTE)
_MAYBE_VIEW = (OpTags.SHAPE_OP, OpTags.MAYBE_VIEW)
_COPY = (OpTags.SHAPE_OP,)


def _with_shape(a: TensorProxy, shape: Sequence[int]) -> TensorProxy:
    return TensorProxy(shape=shape, device=a.device, dtype=a.dtype)


def _reshaped(call: BoundSymbol, base: TensorProxy, value: TensorProxy) -> TensorProxy:
    return value if value.shape == base.shape else reshape(value, base.shape)


_WITH_ONES = ViewRule(
    inverse=_reshaped,
    place=lambda place, call: with_ones(place, call.output.shape),
    argument=lambda place, call: with_ones(place, call.args[0].shape),
)


def _check_dims(a: TensorProxy, dims: Sequence[int], what: str) -> None:
    rank = len(a.shape)
    if len(set(dims)) != len(dims) or not all(0 <= d < rank for d in dims):
        raise OperatorError(f"{what}: {tuple(dims)} are not dimensions of a tensor of shape {a.shape}")


def _broadcast_in_dim_meta(
    a: TensorProxy, shape: Sequence[int], broadcast_dimensions: Sequence[int]
) -> TensorProxy:
    """Dimension ``i`` of ``a`` becomes dimension ``broadcast_dimensions[i]`` of the result."""
    if len(broadcast_dimensions) != len(a.shape):
        raise OperatorError(
            f"broadcast_in_dim: {len(broadcast_dimensions)} dimensions for a tensor of shape {a.shape}"
        )
    for size, d in zip(a.shape, broadcast_dimensions, strict=True):
        if size is not shape[d] and size != 1 and size != shape[d]:
            raise OperatorError(f"shape {a.shape} cannot be broadcast to {tuple(shape)}")
    return _with_shape(a, shape)


def _broadcast_in_dim_eager(
    a: torch.Tensor, shape: Sequence[int], broadcast_dimensions: Sequence[int]
) -> torch.Tensor:
    placed = [1] * len(shape)
    for size, d in zip(a.shape, broadcast_dimensions, strict=True):
        placed[d] = size
    for d in range(len(shape)):
        if d not in broadcast_dimensions:
            a = a.unsqueeze(d)
    return a.expand(shape)


def _once(call: BoundSymbol, base: TensorProxy, value: TensorProxy) -> TensorProxy:
    if value.numel() != base.numel():
        raise OperatorError(
            "unsupported operation: more than one element of the written-to tensor refers to a single memory "
            "location. Please clone() the tensor before performing the operation."
        )
    return _reshaped(call, base, value)


broadcast_in_dim = primitive(
    "broadcast_in_dim",
    _broadcast_in_dim_meta,
    eager=_broadcast_in_dim_eager,
    tags=(*_VIEW, OpTags.POINTWISE_OP),
    view=replace(_WITH_ONES, inverse=_once),
    batch=batched.broadcast_in_dim,
)


def _cat_meta(tensors: Sequence[TensorProxy], dim: int) -> TensorProxy:
    first = tensors[0]
    _check_dims(first, (dim,), "cat")
    total = 0
    for t in tensors:
        if t.dtype is not first.dtype or len(t.shape) != len(first.shape):
            raise OperatorError(f"cat of {first.type_string()} and {t.type_string()}")
        if t.shape[:dim] != first.shape[:dim] or t.shape[dim + 1 :] != first.shape[dim + 1 :]:
            raise OperatorError(f"cat: shapes {first.shape} and {t.shape} differ outside dimension {dim}")
        total += t.shape[dim]
    return _with_shape(first, (*first.shape[:dim], total, *first.shape[dim + 1 :]))


cat = primitive(
    "cat",
    _cat_meta,
    eager=torch.cat,
    eager_path="torch.cat",
    tags=_COPY,
    batch=batched.cat,
)


def _flip_meta(a: TensorProxy, dims: Sequence[int]) -> TensorProxy:
    _check_dims(a, dims, "flip")
    return _with_shape(a, a.shape)


flip = primitive(
    "flip",
    _flip_meta,
    eager=torch.flip,
    eager_path="torch.flip",
    tags=(*_COPY, OpTags.CHEAP_TO_RECOMPUTE),
    batch=batched.over_dims,
)


def _pad_meta(a: TensorProxy, value: float, padding: Sequence[tuple[int, int, int]]) -> TensorProxy:
    """``padding`` has ``(low, high, interior)`` for each dimension; negative low and high cut."""
    if len(padding) != len(a.shape):
        raise OperatorError(f"pad: {len(padding)} entries for the dimensions of shape {a.shape}")
    shape = []
    for size, (low, high, interior) in zip(a.shape, padding, strict=True):
        if interior < 0 or low + high + size + max(0, size - 1) * interior < 0:
            raise OperatorError(
                f"pad: ({low}, {high}, {interior}) removes more than the {size} elements of a dimension"
            )
        shape.append(low + high + size + max(0, size - 1) * interior)
    return _with_shape(a, shape)


def _pad_eager(a: torch.Tensor, value: float, padding: Sequence[tuple[int, int, int]]) -> torch.Tensor:
    spread = [size + max(0, size - 1) * i for size, (_, _, i) in zip(a.shape, padding, strict=True)]
    if spread != list(a.shape):
        out = a.new_full(spread, value)
        out[tuple(slice(None, None, i + 1) for _, _, i in padding)] = a
        a = out
    pairs = [x for low, high, _ in reversed(padding) for x in (low, high)]
    return torch.constant_pad_nd(a, pairs, value)


pad = primitive(
    "pad",
    _pad_meta,
    eager=_pad_eager,
    tags=_COPY,
    batch=batched.pad,
)


def _reshape_meta(a: TensorProxy, shape: Sequence[int]) -> TensorProxy:
    if math.prod(shape) != math.prod(a.shape):
        raise OperatorError(f"shape '{list(shape)}' is invalid for input of size {math.prod(a.shape)}")
    return _with_shape(a, shape)


reshape = primitive(
    "reshape",
    _reshape_meta,
    eager=torch.reshape,
    eager_path="torch.reshape",
    tags=(*_MAYBE_VIEW, OpTags.CHEAP_TO_RECOMPUTE),
    view=_WITH_ONES,
    batch=batched.reshape,
)
view = primitive(
    "view",
    _reshape_meta,
    eager=torch.Tensor.view,
    eager_path="torch.Tensor.view",
    tags=_CHEAP_VIEW,
    view=ViewRule(inverse=_reshaped),
    batch=batched.reshape,
)


def _slice_meta(
    a: TensorProxy, starts: Sequence[int], ends: Sequence[int], strides: Sequence[int] | None = None
) -> TensorProxy:
    """``0 <= start <= end <= size`` in each dimension; strides are positive."""
    strides = strides or [1] * len(a.shape)
    shape = []
    for size, start, end, step in zip(a.shape, starts, ends, strides, strict=True):
        if not 0 <= start <= end <= size or step < 1:
            raise OperatorError(f"slice [{start}:{end}:{step}] of {size} elements")
        shape.append((end - start + step - 1) // step)
    return _with_shape(a, shape)


def _slice_eager(
    a: torch.Tensor, starts: Sequence[int], ends: Sequence[int], strides: Sequence[int] | None = None
) -> torch.Tensor:
    steps = strides or [1] * a.dim()
    return a[tuple(slice(s, e, step) for s, e, step in zip(starts, ends, steps, strict=True))]


def _with_slice(call: BoundSymbol, base: TensorProxy, value: TensorProxy) -> TensorProxy:
    _, starts, ends, steps = call.args
    steps = steps or (1,) * len(starts)
    key = tuple(slice(*bounds) for bounds in zip(starts, ends, steps, strict=True))
    return copy_with_setitem(base, key, value)  # type: ignore[no-any-return]


def _place_of_slice(place: Place, call: BoundSymbol) -> Place | None:
    numbers = (n for part in call.args[1:] if part is not None for n in part)
    return _slice_eager(place, *call.args[1:]) if all(type(n) is int for n in numbers) else None


slice_prim = primitive(
    "slice_prim",
    _slice_meta,
    eager=_slice_eager,
    tags=_CHEAP_VIEW,
    view=ViewRule(inverse=_with_slice, place=_place_of_slice),
    short_id="SLICE",
    batch=batched.slice_prim,
)


def _squeeze_meta(a: TensorProxy, dims: Sequence[int]) -> TensorProxy:
    _check_dims(a, dims, "squeeze")
    if any(a.shape[d] != 1 for d in dims):
        raise OperatorError(f"squeeze: dimensions {tuple(dims)} of shape {a.shape} are not all of length 1")
    return _with_shape(a, [s for d, s in enumerate(a.shape) if d not in dims])


squeeze = primitive(
    "squeeze",
    _squeeze_meta,
    eager=torch.squeeze,
    eager_path="torch.squeeze",
    tags=_CHEAP_VIEW,
    view=_WITH_ONES,
    batch=batched.over_dims,
)


def _transpose_meta(a: TensorProxy, permutation: Sequence[int]) -> TensorProxy:
    _check_dims(a, permutation, "transpose")
    if len(permutation) != len(a.shape):
        raise OperatorError(
            f"transpose: {tuple(permutation)} does not permute the dimensions of shape {a.shape}"
        )
    return _with_shape(a, [a.shape[d] for d in permutation])


def _inverted(permutation: Sequence[int]) -> tuple[int, ...]:
    return tuple(permutation.index(d) for d in range(len(permutation)))


transpose: Symbol = primitive(
    "transpose",
    _transpose_meta,
    eager=torch.permute,
    eager_path="torch.permute",
    tags=_CHEAP_VIEW,
    view=ViewRule(
        inverse=lambda call, base, value: transpose(value, _inverted(call.args[1])),
        place=lambda place, call: place.permute(call.args[1]),
        argument=lambda place, call: place.permute(_inverted(call.args[1])),
    ),
    batch=batched.transpose,
)


def _unfold_meta(a: TensorProxy, dim: int, size: int, step: int) -> TensorProxy:
    _check_dims(a, (dim,), "unfold")
    length = a.shape[dim]
    if not 0 <= size <= length or step < 1:
        raise OperatorError(f"unfold: windows of {size} with step {step} in {length} elements")
    return _with_shape(a, (*a.shape[:dim], (length - size) // step + 1, *a.shape[dim + 1 :], size))


unfold = primitive(
    "unfold",
    _unfold_meta,
    eager=torch.Tensor.unfold,
    eager_path="torch.Tensor.unfold",
    tags=_VIEW,
    batch=batched.unfold,
)


def _diagonal_meta(a: TensorProxy, offset: int, dim1: int, dim2: int) -> TensorProxy:
    _check_dims(a, (dim1, dim2), "diagonal")
    rows, columns = a.shape[dim1], a.shape[dim2]
    length = max(0, min(rows, columns - offset) if offset >= 0 else min(rows + offset, columns))
    return _with_shape(a, [*(s for d, s in enumerate(a.shape) if d not in (dim1, dim2)), length])


diagonal = primitive(
    "diagonal",
    _diagonal_meta,
    eager=torch.diagonal,
    eager_path="torch.diagonal",
    tags=_CHEAP_VIEW,
    view=ViewRule(
        inverse=lambda call, base, value: diagonal_scatter(base, value, *call.args[1:]),
        place=lambda place, call: torch.diagonal(place, *call.args[1:]),
    ),
    batch=batched.diagonal,
)


def _view_as_real_meta(a: TensorProxy) -> TensorProxy:
    if not a.dtype.is_complex:
        raise OperatorError("view_as_real is only supported for complex tensors")
    return TensorProxy(shape=(*a.shape, 2), device=a.device, dtype=real_result(a.dtype))


def _view_as_complex_meta(a: TensorProxy) -> TensorProxy:
    if not a.dtype.is_floating_point or a.shape[-1:] != (2,):
        raise OperatorError("Tensor must have a last dimension of size 2")
    return TensorProxy(shape=a.shape[:-1], device=a.device, dtype=complex_result(a.dtype))


view_as_real = primitive(
    "view_as_real",
    _view_as_real_meta,
    eager=torch.view_as_real,
    eager_path="torch.view_as_real",
    tags=(*_CHEAP_VIEW, OpTags.MAY_MARK),
    view=ViewRule(inverse=lambda call, base, value: view_as_complex(value)),
    batch=batched.of_each_example,
)
view_as_complex: Symbol = primitive(
    "view_as_complex",
    _view_as_complex_meta,
    eager=torch.view_as_complex,
    eager_path="torch.view_as_complex",
    tags=_CHEAP_VIEW,
    view=ViewRule(inverse=lambda call, base, value: view_as_real(value)),
    batch=batched.of_each_example,
)


def _conj_meta(a: TensorProxy) -> TensorProxy:
    if not a.dtype.is_complex:
        raise OperatorError(f"conj of {a.type_string()}")
    return _with_shape(a, a.shape)


conj: Symbol = primitive(
    "conj",
    _conj_meta,
    eager=torch.conj,
    eager_path="torch.conj",
    tags=(*_VIEW, OpTags.POINTWISE_OP, OpTags.MAY_MARK),
    view=ViewRule(inverse=lambda call, base, value: conj(value)),
)


def _shape_meta(t: TensorProxy) -> Shape:
    return tuple(t.shape)


#: the dimensions of a tensor, which are known when the program is compiled
shape = primitive(
    "shape", _shape_meta, python_impl=lambda t: tuple(t.shape), vjp=NONDIFFERENTIABLE, tags=(OpTags.SHAPE_OP,)
)
