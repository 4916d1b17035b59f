"""Scans, sorting and searching."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from thunder.base.dtypes import int32, int64
from thunder.base.errors import OperatorError
from thunder.base.tags import OpTags
from thunder.ir.proxies import TensorProxy
from thunder.ir.symbol import Symbol
from thunder.ops import prims
from thunder.ops.casting import cast
from thunder.ops.layout_rules import REORDERED
from thunder.ops.operator import NONDIFFERENTIABLE
from thunder.ops.promotion import float_result, sum_result
from thunder.ops.torch_errors import OperatorIndexError
from thunder.torch.batch_rules import batched_kernels as batched
from thunder.torch.broadcasting import canonical_dim
from thunder.torch.registration import method_and_inplace, torchsymbol
from thunder.torch.rows.binary import ne, sub
from thunder.torch.rows.cat_split import cat, narrowed
from thunder.torch.rows.reduction import Arguments

REDUCTION = (OpTags.REDUCTION_OP,)
Pair = tuple[TensorProxy, TensorProxy]


def _scan(name: str, prim: Symbol) -> Symbol:
    def decomposition(input: TensorProxy, dim: int, *, dtype: Any = None) -> TensorProxy:
        a = cast(input, sum_result(input.dtype) if dtype is None else dtype)
        d = canonical_dim(dim, len(a.shape))
        return prim(a, d) if a.shape else prims.clone(a)

    row = {"layout": REORDERED, "tags": REDUCTION, **method_and_inplace(name)}
    return torchsymbol(f"torch.{name}", **row)(decomposition)


cumsum = _scan("cumsum", prims.cumsum)
cumprod = _scan("cumprod", prims.cumprod)


def _running(name: str, prim: Symbol, result: type) -> Symbol:
    def decomposition(input: TensorProxy, dim: int) -> Any:
        return result(prim(input, canonical_dim(dim, len(input.shape))))

    return torchsymbol(f"torch.{name}", methods=(name,), tags=REDUCTION)(decomposition)


cummax = _running("cummax", prims.cummax, torch.return_types.cummax)
cummin = _running("cummin", prims.cummin, torch.return_types.cummin)


def _sort_spelling(input: Any, dim: int = -1, descending: bool = False, stable: bool = False) -> Arguments:
    return (input,), {"dim": dim, "descending": descending, "stable": bool(stable)}


@torchsymbol("torch.sort", methods=("sort",), spelling=_sort_spelling, tags=REDUCTION)
def sort(input: TensorProxy, *, dim: int = -1, descending: bool = False, stable: bool = False) -> Any:
    """Values in order, and their indices."""
    d = canonical_dim(dim, len(input.shape))
    return torch.return_types.sort(prims.sort(input, d, descending, stable))


def _argsort_spelling(input: Any, dim: int = -1, descending: bool = False, stable: bool = False) -> Arguments:
    return (input,), {"dim": dim, "descending": descending, "stable": bool(stable)}


@torchsymbol(
    "torch.argsort", methods=("argsort",), spelling=_argsort_spelling, tags=REDUCTION, vjp=NONDIFFERENTIABLE
)
def argsort(
    input: TensorProxy, *, dim: int = -1, descending: bool = False, stable: bool = False
) -> TensorProxy:
    """The indices that sort the elements."""
    d = canonical_dim(dim, len(input.shape))
    return prims.sort(input, d, descending, stable)[1]


@torchsymbol("torch.msort", methods=("msort",), tags=REDUCTION)
def msort(input: TensorProxy) -> TensorProxy:
    """Sorted along the first dimension."""
    return prims.sort(input, 0, False, False)[0]


@torchsymbol("torch.topk", methods=("topk",), tags=REDUCTION)
def topk(input: TensorProxy, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> Any:
    """The ``k`` largest or smallest elements of a dimension, and their indices."""
    d = canonical_dim(dim, len(input.shape))
    return torch.return_types.topk(prims.topk(input, k, d, largest, sorted))


@torchsymbol("torch.diff", methods=("diff",))
def diff(
    input: TensorProxy,
    n: int = 1,
    dim: int = -1,
    prepend: TensorProxy | None = None,
    append: TensorProxy | None = None,
) -> TensorProxy:
    """Differences of neighbours, ``n`` times."""
    if not input.shape:
        raise OperatorError("diff expects input to be at least one-dimensional")
    if n < 0:
        raise OperatorError(f"order must be non-negative but got {n}")
    if n == 0:
        return prims.clone(input)
    d = canonical_dim(dim, len(input.shape))
    parts = [p for p in (prepend, input, append) if p is not None]
    a = cat(parts, d) if len(parts) > 1 else input
    if n >= a.shape[d]:
        return prims.clone(narrowed(a, d, 0, 0))
    for _ in range(n):
        after, before = narrowed(a, d, 1, a.shape[d]), narrowed(a, d, 0, a.shape[d] - 1)
        a = ne(after, before) if a.dtype.is_bool else sub(after, before)
    return a


def _position_dtype(out_int32: bool) -> Any:
    return int32 if out_int32 else int64


@torchsymbol("torch.bucketize", prim=True, vjp=NONDIFFERENTIABLE, batch=batched.bucketize)
def bucketize(
    input: Any, boundaries: TensorProxy, *, out_int32: bool = False, right: bool = False
) -> TensorProxy:
    """The index of the interval of sorted boundaries that contains each value."""
    if len(boundaries.shape) != 1:
        raise OperatorError(
            "torch.searchsorted(): boundaries tensor should be 1 dimension, "
            f"but got dim {len(boundaries.shape)}"
        )
    shape = input.shape if isinstance(input, TensorProxy) else ()
    return TensorProxy(shape=shape, device=boundaries.device, dtype=_position_dtype(out_int32))


@torchsymbol("torch.searchsorted", prim=True, tags=(OpTags.RAISES_ON_DATA,), vjp=NONDIFFERENTIABLE)
def searchsorted(
    sorted_sequence: TensorProxy,
    input: Any,
    *,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: TensorProxy | None = None,
) -> TensorProxy:
    """The index at which each value would be inserted into sorted rows."""
    shape = input.shape if isinstance(input, TensorProxy) else ()
    rows = sorted_sequence.shape
    if len(rows) != 1 and (len(rows) != len(shape) or rows[:-1] != shape[:-1]):
        raise OperatorError(
            "torch.searchsorted(): boundaries tensor should be 1 dimension or the first N-1 dimensions of "
            "boundaries tensor and input value tensor must match"
        )
    if side not in (None, "left", "right") or (side == "left" and right):
        raise OperatorError(f"torch.searchsorted(): side can only be 'left' or 'right' but got {side}")
    return TensorProxy(shape=shape, device=sorted_sequence.device, dtype=_position_dtype(out_int32))


def _median(name: str, result: type) -> Symbol:
    def spelling(input: Any, dim: Any = None, keepdim: bool = False) -> Arguments:
        return ((input,) if dim is None else (input, dim, keepdim)), {}

    @torchsymbol(
        f"torch.{name}",
        methods=(name,),
        spelling=spelling,
        prim=True,
        tags=REDUCTION,
        batch=batched.reduction,
    )
    def symbol(input: TensorProxy, dim: int | None = None, keepdim: bool = False) -> Any:
        """The lower median of all elements, or (values, indices) along a dimension."""
        if dim is None:
            return TensorProxy(shape=(), device=input.device, dtype=input.dtype)
        d = canonical_dim(dim, len(input.shape))
        middle = (1,) if keepdim else ()
        shape: Sequence[int] = (*input.shape[:d], *middle, *input.shape[d + 1 :]) if input.shape else ()
        if input.shape[d : d + 1] == (0,):
            raise OperatorIndexError(f"{name}(): Expected reduction dim {d} to have non-zero size.")
        return result(
            (
                TensorProxy(shape=shape, device=input.device, dtype=input.dtype),
                TensorProxy(shape=shape, device=input.device, dtype=int64),
            )
        )

    return symbol


median = _median("median", torch.return_types.median)
nanmedian = _median("nanmedian", torch.return_types.nanmedian)


@torchsymbol(
    "torch.logcumsumexp", methods=("logcumsumexp",), prim=True, tags=REDUCTION, batch=batched.of_one_dim
)
def logcumsumexp(input: TensorProxy, dim: int) -> TensorProxy:
    """``log(cumsum(exp(input)))``."""
    canonical_dim(dim, len(input.shape))
    return TensorProxy(shape=input.shape, device=input.device, dtype=float_result(input.dtype))
