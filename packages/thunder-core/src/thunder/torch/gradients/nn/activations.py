"""Gradients of the activations of ``torch.nn.functional``.

Activations with backward kernels in torch stay one operator in the backward, too.
"""

from __future__ import annotations

from collections.abc import Callable

from thunder.ir.proxies import TensorProxy
from thunder.ops.gradient_rules import VjpCall, conj, formulas, vjp
from thunder.torch.namespace import ltorch
from thunder.torch.rows.nn.activation import SELU_ALPHA, SELU_SCALE

Tensor = TensorProxy
Gradient = Callable[[VjpCall], Tensor]


def activation(name: str, of_input: Gradient) -> None:
    """Add the gradient of ``torch.nn.functional.<name>``, which has one tensor argument."""
    formulas(f"torch.nn.functional.{name}", input=of_input)


# -- rectifiers: those that can keep the result instead of the input -----------------------------------------

for _id in ("torch.relu", "torch.nn.functional.relu"):
    formulas(_id, input=lambda c: ltorch.threshold_backward(c.g, c.out, 0))

activation("relu6", lambda c: ltorch.hardtanh_backward(c.g, c.input, 0, 6))
activation("hardtanh", lambda c: ltorch.hardtanh_backward(c.g, c.input, c.min_val, c.max_val))
activation("threshold", lambda c: ltorch.threshold_backward(c.g, c.input, c.threshold))
activation("leaky_relu", lambda c: ltorch.leaky_relu_backward(c.g, c.input, c.negative_slope, False))
activation("hardsigmoid", lambda c: ltorch.hardsigmoid_backward(c.g, c.input))
activation("hardswish", lambda c: ltorch.hardswish_backward(c.g, c.input))
activation("hardshrink", lambda c: ltorch.hardshrink_backward(c.g, c.input, c.lambd))
activation("softshrink", lambda c: ltorch.softshrink_backward(c.g, c.input, c.lambd))


def _along_channels(weight: Tensor, input: Tensor) -> Tensor:
    """Return the weight of ``prelu`` in a shape that broadcasts against the input."""
    if weight.numel() == 1:
        return ltorch.reshape(weight, ())
    return ltorch.reshape(weight, (1, -1, *(1,) * (len(input.shape) - 2))) if len(input.shape) > 1 else weight


def _of_slope(gradient: Tensor, weight: Tensor) -> Tensor:
    """Return the sum over the elements to which each slope applies."""
    if weight.numel() == 1:
        return ltorch.reshape(ltorch.sum(gradient), weight.shape)
    dims = [d for d in range(len(gradient.shape)) if d != 1]
    return ltorch.sum(gradient, dims) if len(gradient.shape) > 1 else gradient


@vjp("torch.prelu")
def prelu(c: VjpCall) -> dict[str, Tensor | None]:
    """Compute both gradients by one kernel."""
    of_input, of_weight = ltorch._prelu_kernel_backward(c.g, c.input, _along_channels(c.weight, c.input))
    return {"input": of_input, "weight": _of_slope(of_weight, c.weight) if c.needs("weight") else None}


# -- exponential units ---------------------------------------------------------------------------------------


def _unit(
    alpha: Callable[[VjpCall], float], scale: float, input_scale: Callable[[VjpCall], float]
) -> Gradient:
    return lambda c: ltorch.elu_backward(c.g, alpha(c), scale, input_scale(c), False, c.input)


activation("elu", _unit(lambda c: c.alpha, 1, lambda c: 1))
activation("celu", _unit(lambda c: c.alpha, 1, lambda c: 1 / c.alpha))
activation("selu", _unit(lambda c: SELU_ALPHA, SELU_SCALE, lambda c: 1))

# -- smooth units --------------------------------------------------------------------------------------------


def _of_softsign(c: VjpCall) -> Tensor:
    """The gradient of ``x / r`` with ``r = 1 + |x|``, without the part that ``r`` contributes."""
    r = 1 + ltorch.abs(c.input)
    return c.g / r - ltorch.sgn(c.input) * (ltorch.real(conj(c.g) * c.input) / (r * r))


activation("gelu", lambda c: ltorch.gelu_backward(c.g, c.input, approximate=c.approximate))
activation("silu", lambda c: ltorch.silu_backward(c.g, c.input))
activation("mish", lambda c: ltorch.mish_backward(c.g, c.input))
activation("softplus", lambda c: ltorch.softplus_backward(c.g, c.input, c.beta, c.threshold))
activation("logsigmoid", lambda c: c.g * ltorch.sigmoid(-c.input))
activation("tanhshrink", lambda c: c.g * conj(ltorch.square(ltorch.tanh(c.input))))
activation("softsign", _of_softsign)
activation("glu", lambda c: ltorch.glu_backward(c.g, c.input, c.dim))
