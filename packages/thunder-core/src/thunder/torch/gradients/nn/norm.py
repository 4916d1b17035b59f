"""Gradients of normalisations.

All of them compute ``y = x̂ * w + b`` from ``x̂ = (x - mean) * rstd``, with ``rstd = 1 / sqrt(var + eps)``
and statistics over some dimensions, and save ``mean`` and ``rstd``. With ``h = g * w`` and means over the
same dimensions (Ioffe and Szegedy, Batch Normalization, 2015, section 3):

    dx = rstd * (h - mean(h) - x̂ * mean(h * x̂))        dw = sum(g * x̂)        db = sum(g)

Note [Statistics are computed again in the decomposition of a backward]

The statistics that a forward saves carry no gradient, and a second derivative depends on how they depend on
the input. So the decompositions below, by which the backwards are differentiated, compute them from the
input; torch's kernels take the saved ones.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from thunder.ir.proxies import TensorProxy
from thunder.ops.casting import cast
from thunder.ops.gradient_rules import VjpCall, conj, formulas, gradient_rule, vjp, wants_grad
from thunder.ops.prims.gradient import get_grad, put_grads
from thunder.torch.gradients.backward_kernels import computed_by
from thunder.torch.mixed_precision import computed_in
from thunder.torch.namespace import ltorch
from thunder.torch.rows.nn.norm import (
    contiguous_parameter,
    last_dims,
    per_channel,
    rms_factor,
    standardised,
    standardised_groups,
    suggested_format,
    to_group_norm_layout,
)

_F = "torch.nn.functional."

Gradients = tuple[TensorProxy | None, TensorProxy | None, TensorProxy | None]
Mask = Sequence[bool]


def _mask(c: VjpCall) -> list[bool]:
    """Return which gradients are needed, in the order of torch's kernels."""
    return [c.needs("input"), c.needs("weight"), c.needs("bias")]


def _named(gradients: Gradients) -> dict[str, TensorProxy | None]:
    return dict(zip(("input", "weight", "bias"), gradients, strict=True))


def _through_standardisation(
    h: TensorProxy, normal: TensorProxy, rstd: TensorProxy, dims: Sequence[int]
) -> TensorProxy:
    """Return ``dx`` of the module's formula."""
    along = ltorch.mul(normal, ltorch.mean(ltorch.mul(h, normal), dims, True))
    return ltorch.mul(rstd, ltorch.sub(ltorch.sub(h, ltorch.mean(h, dims, True)), along))


def _of_parameters(
    g: TensorProxy,
    normal: TensorProxy,
    over: Sequence[int],
    weight: TensorProxy | None,
    bias: TensorProxy | None,
    mask: Mask,
) -> tuple[TensorProxy | None, TensorProxy | None]:
    """Return ``dw`` and ``db`` of the module's formula, summed over the other dimensions."""
    dw = db = None
    if mask[1] and weight is not None:
        dw = cast(_summed(ltorch.mul(g, normal), over), weight.dtype)
    if mask[2] and bias is not None:
        db = cast(_summed(g, over), bias.dtype)
    return dw, db


def _summed(x: TensorProxy, over: Sequence[int]) -> TensorProxy:
    return ltorch.sum(x, over) if over else ltorch.clone(x)  # torch sums all for no dimensions


# -- layer normalisation -------------------------------------------------------------------------------------


def _layer_norm_backward(grad_out: Any, input: Any, *rest: Any) -> Any:
    *arguments, _, output_mask = rest
    return torch.ops.aten.native_layer_norm_backward.default(grad_out, input, *arguments, output_mask)


@computed_by(_layer_norm_backward)
def layer_norm_backward(
    grad_out: TensorProxy,
    input: TensorProxy,
    normalized_shape: Sequence[int],
    mean: TensorProxy,
    rstd: TensorProxy,
    weight: TensorProxy | None,
    bias: TensorProxy | None,
    eps: float,
    output_mask: Mask,
) -> Gradients:
    """Gradients of input, weight and bias, each None where the mask is False."""
    dims = last_dims(input, normalized_shape)
    g = computed_in(grad_out)
    normal, _, rstd = standardised(computed_in(input), dims, eps)
    over = tuple(range(len(input.shape) - len(dims)))
    h = g if weight is None else ltorch.mul(g, weight)
    dx = cast(_through_standardisation(h, normal, rstd, dims), input.dtype) if output_mask[0] else None
    return dx, *_of_parameters(g, normal, over, weight, bias, output_mask)


@vjp("ltorch.native_layer_norm")
def _of_native_layer_norm(c: VjpCall) -> dict[str, TensorProxy | None]:
    _, mean, rstd = c.out
    shape = list(c.normalized_shape)
    return _named(layer_norm_backward(c.g[0], c.input, shape, mean, rstd, c.weight, c.bias, c.eps, _mask(c)))


