"""Gradients of norms, distances, and sums of exponentials."""

from __future__ import annotations

import math
from typing import Any

from thunder.ir.proxies import TensorProxy
from thunder.ops.casting import cast
from thunder.ops.gradient_rules import VjpCall, conj, formulas, vjp
from thunder.torch.broadcasting import broadcast_to_shape, canonical_dims, common_shape
from thunder.torch.gradients.backward_kernels import kernel
from thunder.torch.gradients.reductions import Dims, reduced_dims, shared, with_ones
from thunder.torch.namespace import ltorch
from thunder.torch.rows import statistics, torch_kernels  # noqa: F401  (the rows)

Tensor = TensorProxy


def norm_gradient(g: Tensor, x: Tensor, p: float, norm: Tensor, dims: Dims, keepdim: bool = False) -> Tensor:
    """The gradient of ``(sum |x|^p)^(1/p)`` over ``dims``: ``sgn(x) (|x| / norm)^(p - 1)``.

    Where the norm is zero, it is zero (a subgradient); the largest and the smallest elements share theirs.
    """
    g, norm = with_ones(g, x.shape, dims, keepdim), with_ones(norm, x.shape, dims, keepdim)
    if p == 0:
        return ltorch.zeros_like(x)
    if p == 1:
        return ltorch.sgn(x) * g
    if p == 2:
        return x * (g * ltorch.masked_fill(ltorch.reciprocal(norm), norm == 0, 0.0))
    if math.isinf(p):
        size = ltorch.abs(x)
        holders = (size == norm) | (ltorch.isnan(size) & ltorch.isnan(norm))
        return ltorch.sgn(x) * shared(g, holders, dims)
    if p < 1:  # the power is infinite at zero
        power = ltorch.masked_fill(ltorch.pow(ltorch.abs(x), p - 1), x == 0, 0.0)
        return ltorch.sgn(x) * power * (g * ltorch.pow(norm, 1 - p))
    scale = ltorch.masked_fill(g / ltorch.pow(norm, p - 1), norm == 0, 0.0)
    if p < 2:
        return ltorch.sgn(x) * ltorch.pow(ltorch.abs(x), p - 1) * scale
    return x * ltorch.pow(ltorch.abs(x), p - 2) * scale  # twice differentiable at zero


def _order(p: Any) -> float:
    return 2.0 if p is None or p == "fro" else float(p)


formulas(
    "torch.linalg.vector_norm",
    x=lambda c: norm_gradient(
        c.g,
        cast(c.x, c.dtype or c.x.dtype),
        float(c.ord),
        c.out,
        canonical_dims(c.dim, len(c.x.shape)),
        c.keepdim,
    ),
)
formulas(
    "torch.norm",
    input=lambda c: norm_gradient(
        c.g, cast(c.input, c.dtype or c.input.dtype), _order(c.p), c.out, reduced_dims(c), c.keepdim
    ),
)


@vjp("torch.renorm")
def _of_renorm(c: VjpCall) -> dict[str, Any]:
    """Slices longer than ``maxnorm`` are ``maxnorm x / (norm + 1e-7)``: a product rule."""
    x, maxnorm = c.input, float(c.maxnorm)
    (kept_dim,) = canonical_dims(c.dim, len(x.shape))
    dims = tuple(d for d in range(len(x.shape)) if d != kept_dim)
    norm = ltorch.vector_norm(x, c.p, dims, True)
    inverse = ltorch.reciprocal(norm + 1e-7)
    product = conj(x) * c.g
    along = ltorch.sum(ltorch.real(product) if product.dtype.is_complex else product, dims, True)
    of_norm = norm_gradient(along, x, c.p, norm, dims, True)
    return {"input": ltorch.where(norm > maxnorm, maxnorm * inverse * (c.g - inverse * of_norm), c.g)}


# -- distances -----------------------------------------------------------------------------------------------


