"""Distinct values, counts and repetitions: operators whose results are as long as their data say."""

from __future__ import annotations

from typing import Any

import torch

from thunder.base.errors import OperatorError
from thunder.base.memory_layout import contiguous_strides
from thunder.base.tags import OpTags
from thunder.ir.proxies import TensorProxy
from thunder.ops import prims
from thunder.ops.sized_results import without_sizes
from thunder.torch.broadcasting import canonical_dim
from thunder.torch.fallback.fallback_rows import gradients_by_torch
from thunder.torch.registration import torch_names
from thunder.torch.rows.shape import expand, reshape
from thunder.torch.sized_calls import record_sized, register_sized


def _row_of(n: Any, *args: Any, **kwargs: Any) -> Any:
    """Return the layout of ``n`` elements in a row."""
    return (n,), (1,)


_BINCOUNT = register_sized("torch.bincount", torch.bincount, layout=_row_of, tags=(OpTags.RAISES_ON_DATA,))


@torch_names("torch.bincount", methods=("bincount",))
def bincount(input: TensorProxy, weights: TensorProxy | None = None, minlength: int = 0) -> TensorProxy:
    """``input: (m,)`` → how often each number occurs, or the sums of its weights, ``(n,)``."""
    return record_sized(_BINCOUNT, torch.bincount, (input, weights, minlength))


# -- distinct values -----------------------------------------------------------------------------------------


def _values_differentiable(result: Any) -> Any:
    """Return the result, of which torch has a (refused) gradient of the values alone."""
    for other in result[1:] if isinstance(result, tuple) else ():
        other.requires_grad = False
    return result


def _register_distinct(fn: Any, name: str) -> Any:
    gradients = gradients_by_torch(f"torch.{name}", without_sizes(fn))
    return register_sized(f"torch.{name}", fn, vjp=gradients, layout=_distinct)


def _distinct(
    n: Any,
    input: TensorProxy,
    *,
    return_inverse: bool = False,
    return_counts: bool = False,
    dim: int | None = None,
    sorted: bool = True,
) -> Any:
    """Return the layouts of ``n`` distinct values, and of inverse and counts where asked for.

    Slices are computed with their dimension in front, so that in memory it is the outermost.
    """
    shape = tuple(input.shape)
    if dim is None:
        values, inverse = _row_of(n), shape
    else:
        dim = canonical_dim(dim, len(shape))
        before, after = shape[:dim], shape[dim + 1 :]
        outermost, *inner = contiguous_strides((n, *before, *after))
        strides = (*inner[:dim], outermost, *inner[dim:])
        values, inverse = ((*before, n, *after), strides), shape[dim : dim + 1]
    others = [(inverse, contiguous_strides(inverse))] if return_inverse else []
    others += [_row_of(n)] if return_counts else []
    return (values, *others) if others else values


_UNIQUE = _register_distinct(torch.unique, "unique")
_UNIQUE_CONSECUTIVE = _register_distinct(torch.unique_consecutive, "unique_consecutive")


@torch_names("torch.unique", methods=("unique",))
def unique(
    input: TensorProxy,
    sorted: bool = True,
    return_inverse: bool = False,
    return_counts: bool = False,
    dim: int | None = None,
) -> Any:
    """Return the distinct elements, or slices along ``dim``; where asked for, inverse and counts too."""
    how = {"sorted": sorted, "return_inverse": return_inverse, "return_counts": return_counts, "dim": dim}
    return _values_differentiable(record_sized(_UNIQUE, torch.unique, (input,), how))


@torch_names("torch.unique_consecutive", methods=("unique_consecutive",))
def unique_consecutive(
    input: TensorProxy, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None
) -> Any:
    """Return the elements, or slices along ``dim``, that differ from the one before."""
    how = {"return_inverse": return_inverse, "return_counts": return_counts, "dim": dim}
    return _values_differentiable(record_sized(_UNIQUE_CONSECUTIVE, torch.unique_consecutive, (input,), how))


# -- repetitions ---------------------------------------------------------------------------------------------


def _repeated(repeats: torch.Tensor, output_size: int | None = None) -> torch.Tensor:
    """Return each position ``i`` as often as ``repeats[i]`` says."""
    return torch.repeat_interleave(repeats, output_size=output_size)


_REPEATED = register_sized(
    "ltorch.repeated_positions", _repeated, layout=_row_of, tags=(OpTags.RAISES_ON_DATA,)
)


def repeated_elements(
    input: TensorProxy, repeats: Any = None, dim: int | None = None, *, output_size: int | None = None
) -> Any:
    """Return ``torch.repeat_interleave`` with repeats in a tensor; NotImplemented for a number.

    Of one tensor, which has the repeats, the positions are returned. The steps are those of
    ``aten/src/ATen/native/Repeat.cpp``.
    """
    if repeats is None:
        return record_sized(_REPEATED, _repeated, (input,), {"output_size": output_size})
    if not isinstance(repeats, TensorProxy):
        return NotImplemented
    if dim is None:
        input, dim = reshape(input, (-1,)), 0
    if not input.shape:
        input = reshape(input, (1,))
    dim = canonical_dim(dim, len(input.shape))
    length = input.shape[dim]
    if repeats.shape in ((), (1,)):
        repeats = expand(reshape(repeats, (1,)), (length,))
    elif len(repeats.shape) > 1:
        raise OperatorError("repeats must be 0-dim or 1-dim tensor")
    elif repeats.shape != (length,):
        raise OperatorError(
            "repeats must have the same size as input along dim, but got "
            f"repeats.size(0) = {repeats.shape[0]} and input.size({dim}) = {length}"
        )
    positions = record_sized(_REPEATED, _repeated, (repeats,), {"output_size": output_size})
    return prims.take(input, positions, dim)