@gradient_rule(f"{_F}layer_norm")
def _layer_norm(
    input: TensorProxy,
    normalized_shape: Sequence[int],
    weight: TensorProxy | None = None,
    bias: TensorProxy | None = None,
    eps: float = 1e-05,
) -> TensorProxy:
    out, mean, rstd = ltorch.native_layer_norm(input, normalized_shape, weight, bias, eps)
    mask = [wants_grad(x) for x in (input, weight, bias)]
    g, shape = get_grad(out), list(normalized_shape)
    gradients = layer_norm_backward(g, input, shape, mean, rstd, weight, bias, eps, mask)
    put_grads((input, weight, bias), gradients)
    return out


# -- root mean square ----------------------------------------------------------------------------------------


@computed_by(None)
def rms_norm_backward(
    grad_out: TensorProxy,
    input: TensorProxy,
    normalized_shape: Sequence[int],
    weight: TensorProxy | None,
    eps: float | None,
    output_mask: Mask,
) -> tuple[TensorProxy | None, TensorProxy | None]:
    """``dx = r * (h - x̂ * mean(h * x̂))`` with ``x̂ = x * r``: layer_norm without a mean."""
    dims = last_dims(input, normalized_shape)
    a, g = computed_in(input), computed_in(grad_out)
    r = rms_factor(a, dims, eps)
    normal = conj(ltorch.mul(a, r))
    over = tuple(range(len(input.shape) - len(dims)))
    dx = None
    if output_mask[0]:
        h = g if weight is None else ltorch.mul(g, conj(weight))
        along = ltorch.mul(normal, ltorch.mean(ltorch.mul(h, normal), dims, True))
        dx = cast(ltorch.mul(conj(r), ltorch.sub(h, along)), input.dtype)
    return dx, _of_parameters(g, normal, over, weight, None, (False, output_mask[1], False))[0]


@vjp(f"{_F}rms_norm", "torch.rms_norm")
def _of_rms_norm(c: VjpCall) -> dict[str, TensorProxy | None]:
    mask = [c.needs("input"), c.needs("weight")]
    shape = list(c.normalized_shape)
    gradients = rms_norm_backward(c.g, c.input, shape, c.weight, c.eps, mask)
    return dict(zip(("input", "weight"), gradients, strict=True))


# -- group normalisation -------------------------------------------------------------------------------------


def _group_norm_backward(grad_out: Any, input: Any, *rest: Any) -> Any:
    mean, rstd, weight, _, groups, _, mask = rest
    sizes = (*input.shape[:2], math.prod(input.shape[2:]))
    kernel = torch.ops.aten.native_group_norm_backward.default
    # the cotangent gets the layout of the input: the kernel has one layout for both
    input_in_layout = to_group_norm_layout(input)
    grad_out = grad_out.contiguous(memory_format=suggested_format(input_in_layout))
    return kernel(grad_out, input_in_layout, mean, rstd, contiguous_parameter(weight), *sizes, groups, mask)


