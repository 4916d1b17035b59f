"""Gradients of reductions: sums, products, extrema, moments.

The cotangent of a reduction lacks the reduced dimensions, or has them as ones; a formula first spreads it
over the input. ``dims`` are not negative; an empty ``dims`` of a primitive means no dimension.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from thunder.ir.symbolic_sizes import SymbolicInt, are_same
from thunder.ops.gradient_rules import VjpCall, conj, formulas, nondifferentiable, vjp
from thunder.torch.broadcasting import canonical_dims
from thunder.torch.namespace import ltorch
from thunder.torch.rows import reduction, statistics, torch_kernels  # noqa: F401  (the rows)

#: a proxy; its operators are typed as torch's
Tensor = Any
Dims = Sequence[int]


def reduced_dims(c: VjpCall) -> tuple[int, ...]:
    """Return the dimensions that a call ``(input, dim, …)`` reduces."""
    return canonical_dims(getattr(c, "dim", None), len(c.input.shape))


def with_ones(reduced: Tensor, shape: Sequence[int], dims: Dims, keepdim: bool) -> Tensor:
    """Return a reduction's result with the reduced dimensions of ``shape`` as ones."""
    if keepdim or not dims or not reduced.shape:  # a tensor without dimensions broadcasts as it is
        return reduced
    if len(dims) == 1:
        return ltorch.unsqueeze(reduced, dims[0])
    return ltorch.reshape(reduced, tuple(1 if d in dims else size for d, size in enumerate(shape)))


def spread(reduced: Tensor, shape: Sequence[int], dims: Dims, keepdim: bool = False) -> Tensor:
    """Repeat a reduction's result over the reduced dimensions: the gradient of a sum."""
    wide = with_ones(reduced, shape, dims, keepdim)
    return wide if are_same(wide.shape, tuple(shape)) else ltorch.expand(wide, tuple(shape))


# -- sums ----------------------------------------------------------------------------------------------------

nondifferentiable("prims.any", "prims.all", "prims.argmax", "prims.argmin")


def _of_sum(c: VjpCall) -> Tensor:
    return spread(c.g, c.input.shape, reduced_dims(c), c.keepdim)


def _of_mean(c: VjpCall) -> Tensor:
    dims = reduced_dims(c)
    count = math.prod(c.input.shape[d] for d in dims)
    return spread(c.g / count, c.input.shape, dims, c.keepdim)


def _of_nanmean(c: VjpCall) -> Tensor:
    counted = ~ltorch.isnan(c.input)
    share = c.g / ltorch.sum(counted, c.dim, c.keepdim)
    return spread(share, c.input.shape, reduced_dims(c), c.keepdim) * counted


formulas("prims.sum", a=lambda c: spread(c.g, c.a.shape, c.dims))
formulas("torch.sum", input=_of_sum)
formulas("torch.nansum", input=lambda c: _of_sum(c) * ~ltorch.isnan(c.input))
formulas("torch.mean", input=_of_mean)
formulas("torch.nanmean", input=_of_nanmean)

# -- products ------------------------------------------------------------------------------------------------


def _products_before(x: Tensor, dim: int) -> Tensor:
    """Return the product of the elements before each, along a dimension."""
    ones = ltorch.ones_like(ltorch.narrow(x, dim, 0, 1))
    return ltorch.cumprod(ltorch.cat((ones, ltorch.narrow(x, dim, 0, x.shape[dim] - 1)), dim), dim)


def _products_of_others(x: Tensor, dim: int) -> Tensor:
    """For each element the product of all others along a dimension, those before and after it.

    ``prod(x) / x`` would be nan at a zero, and its own derivative wrong there.
    """
    after = ltorch.flip(_products_before(ltorch.flip(x, (dim,)), dim), (dim,))
    return _products_before(x, dim) * after


def product_gradient(g: Tensor, x: Tensor, dims: Dims) -> Tensor:
    """The gradient of a product over ``dims``; ``g`` has the shape of ``x``."""
    if not dims or math.prod(x.shape) == 0:
        return g
    if len(dims) == 1:
        return g * conj(_products_of_others(x, dims[0]))
    others_dims = tuple(d for d in range(len(x.shape)) if d not in dims)
    order = (*others_dims, *dims)
    moved = ltorch.permute(x, order)
    flat = ltorch.reshape(moved, (*(x.shape[d] for d in others_dims), math.prod(x.shape[d] for d in dims)))
    others = ltorch.reshape(_products_of_others(flat, len(others_dims)), moved.shape)
    return g * conj(ltorch.permute(others, tuple(order.index(d) for d in range(len(order)))))


def _of_prod(c: VjpCall) -> Tensor:
    dims = reduced_dims(c)
    x = c.input if c.dtype is None else ltorch.to(c.input, c.dtype)
    return product_gradient(spread(c.g, x.shape, dims, getattr(c, "keepdim", False)), x, dims)


formulas("prims.prod", a=lambda c: product_gradient(spread(c.g, c.a.shape, c.dims), c.a, c.dims))
formulas("torch.prod", input=_of_prod)

# -- extrema -------------------------------------------------------------------------------------------------


def shared(g: Tensor, holders: Tensor, dims: Dims) -> Tensor:
    """Return ``g`` in equal parts where ``holders`` is True; its reduced dimensions are ones."""
    return (g / ltorch.sum(holders, dims, True) if dims else g) * holders


