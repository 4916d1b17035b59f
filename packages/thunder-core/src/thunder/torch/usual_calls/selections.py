"""Elementwise functions, and selections of elements."""

from __future__ import annotations

from typing import Any, Final

import torch

from thunder.base import dtypes
from thunder.ir.proxies import TensorProxy
from thunder.torch.usual_calls.conditions import (
    COMPLEX,
    REAL,
    alike,
    are_equal,
    dims_of,
    result_of,
    rule,
)

_F: Final = "torch.nn.functional."


@rule(
    *(f"torch.{name}" for name in ("angle", "deg2rad", "rad2deg", "i0", "sinc")),
    *(f"torch.special.{name}" for name in ("bessel_j0", "bessel_j1", "entr", "erfcx", "i0e", "i1", "i1e")),
    *("torch.special.log_ndtr", "torch.special.ndtr"),
)
def _elementwise(input: Any) -> Any:
    return result_of(input, input.shape) if alike(input) else None


@rule("torch.polygamma")
def _polygamma(n: Any, input: Any) -> Any:
    return result_of(input, input.shape) if type(n) is int and n >= 0 and alike(input) else None


@rule("torch.igamma", "torch.igammac")
def _elementwise_pair(input: Any, other: Any) -> Any:
    return result_of(input, input.shape) if are_equal(input, other) else None


@rule("torch.polar")
def _polar(abs: Any, angle: Any) -> Any:
    return result_of(abs, abs.shape, COMPLEX[abs.dtype]) if are_equal(abs, angle) else None


def _without(x: TensorProxy, dim: int, keepdim: bool) -> tuple[int, ...]:
    return (*x.shape[:dim], *((1,) if keepdim else ()), *x.shape[dim + 1 :])


@rule("torch.kthvalue")
def _kthvalue(input: Any, k: Any, dim: Any = -1, keepdim: Any = False) -> Any:
    if not alike(input) or type(keepdim) is not bool or type(dim) is not int or type(k) is not int:
        return None
    dims = dims_of(dim, len(input.shape))
    if dims is None or not 1 <= k <= input.shape[dims[0]]:
        return None
    shape = _without(input, dims[0], keepdim)
    return torch.return_types.kthvalue((result_of(input, shape), result_of(input, shape, dtypes.int64)))


@rule("torch.quantile")
def _quantile(
    input: Any, q: Any, dim: Any = None, keepdim: Any = False, *, interpolation: Any = "linear"
) -> Any:
    if not alike(input) or type(q) is not float or not 0 <= q <= 1 or type(keepdim) is not bool:
        return None
    dims = range(len(input.shape)) if dim is None else dims_of(dim, len(input.shape))
    if dims is None or not (dim is None or type(dim) is int):
        return None
    if interpolation not in ("linear", "lower", "higher", "midpoint", "nearest"):
        return None
    shape = [1 if d in dims else n for d, n in enumerate(input.shape) if keepdim or d not in dims]
    return result_of(input, shape)


@rule(f"{_F}cosine_similarity")
def _cosine_similarity(x1: Any, x2: Any, dim: Any = 1, eps: Any = 1e-8) -> Any:
    dims = dims_of(dim, len(x1.shape)) if are_equal(x1, x2) and type(dim) is int else None
    return None if dims is None or type(eps) is not float else result_of(x1, _without(x1, dims[0], False))


@rule("torch.isin")
def _isin(elements: Any, test_elements: Any, *, assume_unique: Any = False, invert: Any = False) -> Any:
    is_usual = alike(elements, test_elements, of={*REAL, dtypes.int64, dtypes.int32})
    return result_of(elements, elements.shape, dtypes.bool8) if is_usual else None


@rule("torch.histc")
def _histogram(input: Any, bins: Any = 100, min: Any = 0, max: Any = 0) -> Any:
    is_usual = type(bins) is int and bins > 0 and type(min) is type(max) is int and min <= max
    return result_of(input, (bins,)) if is_usual and alike(input) else None
