"""Variance, norms, and sums of exponentials."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from thunder.base.errors import OperatorError, UnsupportedOperator
from thunder.base.tags import OpTags
from thunder.ir.proxies import TensorProxy
from thunder.ir.symbol import Symbol
from thunder.ops import prims
from thunder.ops.casting import cast
from thunder.ops.layout_rules import REORDERED
from thunder.ops.promotion import float_result
from thunder.torch import kernel_shapes
from thunder.torch.batch_rules.batched_kernels import over_dims
from thunder.torch.broadcasting import canonical_dims, integers
from thunder.torch.meta_by_torch import meta_by_torch
from thunder.torch.mixed_precision import computed_in
from thunder.torch.namespace import ltorch
from thunder.torch.registration import torch_names, torchsymbol
from thunder.torch.rows.reduction import REDUCTION, Arguments, Dims, keeping, reduced


def _variance_spelling(
    input: Any,
    dim: Any = None,
    unbiased: Any = None,
    keepdim: bool = False,
    *,
    correction: Any = None,
) -> Arguments:
    """Bind the overloads of ``var`` to ``var(x, dim, correction=, keepdim=)``.

    The others are ``var(x, unbiased)`` and ``var(x, dim, unbiased, keepdim)``.
    """
    if isinstance(dim, bool):
        dim, unbiased = None, dim
    if correction is None:
        correction = 0 if unbiased is False else 1
    return (input, dim), {"correction": correction, "keepdim": keepdim}


def _require_inexact(name: str, a: TensorProxy) -> None:
    if not a.dtype.is_inexact:
        raise OperatorError(f"{name} and var_mean only support floating point and complex dtypes")


def _variance(name: str, prim: Symbol) -> Symbol:
    def decomposition(
        input: TensorProxy, dim: Dims = None, *, correction: float = 1, keepdim: bool = False
    ) -> TensorProxy:
        _require_inexact(name, input)
        return reduced(prim, input, dim, keepdim, correction=correction)

    return torchsymbol(f"torch.{name}", methods=(name,), spelling=_variance_spelling, tags=REDUCTION)(
        decomposition
    )


var = _variance("var", prims.var)
std = _variance("std", prims.std)


@torchsymbol("torch.var_mean", spelling=_variance_spelling, tags=REDUCTION)
def var_mean(
    input: TensorProxy, dim: Dims = None, *, correction: float = 1, keepdim: bool = False
) -> tuple[TensorProxy, TensorProxy]:
    """Variance and mean."""
    _require_inexact("var_mean", input)
    dims = canonical_dims(dim, len(input.shape))
    v, m = prims.var_mean(input, dims, correction=correction)
    return keeping(v, input.shape, dims, keepdim), keeping(m, input.shape, dims, keepdim)


@torchsymbol("torch.std_mean", spelling=_variance_spelling, tags=REDUCTION)
def std_mean(
    input: TensorProxy, dim: Dims = None, *, correction: float = 1, keepdim: bool = False
) -> tuple[TensorProxy, TensorProxy]:
    """Standard deviation and mean."""
    v, m = var_mean(input, dim, correction=correction, keepdim=keepdim)
    return prims.sqrt(v), m


# -- norms ---------------------------------------------------------------------------------------------------


def _norm(a: TensorProxy, ord: float, dim: Dims, keepdim: bool) -> TensorProxy:
    """``(sum |a|^ord)^(1 / ord)`` and its limits; half precision in float32, where it fits."""
    wide = computed_in(a)
    if wide is not a:
        return cast(_norm(wide, ord, dim, keepdim), a.dtype)
    size = prims.abs(a)
    if math.isinf(ord):
        return reduced(prims.amax if ord > 0 else prims.amin, size, dim, keepdim)
    if ord == 0:
        return reduced(prims.sum, prims.where(prims.ne(size, 0.0), 1.0, size), dim, keepdim)
    if ord == 1:
        return reduced(prims.sum, size, dim, keepdim)
    if ord == 2:
        return prims.sqrt(reduced(prims.sum, prims.mul(size, size), dim, keepdim))
    total = reduced(prims.sum, prims.pow(size, float(ord)), dim, keepdim)
    return prims.pow(total, 1.0 / ord)


@torchsymbol("torch.linalg.vector_norm", tags=REDUCTION)
def vector_norm(
    x: TensorProxy, ord: float = 2, dim: Dims = None, keepdim: bool = False, *, dtype: Any = None
) -> TensorProxy:
    """The norm of the vectors along dimensions."""
    if not x.dtype.is_inexact:
        raise OperatorError(
            "linalg.vector_norm: Expected a floating point or complex tensor as input. "
            f"Got {x.dtype.torch_dtype}"
        )
    return _norm(x if dtype is None else cast(x, dtype), ord, dim, keepdim)


@torchsymbol(id="torch.norm", tags=(*REDUCTION, OpTags.RAISES_BY_PARTS))
def norm(
    input: TensorProxy, p: Any = "fro", dim: Dims = None, keepdim: bool = False, *, dtype: Any = None
) -> TensorProxy:
    """The ``p``-norm of the flat tensor or of the vectors along dimensions."""
    if isinstance(p, str) and p != "fro":
        raise UnsupportedOperator(
            f"torch.norm with p={p!r}", hint='Values that work for p: a number, "fro", "nuc", float("inf").'
        )
    a = input if dtype is None else cast(input, dtype)
    if not a.dtype.is_inexact:
        raise OperatorError("linalg.vector_norm: Expected a floating point or complex tensor as input.")
    return _norm(a, 2 if p in ("fro", None) else p, dim, keepdim)


@torch_names("torch.norm", methods=("norm",))
def norm_of_any(
    input: TensorProxy, p: Any = "fro", dim: Dims = None, keepdim: bool = False, **kwargs: Any
) -> TensorProxy:
    """``torch.norm``, whose nuclear norm is one of matrices."""
    if p == "nuc":
        dims = tuple(range(len(input.shape))) if dim is None else dim
        return matrix_norm(input, p, dims, keepdim, **kwargs)
    return norm(input, p, dim, keepdim, **kwargs)


#: the dimensions of matrices by default
_MATRIX_DIMS = (-2, -1)

_norm_of_matrices = meta_by_torch(
    "torch.linalg.matrix_norm",
    "A, ord='fro', dim=(-2, -1), keepdim=False, *, dtype=None",
    in_language=False,
    shape=kernel_shapes.matrix_norm,
    batch=over_dims,
    tags=(OpTags.RAISES_BY_PARTS,),
)
#: orders of norms that are the largest of several numbers → the dimensions that are empty if there are none
_LARGEST: dict[float, tuple[int, ...]] = {1: (1,), 2: (0, 1), math.inf: (0,)}


@torch_names("torch.linalg.matrix_norm")
def matrix_norm(
    A: TensorProxy,
    ord: Any = "fro",
    dim: Sequence[int] = _MATRIX_DIMS,
    keepdim: bool = False,
    *,
    dtype: Any = None,
) -> TensorProxy:
    """The norm of matrices; where it is the largest of no numbers, a constant 0."""
    norm = _norm_of_matrices(A, ord, dim, keepdim, dtype=dtype)
    emptied = () if isinstance(ord, str) else _LARGEST.get(ord, ())
    return ltorch.zeros_like(norm) if any(A.shape[dim[i]] == 0 for i in emptied) else norm


@torch_names("torch.linalg.norm")
def linalg_norm(
    A: TensorProxy, ord: Any = None, dim: Dims = None, keepdim: bool = False, *, dtype: Any = None
) -> TensorProxy:
    """The 2-norm of the flat tensor or along dimensions, or the norm of order ``ord``.

    With ``ord`` it is that of vectors for one dimension, of matrices for two.
    """
    count = len(A.shape) if dim is None else len(integers(dim))
    if ord is None or count == 1:
        return vector_norm(A, 2 if ord is None else ord, dim, keepdim, dtype=dtype)
    return matrix_norm(A, ord, _MATRIX_DIMS if dim is None else dim, keepdim, dtype=dtype)


@torchsymbol(
    "torch.logsumexp",
    "torch.special.logsumexp",
    methods=("logsumexp",),
    tags=REDUCTION,
)
def logsumexp(input: TensorProxy, dim: int | Sequence[int], keepdim: bool = False) -> TensorProxy:
    """``log(sum(exp(input)))``, computed less the largest element unless that is infinite."""
    a = cast(input, float_result(input.dtype))
    dims = canonical_dims(dim, len(a.shape))
    if any(a.shape[d] == 0 for d in dims):
        return prims.log(keeping(prims.sum(prims.exp(a), dims), a.shape, dims, keepdim))
    source = prims.real(a) if a.dtype.is_complex else a
    top = keeping(prims.amax(source, dims), a.shape, dims, True)
    top = prims.where(prims.isinf(top), 0.0, top)
    spread = top if not a.shape else prims.broadcast_in_dim(top, a.shape, tuple(range(len(a.shape))))
    if a.dtype.is_complex:
        spread, top = prims.convert_element_type(spread, a.dtype), prims.convert_element_type(top, a.dtype)
    total = keeping(prims.sum(prims.exp(prims.sub(a, spread)), dims), a.shape, dims, keepdim)
    back = top if keepdim else prims.squeeze(top, dims if a.shape else ())
    return prims.add(prims.log(total), back)


@torchsymbol("torch.renorm", methods=("renorm",), inplace=("renorm_",), layout=REORDERED, tags=REDUCTION)
def renorm(input: TensorProxy, p: float, dim: int, maxnorm: float) -> TensorProxy:
    """Slices along a dimension scaled down to a norm of at most ``maxnorm``."""
    if len(input.shape) < 2:
        raise OperatorError(f"renorm: input needs at least 2 dimensions, got {len(input.shape)} dimensions")
    (d,) = canonical_dims(dim, len(input.shape))
    others = [i for i in range(len(input.shape)) if i != d]
    size = _norm(input, p, others, True)
    factor = prims.div(float(maxnorm), prims.add(size, 1e-7))
    factor = prims.where(prims.gt(size, float(maxnorm)), factor, 1.0)
    spread = prims.broadcast_in_dim(factor, input.shape, tuple(range(len(input.shape))))
    return prims.mul(input, cast(spread, input.dtype))