def extremum_gradient(g: Tensor, x: Tensor, value: Tensor, dims: Dims, keepdim: bool = False) -> Tensor:
    """Return the gradient of the largest or the smallest element, which equal ones share."""
    holders = x == with_ones(value, x.shape, dims, keepdim)
    return shared(with_ones(g, x.shape, dims, keepdim), holders, dims)


def at_indices(g: Tensor, like: Tensor, dim: int, index: Tensor, keepdim: bool) -> Tensor:
    """Return zeros like ``like``, with ``g`` at the indices along a dimension."""
    if not like.shape:
        return g
    if not keepdim:
        g, index = ltorch.unsqueeze(g, dim), ltorch.unsqueeze(index, dim)
    return ltorch.scatter_add(ltorch.zeros(like.shape, dtype=g.dtype, device=g.device), dim, index, g)


def _of_max(c: VjpCall) -> Tensor:
    dim = getattr(c, "dim", None)
    if dim is not None:
        return at_indices(c.g[0], c.input, dim, c.out[1], c.keepdim)
    # If the result is nan, no element equals it; then those that are nan share the gradient.
    holders = (c.input == c.out) | ltorch.isnan(c.input)
    return ltorch.where(holders, c.g / ltorch.sum(holders), 0.0)


@vjp("torch.aminmax")
def _of_aminmax(c: VjpCall) -> dict[str, Any]:
    pairs = [(g, value) for g, value in zip(c.g, c.out, strict=True) if g is not None]
    parts = [extremum_gradient(g, c.input, value, reduced_dims(c), c.keepdim) for g, value in pairs]
    return {"input": parts[0] if len(parts) == 1 else parts[0] + parts[1]}


formulas("prims.amax", "prims.amin", a=lambda c: extremum_gradient(c.g, c.a, c.out, c.dims))
formulas(
    "torch.amax",
    "torch.amin",
    input=lambda c: extremum_gradient(c.g, c.input, c.out, reduced_dims(c), c.keepdim),
)
formulas("torch.max", "torch.min", input=_of_max)

# -- moments -------------------------------------------------------------------------------------------------


def variance_gradient(g: Tensor, x: Tensor, dims: Dims, correction: float, keepdim: bool = False) -> Tensor:
    """``2 / (n - correction) (x - mean(x))``, which is infinite without degrees of freedom."""
    g = with_ones(g, x.shape, dims, keepdim)
    centred = x - (ltorch.mean(x, dims, True) if dims else x)
    freedom = math.prod(x.shape[d] for d in dims) - _as_integer(correction)
    if isinstance(freedom, SymbolicInt) and bool(freedom):
        return (g * 2.0) / freedom * centred
    return (g * (2.0 / freedom if freedom else math.inf)) * centred


def _as_integer(number: float) -> float:
    """Return a whole number as an int, with which a size is an expression."""
    return int(number) if number == int(number) else number


def deviation_gradient(
    g: Tensor, x: Tensor, deviation: Tensor, dims: Dims, correction: float, keepdim: bool = False
) -> Tensor:
    """Through ``sqrt(var(x))``; zero where the deviation is zero."""
    of_variance = ltorch.masked_fill(g / (deviation * 2), deviation == 0, 0.0)
    return variance_gradient(of_variance, x, dims, correction, keepdim)


def _with_mean(spread_gradient: Tensor | None, c: VjpCall, x: Tensor, dims: Dims, keepdim: bool) -> Tensor:
    """The gradient of a measure of spread and of the mean that was computed with it."""
    if c.g[1] is None:
        assert spread_gradient is not None, "a rule runs only if a gradient flows"
        return spread_gradient
    of_mean = spread(c.g[1] / math.prod(x.shape[d] for d in dims), x.shape, dims, keepdim)
    return of_mean if spread_gradient is None else spread_gradient + of_mean


@vjp("prims.var_mean")
def _of_prim_var_mean(c: VjpCall) -> dict[str, Any]:
    of_var = None if c.g[0] is None else variance_gradient(c.g[0], c.a, c.dims, c.correction)
    return {"a": _with_mean(of_var, c, c.a, c.dims, False)}


@vjp("torch.var_mean")
def _of_var_mean(c: VjpCall) -> dict[str, Any]:
    x, dims, of_var = c.input, reduced_dims(c), None
    if c.g[0] is not None:
        of_var = variance_gradient(c.g[0], x, dims, c.correction, c.keepdim)
    return {"input": _with_mean(of_var, c, x, dims, c.keepdim)}


@vjp("torch.std_mean")
def _of_std_mean(c: VjpCall) -> dict[str, Any]:
    x, dims, of_std = c.input, reduced_dims(c), None
    if c.g[0] is not None:
        of_std = deviation_gradient(c.g[0], x, c.out[0], dims, c.correction, c.keepdim)
    return {"input": _with_mean(of_std, c, x, dims, c.keepdim)}


formulas("prims.var", a=lambda c: variance_gradient(c.g, c.a, c.dims, c.correction))
formulas("prims.std", a=lambda c: deviation_gradient(c.g, c.a, c.out, c.dims, c.correction))
formulas(
    "torch.var",
    input=lambda c: variance_gradient(c.g, c.input, reduced_dims(c), c.correction, c.keepdim),
)
formulas(
    "torch.std",
    input=lambda c: deviation_gradient(c.g, c.input, c.out, reduced_dims(c), c.correction, c.keepdim),
)
