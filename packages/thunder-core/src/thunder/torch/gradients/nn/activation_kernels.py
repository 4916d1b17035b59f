"""Backwards of activations for which torch has kernels.

Torch runs them as kernels; their derivatives are those of their decompositions.
"""

from __future__ import annotations

import math

import torch

from thunder.ir.proxies import TensorProxy
from thunder.ops.gradient_rules import conj
from thunder.torch.gradients.backward_kernels import kernel
from thunder.torch.namespace import ltorch

aten = torch.ops.aten

Tensor = TensorProxy

_SQRT_HALF = math.sqrt(0.5)
_SQRT_2_OVER_PI = math.sqrt(2 / math.pi)


@kernel("sigmoid_backward")
def sigmoid_backward(grad_output: Tensor, output: Tensor) -> Tensor:
    """``sigmoid' = sigmoid * (1 - sigmoid)``."""
    return grad_output * conj(output * (1 - output))


@kernel("tanh_backward")
def tanh_backward(grad_output: Tensor, output: Tensor) -> Tensor:
    """``tanh' = 1 - tanh²``."""
    return grad_output * conj(1 - output * output)


@kernel("logit_backward")
def logit_backward(grad_output: Tensor, input: Tensor, eps: float | None = None) -> Tensor:
    """``1 / (x * (1 - x))`` between the bounds; outside, 0 if there are bounds, else nan."""
    low = 0.0 if eps is None else eps
    inside = ltorch.logical_and(input >= low, input <= 1.0 - low)
    return ltorch.where(inside, grad_output / (input * (1.0 - input)), math.nan if eps is None else 0.0)


# -- rectifiers ----------------------------------------------------------------------------------------------


@kernel("threshold_backward")
def threshold_backward(grad_output: Tensor, input: Tensor, threshold: float) -> Tensor:
    """The cotangent, and 0 where the input is at or below the threshold."""
    return ltorch.where(input <= threshold, 0.0, grad_output)


@kernel("leaky_relu_backward")
def leaky_relu_backward(
    grad_output: Tensor, input: Tensor, negative_slope: float, self_is_result: bool
) -> Tensor:
    """The cotangent times 1 where the input is positive, else times the slope.

    If the slope is not negative, the result has the input's sign and can replace it.
    """
    return ltorch.where(input > 0, grad_output, grad_output * negative_slope)


@kernel("_prelu_kernel_backward")
def _prelu_kernel_backward(grad_output: Tensor, input: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """Gradients of the input, and of the weight before the sum over its broadcast dimensions."""
    positive = input > 0
    of_input = ltorch.where(positive, grad_output, weight * grad_output)
    return of_input, ltorch.where(positive, 0.0, input * grad_output)


@kernel("hardtanh_backward")
def hardtanh_backward(grad_output: Tensor, input: Tensor, min_val: float, max_val: float) -> Tensor:
    """1 strictly between the bounds, else 0."""
    outside = ltorch.logical_or(input <= min_val, input >= max_val)
    return ltorch.where(outside, 0.0, grad_output)


@kernel("hardsigmoid_backward")
def hardsigmoid_backward(grad_output: Tensor, input: Tensor) -> Tensor:
    """``1/6`` strictly between -3 and 3, else 0."""
    inside = ltorch.logical_and(input > -3, input < 3)
    return ltorch.where(inside, grad_output * (1 / 6), 0.0)


@kernel("hardswish_backward")
def hardswish_backward(grad_output: Tensor, input: Tensor) -> Tensor:
    """0 up to -3, 1 from 3 on, ``x / 3 + 1/2`` between."""
    sloped = ltorch.where(input < 3, grad_output * (input / 3 + 0.5), grad_output)
    return ltorch.where(input <= -3, 0.0, sloped)


@kernel("softshrink_backward")
def softshrink_backward(grad_output: Tensor, input: Tensor, lambd: float) -> Tensor:
    """0 within the bounds, else 1."""
    return ltorch.where(_within(input, lambd), 0.0, grad_output)


@kernel("hardshrink_backward")
def hardshrink_backward(grad_output: Tensor, input: Tensor, lambd: float) -> Tensor:
    """0 within the bounds, else 1."""
    return ltorch.where(_within(input, lambd), 0.0, grad_output)


def _within(x: Tensor, bound: float) -> Tensor:
    return ltorch.logical_and(x >= -bound, x <= bound)


# -- exponential and smooth units ----------------------------------------------------------------------------


@kernel("elu_backward")
def elu_backward(
    grad_output: Tensor, alpha: float, scale: float, input_scale: float, is_result: bool, input: Tensor
) -> Tensor:
    """``scale``, or for negative x ``scale * alpha * input_scale * exp(input_scale * x)``."""
    slope = ltorch.exp(input * input_scale) * (input_scale * alpha * scale)
    return ltorch.where(input <= 0, grad_output * slope, grad_output * scale)


@kernel("silu_backward", with_out=lambda g, a, out: aten.silu_backward.grad_input(g, a, grad_input=out))
def silu_backward(grad_output: Tensor, input: Tensor) -> Tensor:
    """``s * (1 + x * (1 - s))`` with ``s = sigmoid(x)``."""
    s = ltorch.sigmoid(input)
    return grad_output * conj(s * (1 + input * (1 - s)))


@kernel(
    "gelu_backward",
    with_out=lambda g, a, *, approximate="none", out: aten.gelu_backward.grad_input(
        g, a, approximate=approximate, grad_input=out
    ),
)
def gelu_backward(grad_output: Tensor, input: Tensor, *, approximate: str = "none") -> Tensor:
    """``Phi(x) + x * phi(x)``, or the derivative of the ``tanh`` approximation."""
    if approximate == "none":
        density = ltorch.exp(input * input * -0.5) * (0.5 * _SQRT_2_OVER_PI)
        return grad_output * (0.5 * (1 + ltorch.erf(input * _SQRT_HALF)) + input * density)
    squared = input * input
    t = ltorch.tanh(_SQRT_2_OVER_PI * input * (1 + 0.044715 * squared))
    inner = _SQRT_2_OVER_PI * (1 + 3 * 0.044715 * squared)
    return grad_output * (0.5 * (1 + t) + 0.5 * input * (1 - t * t) * inner)


@kernel("mish_backward")
def mish_backward(grad_output: Tensor, input: Tensor) -> Tensor:
    """``t + x * (1 - t²) * sigmoid(x)`` with ``t = tanh(softplus(x))``."""
    t = ltorch.tanh(ltorch.softplus(input))
    return grad_output * (t + input * (1 - t * t) * ltorch.sigmoid(input))


@kernel("softplus_backward")
def softplus_backward(grad_output: Tensor, input: Tensor, beta: float, threshold: float) -> Tensor:
    """``sigmoid(beta * x)``; 1 where the forward is the identity."""
    scaled = input * beta
    return ltorch.where(scaled > threshold, grad_output, grad_output * ltorch.sigmoid(scaled))


@kernel("glu_backward")
def glu_backward(grad_output: Tensor, input: Tensor, dim: int) -> Tensor:
    """The gradient of ``a * sigmoid(b)``: ``g * s`` and ``g * a * s * (1 - s)``, concatenated."""
    half = input.shape[dim] // 2
    a, b = ltorch.narrow(input, dim, 0, half), ltorch.narrow(input, dim, half, half)
    s = ltorch.sigmoid(b)
    scaled = grad_output * s
    return ltorch.cat([scaled, scaled * a * (1 - s)], dim)