@vjp("torch.dist")
def _of_dist(c: VjpCall) -> dict[str, Any]:
    difference = c.input - c.other
    gradient = norm_gradient(c.g, difference, float(c.p), c.out, tuple(range(len(difference.shape))))
    return {"input": gradient, "other": -gradient}


@vjp("torch.nn.functional.pairwise_distance")
def _of_pairwise_distance(c: VjpCall) -> dict[str, Any]:
    difference = c.x1 - c.x2 + c.eps
    last = (len(difference.shape) - 1,)
    gradient = norm_gradient(c.g, difference, float(c.p), c.out, last, c.keepdim)
    return {"x1": gradient, "x2": -gradient}


@kernel("_cdist_backward")
def cdist_backward(grad: Tensor, x1: Tensor, x2: Tensor, p: float, cdist: Tensor) -> Tensor:
    """The gradient of ``x1: (*, m, k)``.

    ``x2: (*, n, k)``, ``grad`` and ``cdist: (*, m, n)``.
    """
    difference = ltorch.unsqueeze(x1, -2) - ltorch.unsqueeze(x2, -3)
    g, distance = ltorch.unsqueeze(grad, -1), ltorch.unsqueeze(cdist, -1)
    last = (len(difference.shape) - 1,)
    return ltorch.sum(norm_gradient(g, difference, p, distance, last, True), -2)


@vjp("torch.cdist")
def _of_cdist(c: VjpCall) -> dict[str, Any]:
    gradients, p = {}, float(c.p)
    x1, x2 = (broadcast_to_shape(x, (*c.out.shape[:-2], *x.shape[-2:])) for x in (c.x1, c.x2))
    if c.needs("x1"):
        gradients["x1"] = ltorch._cdist_backward(c.g, x1, x2, p, c.out)
    if c.needs("x2"):
        g, distance = ltorch.transpose(c.g, -2, -1), ltorch.transpose(c.out, -2, -1)
        gradients["x2"] = ltorch._cdist_backward(g, x2, x1, p, distance)
    return gradients


@vjp("torch.nn.functional.cosine_similarity")
def _of_cosine_similarity(c: VjpCall) -> dict[str, Any]:
    """``x·y / (|x| |y|)``: the part of ``y / |y|`` across ``x``, divided by ``|x|``.

    The lengths by which torch divides are at least ``eps``, but their derivatives are those of the norm. The
    result may be overwritten before the backward.
    """
    similarity = ltorch.cosine_similarity(c.x1, c.x2, c.dim, c.eps)
    g, out = ltorch.unsqueeze(c.g, c.dim), ltorch.unsqueeze(similarity, c.dim)
    shape = common_shape((c.x1.shape, c.x2.shape))
    x1, x2 = (cast(broadcast_to_shape(x, shape), c.out.dtype) for x in (c.x1, c.x2))
    length1, length2 = (ltorch.vector_norm(x, 2, c.dim, True) for x in (x1, x2))
    bounded1, bounded2 = (ltorch.clamp_min(length, c.eps) for length in (length1, length2))

    def gradient(x: Tensor, length: Tensor, bounded: Tensor, unit: Tensor) -> Tensor:
        direction = ltorch.masked_fill(x / length, length == 0, 0.0)
        return g * (unit - out * direction) / bounded

    return {
        "x1": gradient(x1, length1, bounded1, x2 / bounded2),
        "x2": gradient(x2, length2, bounded2, x1 / bounded1),
    }


# -- sums of exponentials ------------------------------------------------------------------------------------


@vjp("torch.logsumexp")
def _of_logsumexp(c: VjpCall) -> dict[str, Any]:
    """Softmax, written with the result: ``exp(x - logsumexp(x))``."""
    dims = reduced_dims(c)
    g, out = (with_ones(t, c.input.shape, dims, c.keepdim) for t in (c.g, c.out))
    return {"input": g * conj(ltorch.exp(c.input - out))}
