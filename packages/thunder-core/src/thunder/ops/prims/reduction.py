"""Reductions, scans and sorting.

``dims`` are dimensions that are not negative; reduced dimensions are removed.
"""

from __future__ import annotations

import builtins
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from thunder.base.dtypes import int64
from thunder.base.errors import OperatorError
from thunder.base.tags import OpTags
from thunder.ir.proxies import TensorProxy
from thunder.ir.symbol import Symbol
from thunder.ops.primitive_batching import batched_reductions as batched
from thunder.ops.prims.declaration import primitive
from thunder.ops.prims.elementwise import ANY, INEXACT, NUMBERS, ORDERED, ResultDtype, kind_of, no_kernel
from thunder.ops.promotion import bool_result, real_result, same_result

# fmt: off
__all__ = [
    "all", "amax", "amin", "any", "argmax", "argmin", "cummax", "cummin", "cumprod", "cumsum", "prod",
    "sort", "std", "sum", "topk", "var", "var_mean",
]
# fmt: on

_REDUCTION = (OpTags.REDUCTION_OP,)
_Pair = tuple[TensorProxy, TensorProxy]


def _remaining(name: str, a: TensorProxy, dims: Sequence[int]) -> tuple[int, ...]:
    rank = len(a.shape)
    if len(set(dims)) != len(dims) or not builtins.all(0 <= d < rank for d in dims):
        raise OperatorError(f"{name}: {tuple(dims)} are not dimensions of a tensor of shape {a.shape}")
    return tuple(size for d, size in enumerate(a.shape) if d not in dims)


def _like(a: TensorProxy, shape: Sequence[int], dtype: Any = None) -> TensorProxy:
    return TensorProxy(shape=shape, device=a.device, dtype=dtype or a.dtype)


def _check_kind(name: str, a: TensorProxy, kinds: str) -> None:
    if kind_of(a.dtype) not in kinds:
        raise no_kernel(name, a)


def _over_dims(fn: Callable[..., Any]) -> Callable[[torch.Tensor, Sequence[int]], Any]:
    """Return torch's function with another meaning of no dimensions: none is reduced, not all."""

    def compute(a: torch.Tensor, dims: Sequence[int]) -> Any:
        return fn(a, tuple(dims)) if dims else fn(a.unsqueeze(-1), (-1,))

    return compute


def _reduction(
    name: str, kinds: str, eager: Callable[..., Any], result_dtype: ResultDtype = same_result
) -> Symbol:
    def meta(a: TensorProxy, dims: Sequence[int]) -> TensorProxy:
        _check_kind(name, a, kinds)
        return _like(a, _remaining(name, a, dims), result_dtype(a.dtype))

    return primitive(name, meta, eager=_over_dims(eager), tags=_REDUCTION, batch=batched.over_dims)


def _prod(a: torch.Tensor, dims: Sequence[int]) -> torch.Tensor:
    dtype = a.dtype
    for d in sorted((d % a.dim() for d in dims), reverse=True):
        a = torch.prod(a, d, dtype=dtype)
    return a


amax = _reduction("amax", ORDERED, torch.amax)
amin = _reduction("amin", ORDERED, torch.amin)
prod = _reduction("prod", ANY, _prod)
sum = _reduction("sum", ANY, lambda a, dims: torch.sum(a, dims, dtype=a.dtype))
any = _reduction("any", ANY, torch.any, bool_result)
all = _reduction("all", ANY, torch.all, bool_result)


def _variance(name: str, eager: Callable[..., Any]) -> Symbol:
    def meta(a: TensorProxy, dims: Sequence[int], *, correction: float) -> TensorProxy:
        _check_kind(name, a, INEXACT)
        return _like(a, _remaining(name, a, dims), real_result(a.dtype))

    def compute(a: torch.Tensor, dims: Sequence[int], *, correction: float) -> torch.Tensor:
        whole, over = (a, tuple(dims)) if dims else (a.unsqueeze(-1), (-1,))
        return eager(whole, over, correction=correction)  # type: ignore[no-any-return]

    return primitive(name, meta, eager=compute, tags=_REDUCTION, batch=batched.over_dims)


