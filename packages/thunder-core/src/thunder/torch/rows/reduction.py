"""Reductions: sums, extrema, moments, norms."""

from __future__ import annotations

import builtins
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from thunder.base.dtypes import bool8, int64, uint8
from thunder.base.errors import OperatorError
from thunder.base.tags import OpTags
from thunder.ir.proxies import TensorProxy
from thunder.ir.symbol import Symbol
from thunder.ops import prims
from thunder.ops.casting import cast
from thunder.ops.operator import NONDIFFERENTIABLE
from thunder.ops.promotion import sum_result
from thunder.torch.argument_binding import BindingError
from thunder.torch.broadcasting import canonical_dim, canonical_dims
from thunder.torch.registration import torch_names, torchsymbol
from thunder.torch.rows.binary import maximum, minimum

Dims = int | Sequence[int] | None
REDUCTION = (OpTags.REDUCTION_OP,)
Arguments = tuple[tuple[Any, ...], dict[str, Any]]


def keeping(reduced: TensorProxy, shape: Sequence[int], dims: Sequence[int], keepdim: bool) -> TensorProxy:
    """Return the result of a reduction, with the reduced dimensions as ones if ``keepdim``."""
    if not keepdim or not shape:
        return reduced
    kept_dims = tuple(d for d in range(len(shape)) if d not in dims)
    return prims.broadcast_in_dim(
        reduced, tuple(1 if d in dims else size for d, size in enumerate(shape)), kept_dims
    )


def reduced(prim: Symbol, a: TensorProxy, dim: Dims, keepdim: bool, *args: Any, **kwargs: Any) -> TensorProxy:
    """Apply ``prim`` over ``dim`` (None and ``()``: all dimensions)."""
    dims = canonical_dims(dim, len(a.shape))
    return keeping(prim(a, dims, *args, **kwargs), a.shape, dims, keepdim)


@torchsymbol("torch.sum", methods=("sum",), tags=REDUCTION)
def sum(input: TensorProxy, dim: Dims = None, keepdim: bool = False, *, dtype: Any = None) -> TensorProxy:
    """The sum over dimensions; of integers in int64."""
    a = cast(input, sum_result(input.dtype) if dtype is None else dtype)
    return reduced(prims.sum, a, dim, keepdim)


@torchsymbol("torch.nansum", methods=("nansum",), tags=REDUCTION)
def nansum(input: TensorProxy, dim: Dims = None, keepdim: bool = False, *, dtype: Any = None) -> TensorProxy:
    """The sum over dimensions, nan counting as 0."""
    if input.dtype.is_complex:
        raise OperatorError("nansum does not support complex inputs")
    a = prims.where(prims.isnan(input), 0.0, input) if input.dtype.is_inexact else input
    return reduced(prims.sum, cast(a, sum_result(input.dtype) if dtype is None else dtype), dim, keepdim)


def _mean_dtype(name: str, a: TensorProxy, dtype: Any) -> TensorProxy:
    converted = cast(a, dtype) if dtype is not None else a
    if not converted.dtype.is_inexact:
        raise OperatorError(
            f"{name}(): could not infer output dtype. Input dtype must be either a floating point or complex "
            f"dtype. Got: {a.dtype.torch_dtype}"
        )
    return converted


def _count(shape: Sequence[int], dims: Sequence[int]) -> int:
    return math.prod(shape[d] for d in dims)


@torchsymbol("torch.mean", methods=("mean",), tags=REDUCTION)
def mean(input: TensorProxy, dim: Dims = None, keepdim: bool = False, *, dtype: Any = None) -> TensorProxy:
    """The mean over dimensions."""
    a = _mean_dtype("mean", input, dtype)
    dims = canonical_dims(dim, len(a.shape))
    total = keeping(prims.sum(a, dims), a.shape, dims, keepdim)
    count = _count(a.shape, dims)
    if count == 0:  # 0 / 0; Python would raise
        return prims.mul(total, float("nan"))
    return prims.div(total, count)


def _refuse_keepdim(name: str, dim: Any, keepdim: bool) -> None:
    """Raise BindingError: torch keeps dimensions only in a call that names them."""
    if dim is None and keepdim:
        raise BindingError(f"{name}() takes keepdim only together with dim")


