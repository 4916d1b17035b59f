"""Gradients of losses.

A loss is a function of each element, weighted, and reduced. Elementwise, with ``d = input - target``:

    mse_loss        2 d                       l1_loss         sgn(d)
    smooth_l1_loss  d / beta, sign(d)         huber_loss      d, delta sign(d)
    soft_margin     -y sigmoid(-y x)          binary_cross_entropy  (x - y) / (x (1 - x))

The losses that have no rule here are composed of operators in torch, too.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from thunder.ir.proxies import TensorProxy
from thunder.ops.gradient_rules import VjpCall, formulas, vjp
from thunder.torch.gradients.backward_kernels import computed_by
from thunder.torch.namespace import ltorch
from thunder.torch.rows.nn import margin_loss
from thunder.torch.rows.nn.loss import (
    absolute_error,
    huber_error,
    positive_factor,
    reduction_of,
    squared_error,
)

_F = "torch.nn.functional."


def _reduction(c: VjpCall) -> str:
    return reduction_of(c.size_average, c.reduce, c.reduction)


def _spread(g: TensorProxy, like: TensorProxy, reduction: str) -> TensorProxy:
    """Return the gradient of each element of a loss from that of its reduction.

    It broadcasts to ``like``.
    """
    return ltorch.div(g, like.numel()) if reduction == "mean" and like.numel() else g


# -- of a difference -----------------------------------------------------------------------------------------


def _of_difference(
    c: VjpCall,
    error: Callable[..., TensorProxy],
    slope: Callable[[TensorProxy], TensorProxy],
    reduction: str,
    weight: TensorProxy | None,
) -> dict[str, Any]:
    """Return the gradients of a loss that weighs ``error(input, target)``.

    The error is a function of ``d``, with derivative ``slope(d)``. A weighted mean is ``sum(w * e) /
    sum(w)``, so its weights' gradient is ``g * (e - out) / sum(w)``.
    """
    d = ltorch.sub(c.input, c.target)
    gradients: dict[str, Any] = {}
    if weight is None:
        each = _spread(c.g, d, reduction)
    else:
        each = ltorch.div(c.g, ltorch.sum(weight)) if reduction == "mean" else c.g
        if c.needs("weight"):
            e = error(c.input, c.target)
            gradients["weight"] = ltorch.mul(each, ltorch.sub(e, c.out) if reduction == "mean" else e)
        each = ltorch.mul(each, weight)
    gradients["input"] = ltorch.mul(each, slope(d))
    if c.needs("target"):
        gradients["target"] = ltorch.neg(gradients["input"])
    return gradients


@vjp(f"{_F}mse_loss")
def _of_mse_loss(c: VjpCall) -> dict[str, Any]:
    return _of_difference(c, squared_error, lambda d: ltorch.mul(d, 2), _reduction(c), c.weight)


@vjp(f"{_F}l1_loss")
def _of_l1_loss(c: VjpCall) -> dict[str, Any]:
    return _of_difference(c, absolute_error, ltorch.sgn, _reduction(c), c.weight)


@vjp(f"{_F}huber_loss")
def _of_huber_loss(c: VjpCall) -> dict[str, Any]:
    def error(input: TensorProxy, target: TensorProxy) -> TensorProxy:
        return huber_error(input, target, c.delta)

    return _of_difference(c, error, lambda d: ltorch.clamp(d, -c.delta, c.delta), c.reduction, c.weight)


@vjp(f"{_F}smooth_l1_loss")
def _of_smooth_l1_loss(c: VjpCall) -> dict[str, Any]:
    def slope(d: TensorProxy) -> TensorProxy:
        return ltorch.clamp(ltorch.div(d, c.beta), -1, 1) if c.beta else ltorch.sign(d)

    return _of_difference(c, absolute_error, slope, _reduction(c), None)


# -- of probabilities ----------------------------------------------------------------------------------------


def _weighted(c: VjpCall) -> TensorProxy:
    """The gradient of each element before its weight."""
    each = _spread(c.g, c.input, _reduction(c))
    return each if c.weight is None else ltorch.mul(each, c.weight)


def _of_probability(c: VjpCall) -> TensorProxy:
    variance = ltorch.clamp(ltorch.mul(c.input, ltorch.sub(1, c.input)), min=1e-12)  # as torch bounds it
    return ltorch.mul(_weighted(c), ltorch.div(ltorch.sub(c.input, c.target), variance))


def _of_likelihood(c: VjpCall) -> TensorProxy:
    """``log(1 - x) - log(x)``: torch bounds the logarithms in the loss, and not here."""
    return ltorch.mul(_weighted(c), ltorch.sub(ltorch.log(ltorch.sub(1, c.input)), ltorch.log(c.input)))


formulas(
    f"{_F}binary_cross_entropy",
    input=_of_probability,
    target=_of_likelihood,
    weight=lambda c: ltorch.mul(
        _spread(c.g, c.input, _reduction(c)),
        ltorch.binary_cross_entropy(c.input, c.target, reduction="none"),
    ),
)


def _of_logit(c: VjpCall) -> TensorProxy:
    """The derivative of ``(1 - y) x - f log sigmoid(x)``: ``1 - y - f (1 - sigmoid(x))``.

    ``f`` is the factor of positive examples.
    """
    if c.pos_weight is None:
        return ltorch.mul(_weighted(c), ltorch.sub(ltorch.sigmoid(c.input), c.target))
    share = ltorch.mul(positive_factor(c.target, c.pos_weight), ltorch.sigmoid(ltorch.neg(c.input)))
    return ltorch.mul(_weighted(c), ltorch.sub(ltorch.sub(1, c.target), share))


def _of_target_of_logit(c: VjpCall) -> TensorProxy:
    slope = ltorch.neg(c.input)
    if c.pos_weight is not None:
        likelihood = ltorch.logsigmoid(c.input)
        slope = ltorch.sub(slope, ltorch.mul(ltorch.sub(c.pos_weight, 1), likelihood))
    return ltorch.mul(_weighted(c), slope)


formulas(
    f"{_F}binary_cross_entropy_with_logits",
    input=_of_logit,
    target=_of_target_of_logit,
    weight=lambda c: ltorch.mul(
        _spread(c.g, c.input, _reduction(c)),
        ltorch.binary_cross_entropy_with_logits(c.input, c.target, reduction="none", pos_weight=c.pos_weight),
    ),
    pos_weight=lambda c: ltorch.mul(
        _weighted(c), ltorch.neg(ltorch.mul(c.target, ltorch.logsigmoid(c.input)))
    ),
)


def _of_soft_margin(c: VjpCall) -> TensorProxy:
    """``log(1 + z)`` with ``z = exp(-y x)`` has slope ``-y z / (1 + z)``; NaN for infinite z."""
    sign = ltorch.neg(c.target)
    z = ltorch.exp(ltorch.mul(sign, c.input))
    slope = ltorch.div(ltorch.mul(sign, z), ltorch.add(z, 1))
    return ltorch.mul(_spread(c.g, ltorch.mul(c.input, c.target), _reduction(c)), slope)


formulas(margin_loss.soft_margin_loss.id, input=_of_soft_margin)


# -- of classes ----------------------------------------------------------------------------------------------


_REDUCTIONS = ("none", "mean", "sum")


def _nll_loss_backward(
    grad_output: torch.Tensor,
    input: torch.Tensor,
    target: torch.Tensor,
    weight: torch.Tensor | None,
    ignore_index: int,
    reduction: str,
) -> torch.Tensor:
    """Gradients by torch's kernels for ``(n, c)`` and ``(n, c, h, w)``, from the weights' sum."""
    total = input.new_zeros(())
    if reduction == "mean":
        counts = target != ignore_index
        counted = counts if weight is None else weight[target.where(counts, 0)] * counts
        total = counted.sum().to(input.dtype)
    how = (weight, _REDUCTIONS.index(reduction), ignore_index, total)
    if input.dim() <= 2:
        backward = torch.ops.aten.nll_loss_backward.default
        return backward(grad_output, input, target, *how)
    n, c, *space = input.shape
    as_image = (n, 1, math.prod(space))
    g = grad_output.reshape(as_image) if reduction == "none" else grad_output
    logs = input.reshape(n, c, *as_image[1:])
    backward = torch.ops.aten.nll_loss2d_backward.default
    gradient = backward(g.contiguous(), logs.contiguous(), target.reshape(as_image).contiguous(), *how)
    return gradient.reshape(input.shape)


@computed_by(_nll_loss_backward)
def nll_loss_backward(
    grad_output: TensorProxy,
    input: TensorProxy,
    target: TensorProxy,
    weight: TensorProxy | None,
    ignore_index: int,
    reduction: str,
) -> TensorProxy:
    """``-w[y] * g`` at the class ``y`` of each sample, 0 elsewhere.

    The result has the shape of ``input``, ``(n, c, *)`` or ``(c,)``. A mean divides by the weights of the
    samples that count.
    """
    classes = 0 if len(input.shape) == 1 else 1
    counts = ltorch.ne(target, ignore_index)
    samples = ltorch.where(counts, target, 0)
    g = ltorch.neg(grad_output)
    dtype = g.dtype.torch_dtype
    weights = ltorch.to(counts, dtype=dtype)
    if weight is not None:
        of_samples = ltorch.index_select(weight, 0, ltorch.reshape(samples, (samples.numel(),)))
        weights = ltorch.mul(weights, ltorch.reshape(of_samples, target.shape))
    if reduction == "mean":
        g = ltorch.div(g, ltorch.sum(weights))
    g = ltorch.where(counts, ltorch.mul(g, weights), 0)
    zeros = ltorch.zeros(input.shape, dtype=dtype, device=g.device)
    return ltorch.scatter(zeros, classes, *(ltorch.unsqueeze(x, classes) for x in (samples, g)))


formulas(
    f"{_F}nll_loss",
    input=lambda c: nll_loss_backward(c.g, c.input, c.target, c.weight, c.ignore_index, _reduction(c)),
)