var = _variance("var", torch.var)
std = _variance("std", torch.std)


def _var_mean_meta(a: TensorProxy, dims: Sequence[int], *, correction: float) -> _Pair:
    _check_kind("var_mean", a, INEXACT)
    shape = _remaining("var_mean", a, dims)
    return _like(a, shape, real_result(a.dtype)), _like(a, shape)


def _var_mean_eager(a: torch.Tensor, dims: Sequence[int], *, correction: float) -> Any:
    whole, over = (a, tuple(dims)) if dims else (a.unsqueeze(-1), (-1,))
    return torch.var_mean(whole, over, correction=correction)


var_mean = primitive(
    "var_mean",
    _var_mean_meta,
    eager=_var_mean_eager,
    tags=_REDUCTION,
    batch=batched.over_dims,
)


def _arg(name: str, eager: Callable[..., Any]) -> Symbol:
    def meta(a: TensorProxy, dim: int | None) -> TensorProxy:
        """The index along ``dim``, or among all elements if it is None."""
        _check_kind(name, a, ORDERED)
        empty = math.prod(a.shape) == 0 if dim is None else a.shape[dim : dim + 1] == (0,)
        if empty:
            raise OperatorError(f"{name}(): Expected reduction dim to be specified for input.numel() == 0")
        return _like(a, () if dim is None else _remaining(name, a, (dim,)), int64)

    return primitive(
        name, meta, eager=eager, eager_path=f"torch.{name}", tags=_REDUCTION, batch=batched.position
    )


argmax = _arg("argmax", torch.argmax)
argmin = _arg("argmin", torch.argmin)


def _scan(name: str, eager: Callable[..., Any]) -> Symbol:
    def meta(a: TensorProxy, dim: int) -> TensorProxy:
        _check_kind(name, a, NUMBERS)
        _remaining(name, a, (dim,))
        return _like(a, a.shape)

    return primitive(name, meta, eager=lambda a, dim: eager(a, dim, dtype=a.dtype), batch=batched.of_one_dim)


cumsum = _scan("cumsum", torch.cumsum)
cumprod = _scan("cumprod", torch.cumprod)


def _running(name: str, eager: Callable[..., Any]) -> Symbol:
    def meta(a: TensorProxy, dim: int) -> _Pair:
        _check_kind(name, a, ORDERED)
        _remaining(name, a, (dim,) if a.shape else ())
        return _like(a, a.shape), _like(a, a.shape, int64)

    return primitive(name, meta, eager=lambda a, dim: tuple(eager(a, dim)), batch=batched.of_one_dim)


cummax = _running("cummax", torch.cummax)
cummin = _running("cummin", torch.cummin)


def _topk_meta(a: TensorProxy, k: int, dim: int, largest: bool, sorted: bool) -> _Pair:
    _check_kind("topk", a, ORDERED)
    if a.shape:
        _remaining("topk", a, (dim,))
    if not 0 <= k <= (a.shape[dim] if a.shape else 1):
        raise OperatorError("selected index k out of range")
    shape = (*a.shape[:dim], k, *a.shape[dim + 1 :]) if a.shape else ()
    return _like(a, shape), _like(a, shape, int64)


topk = primitive(
    "topk",
    _topk_meta,
    eager=lambda a, k, dim, largest, sorted: tuple(torch.topk(a, k, dim, largest, sorted)),
    tags=_REDUCTION,
    batch=batched.of_one_dim,
)


def _sort_meta(a: TensorProxy, dim: int, descending: bool, sorted: bool) -> _Pair:
    """Values and indices; with ``sorted`` the order is stable."""
    _check_kind("sort", a, ORDERED)
    if a.shape:
        _remaining("sort", a, (dim,))
    return _like(a, a.shape), _like(a, a.shape, int64)


sort = primitive(
    "sort",
    _sort_meta,
    eager=lambda a, dim, descending, sorted: tuple(
        torch.sort(a, dim=dim, descending=descending, stable=sorted)
    ),
    tags=_REDUCTION,
    batch=batched.of_one_dim,
)