def _prod_spelling(input: Any, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Arguments:
    """Bind ``prod(input, dim, keepdim)`` and ``prod(input)``."""
    _refuse_keepdim("prod", dim, keepdim)
    return ((input,) if dim is None else (input, dim, keepdim)), {"dtype": dtype}


@torchsymbol("torch.prod", methods=("prod",), spelling=_prod_spelling, tags=REDUCTION)
def prod(
    input: TensorProxy, dim: int | None = None, keepdim: bool = False, *, dtype: Any = None
) -> TensorProxy:
    """The product over a dimension, or of all elements; of integers in int64."""
    a = cast(input, sum_result(input.dtype) if dtype is None else dtype)
    return reduced(prims.prod, a, dim, keepdim)


# -- extrema -------------------------------------------------------------------------------------------------


def _extremum(name: str, prim: Symbol) -> Symbol:
    def decomposition(input: TensorProxy, dim: Dims = (), keepdim: bool = False) -> TensorProxy:
        dims = canonical_dims(dim, len(input.shape))
        if builtins.any(input.shape[d] == 0 for d in dims):
            raise OperatorError(f"{name}(): Expected reduction dim to be specified for input.numel() == 0.")
        return reduced(prim, input, dim, keepdim)

    return torchsymbol(f"torch.{name}", methods=(name,), tags=REDUCTION)(decomposition)


amax = _extremum("amax", prims.amax)
amin = _extremum("amin", prims.amin)


def _index_of(name: str, prim: Symbol) -> Symbol:
    def decomposition(input: TensorProxy, dim: int | None = None, keepdim: bool = False) -> TensorProxy:
        """The position of an extremum, in a dimension or in the flat tensor."""
        if not input.shape:
            return prim(input, None)
        if dim is None:
            return keeping(prim(input, None), input.shape, range(len(input.shape)), keepdim)
        d = canonical_dim(dim, len(input.shape))
        return keeping(prim(input, d), input.shape, (d,), keepdim)

    return torchsymbol(f"torch.{name}", methods=(name,), tags=REDUCTION, vjp=NONDIFFERENTIABLE)(decomposition)


argmax = _index_of("argmax", prims.argmax)
argmin = _index_of("argmin", prims.argmin)


def _with_index(
    name: str, position: Symbol, whole: Symbol, result: type, pairwise: Callable[..., Any]
) -> Symbol:
    """``max(x)``; ``max(x, dim, keepdim)`` → (values, indices); ``max(x, other)`` by element."""

    def spelling(input: Any, dim: Any = None, keepdim: bool = False) -> Arguments:
        if isinstance(dim, torch.Tensor):
            raise BindingError(f"{name}() of two tensors is {name}imum()")
        _refuse_keepdim(name, dim, keepdim)
        return ((input,) if dim is None else (input, dim, keepdim)), {}

    @torchsymbol(id=f"torch.{name}", spelling=spelling, tags=REDUCTION)
    def symbol(input: TensorProxy, dim: int | None = None, keepdim: bool = False) -> Any:
        if dim is None:
            if math.prod(input.shape) == 0:
                raise OperatorError(
                    f"{name}(): Expected reduction dim to be specified for input.numel() == 0. "
                    "Specify the reduction dim with the 'dim' argument."
                )
            return whole(input, tuple(range(len(input.shape))))
        if not input.shape:
            canonical_dim(dim, 0)
            return result((prims.clone(input), prims.full((), 0, device=input.device, dtype=int64)))
        d = canonical_dim(dim, len(input.shape))
        ordered = cast(input, uint8) if input.dtype is bool8 else input
        index = keeping(position(ordered, d), input.shape, (d,), True)
        values = prims.gather(input, index, d)
        if not keepdim:
            index, values = prims.squeeze(index, (d,)), prims.squeeze(values, (d,))
        return result((values, index))

    @torch_names(f"torch.{name}", methods=(name,))
    def overloaded(input: TensorProxy, *args: Any, **kwargs: Any) -> Any:
        if "other" in kwargs or (args and isinstance(args[0], TensorProxy)):
            return pairwise(input, *args, **kwargs)
        return symbol(input, *args, **kwargs)

    return symbol


max = _with_index("max", prims.argmax, prims.amax, torch.return_types.max, maximum)
min = _with_index("min", prims.argmin, prims.amin, torch.return_types.min, minimum)


def _truth(name: str, prim: Symbol) -> Symbol:
    def spelling(input: Any, dim: Any = None, keepdim: bool = False) -> Arguments:
        return ((input,) if dim is None and not keepdim else (input, dim, keepdim)), {}

    def decomposition(input: TensorProxy, dim: Dims = None, keepdim: bool = False) -> TensorProxy:
        truth = reduced(prim, input, dim, keepdim)
        return cast(truth, uint8) if input.dtype is uint8 else truth  # torch: bytes stay bytes

    return torchsymbol(
        f"torch.{name}", methods=(name,), spelling=spelling, tags=REDUCTION, vjp=NONDIFFERENTIABLE
    )(decomposition)


any = _truth("any", prims.any)
all = _truth("all", prims.all)


@torchsymbol("torch.count_nonzero", methods=("count_nonzero",), tags=REDUCTION, vjp=NONDIFFERENTIABLE)
def count_nonzero(input: TensorProxy, dim: Dims = None) -> TensorProxy:
    """The number of elements that are not 0."""
    held = input if input.dtype is bool8 else prims.ne(input, 0)
    return sum(held, dim)
