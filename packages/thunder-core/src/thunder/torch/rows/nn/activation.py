"""Activations of ``torch.nn.functional``, with the formulas of torch's documentation."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from typing import Any

import torch

from thunder.ir.proxies import TensorProxy
from thunder.ir.symbol import Symbol
from thunder.ops.in_place import whole
from thunder.ops.layout_rules import BY_KERNEL
from thunder.ops.same_operators import declare_same
from thunder.torch.inplace import write_back
from thunder.torch.namespace import ltorch
from thunder.torch.registration import torchsymbol

aten = torch.ops.aten

_F = "torch.nn.functional."


def activation(*also: str, inplace: str | None = None, **row: Any) -> Callable[[Callable[..., Any]], Symbol]:
    """Register an activation as ``torch.nn.functional.<its name>``.

    ``inplace`` names the in-place method (``relu_``), which ``torch`` and ``torch.nn.functional`` have as a
    function, too.
    """

    def decorate(fn: Callable[..., Any]) -> Symbol:
        functions = (f"torch.{inplace}", f"{_F}{inplace}") if inplace else ()
        return torchsymbol(
            f"{_F}{fn.__name__}",
            *also,
            inplace=(inplace,) if inplace else (),
            inplace_functions=functions,
            **row,
        )(fn)

    return decorate


def may_be_inplace(also: tuple[str, ...] = (), **row: Any) -> Callable[[Callable[..., Any]], Symbol]:
    """Register an activation under torch's signature, which ends in ``inplace=False``.

    ``F.relu(x, inplace=True)`` is ``F.relu(x)`` and a write to ``x``.
    """

    def decorate(fn: Callable[..., Any]) -> Symbol:
        def decomposition(*args: Any) -> Any:
            *rest, inplace = args
            return write_back(symbol(*rest), rest[0]) if inplace else fn(*rest)

        parameters = inspect.signature(fn)
        last = inspect.Parameter("inplace", inspect.Parameter.POSITIONAL_OR_KEYWORD, default=False)
        decomposition.__signature__ = parameters.replace(  # type: ignore[attr-defined]
            parameters=[*parameters.parameters.values(), last]
        )
        decomposition.__name__ = fn.__name__
        symbol = torchsymbol(f"{_F}{fn.__name__}", *also, **row)(decomposition)
        return symbol

    return decorate


# -- rectifiers ------------------------------------------------------------------------------------


@torchsymbol(
    "torch.relu",
    methods=("relu",),
    inplace=("relu_",),
    inplace_functions=("torch.relu_",),
    in_place=whole(torch.Tensor.relu_),
    with_out=lambda a, out: a.relu_(),
)
def torch_relu(input: TensorProxy) -> TensorProxy:
    """``max(x, 0)``; NaN stays NaN."""
    return ltorch.where(ltorch.le(input, 0), 0, input)


@may_be_inplace(
    in_place=whole(lambda a, *_, **__: a.relu_()), with_out=lambda a, inplace=False, *, out: a.relu_()
)
def relu(input: TensorProxy) -> TensorProxy:
    """``max(x, 0)``; NaN stays NaN."""
    return ltorch.where(ltorch.le(input, 0), 0, input)


declare_same(
    torch_relu,
    relu,
    lambda input: ((input,), {}),
    lambda input, inplace=False: None if inplace else ((input,), {}),
)


@may_be_inplace()
def relu6(input: TensorProxy) -> TensorProxy:
    """``min(max(x, 0), 6)``."""
    return ltorch.clamp(input, 0, 6)


@may_be_inplace()
def leaky_relu(input: TensorProxy, negative_slope: float = 0.01) -> TensorProxy:
    """``x`` where it is positive, else ``negative_slope * x``."""
    return ltorch.where(ltorch.gt(input, 0), input, ltorch.mul(input, negative_slope))


@torchsymbol("torch.prelu", "torch.nn.functional.prelu", methods=("prelu",))
def prelu(input: TensorProxy, weight: TensorProxy) -> TensorProxy:
    """``leaky_relu`` with a slope for each channel.

    ``input: (n, c, *)``, ``weight: (c,)``, ``(1,)`` or ``()``.
    """
    if weight.numel() == 1:
        weight = ltorch.reshape(weight, ())
    elif len(input.shape) > 1:
        weight = ltorch.reshape(weight, (1, -1, *(1,) * (len(input.shape) - 2)))
    return ltorch.where(ltorch.gt(input, 0), input, ltorch.mul(weight, input))


@may_be_inplace()
def threshold(input: TensorProxy, threshold: float, value: float) -> TensorProxy:
    """``x`` where it is above ``threshold``, else ``value``."""
    return ltorch.where(ltorch.le(input, threshold), value, input)


@may_be_inplace()
def hardtanh(input: TensorProxy, min_val: float = -1.0, max_val: float = 1.0) -> TensorProxy:
    """``x``, clamped to ``[min_val, max_val]``; integers stay integers."""
    if input.dtype.is_integer:
        min_val, max_val = int(min_val), int(max_val)
    return ltorch.clamp(input, min_val, max_val)


@may_be_inplace()
def hardsigmoid(input: TensorProxy) -> TensorProxy:
    """``relu6(x + 3) / 6``."""
    return ltorch.div(ltorch.clamp(ltorch.add(input, 3), 0, 6), 6)


@may_be_inplace()
def hardswish(input: TensorProxy) -> TensorProxy:
    """``x * relu6(x + 3) / 6``."""
    return ltorch.div(ltorch.mul(input, ltorch.clamp(ltorch.add(input, 3), 0, 6)), 6)


# -- exponential units -----------------------------------------------------------------------------

SELU_ALPHA = 1.6732632423543772848170429916717
SELU_SCALE = 1.0507009873554804934193349852946


def _exponential_unit(x: TensorProxy, alpha: float, scale: float, input_scale: float) -> TensorProxy:
    """``scale * x`` where positive, else ``scale * alpha * (exp(input_scale * x) - 1)``."""
    negative = ltorch.mul(ltorch.expm1(x if input_scale == 1 else ltorch.mul(x, input_scale)), alpha * scale)
    return ltorch.where(ltorch.gt(x, 0), x if scale == 1 else ltorch.mul(x, scale), negative)


@may_be_inplace()
def elu(input: TensorProxy, alpha: float = 1.0) -> TensorProxy:
    """``x``, or ``alpha * (exp(x) - 1)`` for negative x.

    Clevert et al., Fast and Accurate Deep Network Learning by Exponential Linear Units (2016).
    """
    return _exponential_unit(input, alpha, 1, 1)


@may_be_inplace()
def celu(input: TensorProxy, alpha: float = 1.0) -> TensorProxy:
    """Barron, Continuously Differentiable Exponential Linear Units (2017)."""
    return _exponential_unit(input, alpha, 1, 1 / alpha)


@may_be_inplace()
def selu(input: TensorProxy) -> TensorProxy:
    """Klambauer et al., Self-Normalizing Neural Networks (2017)."""
    return _exponential_unit(input, SELU_ALPHA, SELU_SCALE, 1)


# -- smooth units ----------------------------------------------------------------------------------

_SQRT_2 = math.sqrt(2)
_SQRT_2_OVER_PI = math.sqrt(2 / math.pi)


@activation(
    "torch._C._nn.gelu",
    id=f"{_F}gelu",
    with_out=lambda a, *, approximate="none", out: aten.gelu.out(a, approximate=approximate, out=out),
)
def gelu(input: TensorProxy, *, approximate: str = "none") -> TensorProxy:
    """``x * Phi(x)``, or its ``tanh`` approximation.

    Hendrycks and Gimpel, Gaussian Error Linear Units (2016).
    """
    if approximate == "none":
        half_erf = ltorch.mul(0.5, ltorch.erf(ltorch.true_divide(input, _SQRT_2)))
        return ltorch.mul(input, ltorch.add(0.5, half_erf))
    cubed = ltorch.mul(ltorch.mul(input, input), input)
    inner = ltorch.mul(_SQRT_2_OVER_PI, ltorch.add(input, ltorch.mul(0.044715, cubed)))
    return ltorch.mul(ltorch.mul(0.5, input), ltorch.add(1, ltorch.tanh(inner)))


@may_be_inplace(with_out=lambda a, inplace=False, *, out: aten.silu.out(a, out=out))
def silu(input: TensorProxy) -> TensorProxy:
    """``x * sigmoid(x)``."""
    return ltorch.mul(input, ltorch.sigmoid(input))


@may_be_inplace()
def mish(input: TensorProxy) -> TensorProxy:
    """Misra, Mish (2019): ``x * tanh(softplus(x))``."""
    return ltorch.mul(input, ltorch.tanh(ltorch.softplus(input)))


@activation()
def softplus(input: TensorProxy, beta: float = 1, threshold: float = 20) -> TensorProxy:
    """``log(1 + exp(beta * x)) / beta``; ``x`` itself where ``beta * x > threshold``."""
    scaled = ltorch.mul(input, beta)
    smooth = ltorch.div(ltorch.log1p(ltorch.exp(scaled)), beta)
    return ltorch.where(ltorch.gt(scaled, threshold), input, smooth)


@activation(layout=BY_KERNEL)
def logsigmoid(input: TensorProxy) -> TensorProxy:
    """``log(sigmoid(x)) = min(x, 0) - log1p(exp(-|x|))``."""
    tail = ltorch.log1p(ltorch.exp(ltorch.neg(ltorch.abs(input))))
    return ltorch.sub(ltorch.clamp(input, None, 0), tail)


@activation()
def softsign(input: TensorProxy) -> TensorProxy:
    """``x / (1 + |x|)``."""
    return ltorch.div(input, ltorch.add(ltorch.abs(input), 1))


@activation()
def tanhshrink(input: TensorProxy) -> TensorProxy:
    """``x - tanh(x)``."""
    return ltorch.sub(input, ltorch.tanh(input))


@activation()
def softshrink(input: TensorProxy, lambd: float = 0.5) -> TensorProxy:
    """``x`` moved towards 0 by ``lambd``; 0 between."""
    lambd = +lambd  # a truth value is a number here: torch converts it
    shrunk = ltorch.where(ltorch.gt(input, lambd), ltorch.sub(input, lambd), ltorch.mul(input, 0))
    return ltorch.where(ltorch.lt(input, -lambd), ltorch.add(input, lambd), shrunk)


@activation("torch.hardshrink", id=f"{_F}hardshrink", methods=("hardshrink",))
def hardshrink(input: TensorProxy, lambd: float = 0.5) -> TensorProxy:
    """``x`` where ``|x| > lambd``, else 0."""
    inside = ltorch.logical_and(ltorch.ge(input, -lambd), ltorch.le(input, lambd))
    return ltorch.where(inside, 0, input)


@activation()
def glu(input: TensorProxy, dim: int = -1) -> TensorProxy:
    """``a * sigmoid(b)`` for the two halves of the input.

    Dauphin et al., Language Modeling with Gated Convolutional Networks (2017).
    """
    half = input.shape[dim] // 2
    a, b = ltorch.narrow(input, dim, 0, half), ltorch.narrow(input, dim, half, half)
    return ltorch.mul(a, ltorch.sigmoid(b))