@computed_by(_group_norm_backward)
def group_norm_backward(
    grad_out: TensorProxy,
    input: TensorProxy,
    mean: TensorProxy,
    rstd: TensorProxy,
    weight: TensorProxy | None,
    bias: TensorProxy | None,
    num_groups: int,
    eps: float,
    output_mask: Mask,
) -> Gradients:
    """Gradients of input, weight and bias, each None where the mask is False."""
    g = computed_in(grad_out)
    normal, _, rstd = standardised_groups(input, num_groups, eps)
    dx = None
    if output_mask[0]:
        h = g if weight is None else ltorch.mul(g, per_channel(weight, input))
        grouped = (input.shape[0], num_groups, math.prod(input.shape[1:]) // num_groups)
        h, by_group = ltorch.reshape(h, grouped), ltorch.reshape(normal, grouped)
        dx = ltorch.reshape(_through_standardisation(h, by_group, rstd, (2,)), input.shape)
        dx = cast(dx, input.dtype)
    return dx, *_of_parameters(g, normal, _but_channels(input), weight, bias, output_mask)


def _but_channels(input: TensorProxy) -> tuple[int, ...]:
    return (0, *range(2, len(input.shape)))


def _by_groups(c: VjpCall, g: TensorProxy, groups: int, mean: TensorProxy, rstd: TensorProxy) -> Any:
    arguments = (c.weight, c.bias, groups, c.eps, _mask(c))
    return _named(group_norm_backward(g, c.input, mean, rstd, *arguments))


@vjp("ltorch.native_group_norm")
def _of_native_group_norm(c: VjpCall) -> Any:
    return _by_groups(c, c.g[0], c.num_groups, *c.out[1:])


@gradient_rule(f"{_F}group_norm")
def _group_norm(
    input: TensorProxy,
    num_groups: int,
    weight: TensorProxy | None = None,
    bias: TensorProxy | None = None,
    eps: float = 1e-05,
) -> TensorProxy:
    out, mean, rstd = ltorch.native_group_norm(input, weight, bias, num_groups, eps)
    mask = [wants_grad(x) for x in (input, weight, bias)]
    g = get_grad(out)
    gradients = group_norm_backward(g, input, mean, rstd, weight, bias, num_groups, eps, mask)
    put_grads((input, weight, bias), gradients)
    return out


@vjp("prims.instance_norm_update")
def _of_instance_norm_update(c: VjpCall) -> Any:
    """Instance normalisation is group normalisation with a group for each channel."""
    a, channels = ltorch.contiguous(c.a), c.a.shape[1]  # torch's kernel has contiguous results
    call = VjpCall({"input": a, "weight": c.weight, "bias": c.bias, "eps": c.eps}, c.out, c.g)
    _, mean, rstd = ltorch.native_group_norm(a, c.weight, c.bias, channels, c.eps)
    gradients = _by_groups(call, c.g[0], channels, mean, rstd)
    return {"a": gradients["input"], "weight": gradients["weight"], "bias": gradients["bias"]}


# -- batch normalisation -------------------------------------------------------------------------------------


def _in_layout_of(input: Any, grad_out: Any) -> Any:
    """Return ``grad_out`` in the memory format of ``input``.

    Where a dimension has size one, a tensor may be contiguous as channels-last while its strides suggest a
    plain layout, or the reverse. Torch's kernel for CPUs then reads ``grad_out`` in the order of ``input``.
    """
    formats = [torch.contiguous_format]
    formats += {4: [torch.channels_last], 5: [torch.channels_last_3d]}.get(input.ndim, [])
    for memory_format in formats:
        if input.is_contiguous(memory_format=memory_format):
            return grad_out.contiguous(memory_format=memory_format)
    return grad_out


def _batch_norm_backward(grad_out: Any, input: Any, *rest: Any) -> Any:
    mean, rstd, weight, bias, eps, mask = rest
    if not input.numel():  # the kernel takes no input without elements
        return tuple(
            torch.zeros_like(x) if is_needed else None
            for x, is_needed in zip((input, weight, bias), mask, strict=True)
        )
    if grad_out.device.type == "cpu" and 1 in input.shape:
        grad_out = _in_layout_of(input, grad_out)
    kernel = torch.ops.aten.native_batch_norm_backward.default
    return kernel(grad_out, input, weight, None, None, mean, rstd, True, eps, mask)


@computed_by(_batch_norm_backward)
def batch_norm_backward(
    grad_out: TensorProxy,
    input: TensorProxy,
    mean: TensorProxy,
    rstd: TensorProxy,
    weight: TensorProxy | None,
    bias: TensorProxy | None,
    eps: float,
    output_mask: Mask,
) -> Gradients:
    """Gradients of input, weight and bias of a normalisation by the batch's statistics."""
    over = _but_channels(input)
    g = computed_in(grad_out)
    normal, _, rstd = standardised(computed_in(input), over, eps)
    dx = None
    if output_mask[0]:
        h = g if weight is None else ltorch.mul(g, per_channel(weight, input))
        dx = cast(_through_standardisation(h, normal, rstd, over), input.dtype)
    return dx, *_of_parameters(g, normal, over, weight, bias, output_mask)


@vjp("ltorch.native_batch_norm")
def _of_native_batch_norm(c: VjpCall) -> Any:
    return _named(batch_norm_backward(c.g[0], c.input, *c.out[1:], c.weight, c.bias, c.eps, _mask(c)))


@vjp("prims.batch_norm_update")
def _of_batch_norm_update(c: VjpCall) -> Any:
    if c.g[0] is None:  # only the running statistics are used, through which no gradient flows
        return {}
    mask = [c.needs("a"), c.needs("weight"), c.needs("bias")]
    gradients = batch_norm_backward(c.g[0], c.a, *c.out[3:], c.weight, c.bias, c.eps, mask)
    return dict(zip(("a", "weight", "bias"), gradients, strict=True))


def _standardised_by(c: VjpCall) -> TensorProxy:
    return ltorch.norm_by_statistics(c.input, c.mean, c.var, None, None, c.eps)


def _factor(c: VjpCall) -> TensorProxy | None:
    """Return the factor by which ``norm_by_statistics`` multiplies each channel."""
    rstd = ltorch.rsqrt(ltorch.add(c.var, c.eps))
    return per_channel(rstd if c.weight is None else ltorch.mul(rstd, c.weight), c.input)


def _over_channels(c: VjpCall, x: TensorProxy) -> TensorProxy:
    return ltorch.sum(x, _but_channels(c.input))


formulas(
    "ltorch.norm_by_statistics",
    input=lambda c: ltorch.mul(c.g, _factor(c)),
    weight=lambda c: _over_channels(c, ltorch.mul(c.g, _standardised_by(c))),
    bias=lambda c: _over_channels(c, c.g),
)
