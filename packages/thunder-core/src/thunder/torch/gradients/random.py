"""Gradients of dropout, its relatives, and random numbers.

Torch draws a mask or noise inside the operator and saves it for the backward. So do the rules here: the
forward becomes an operator that returns it too, or a product with a mask or noise that is drawn as torch
draws it, so that equal seeds have eager's numbers, to the last bit. No gradient flows through mask and noise.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch

from thunder.base.dtypes import bool8
from thunder.base.tags import OpTags
from thunder.ir.proxies import TensorProxy
from thunder.ops import prims
from thunder.ops.gradient_rules import formulas, gradient_rule, nondifferentiable
from thunder.ops.prims.gradient import get_grad, put_grad
from thunder.torch.gradients.backward_kernels import kernel
from thunder.torch.namespace import ltorch
from thunder.torch.registration import torchsymbol
from thunder.torch.rows import random  # noqa: F401  (the rows)
from thunder.torch.rows.nn import dropout as dropout_rows

Tensor = TensorProxy
_F = "torch.nn.functional."

#: torch's constant: ``scale * alpha`` of Klambauer et al., Self-Normalizing Neural Networks (2017)
_ALPHA = 1.7580993408473766


# -- dropout of elements -------------------------------------------------------------------------------------


def _scale(p: float) -> float:
    """Return the factor of the elements that dropout keeps; it keeps none with ``p = 1``."""
    return 0.0 if p == 1 else 1 / (1 - p)


@torchsymbol("torch.native_dropout", tags=(OpTags.RANDOM_OP,))
def native_dropout(input: Tensor, p: float, train: bool | None) -> tuple[Tensor, Tensor]:
    """``dropout``, and the mask of the elements that it keeps."""
    if train is False:
        return prims.clone(input), prims.full(input.shape, True, device=input.device, dtype=bool8)
    mask = prims.lt(prims.uniform(input.shape, 0.0, 1.0, device=input.device, dtype=input.dtype), 1 - p)
    return native_dropout_backward(input, mask, _scale(p)), mask


@kernel("native_dropout_backward")
def native_dropout_backward(grad_output: Tensor, mask: Tensor, scale: float) -> Tensor:
    """The elements that dropout keeps, scaled as in the forward."""
    return ltorch.mul(grad_output, ltorch.mul(ltorch.to(mask, dtype=grad_output.dtype.torch_dtype), scale))


def _dropping_all(input: Tensor) -> Tensor:
    """``p = 1``: nan and infinity become nan, as in torch."""
    out = ltorch.mul(input, 0)
    put_grad(input, ltorch.mul(get_grad(out), 0))
    return out


def _dropout_mask(input: torch.Tensor, p: float) -> torch.Tensor:
    return torch.empty_like(input, dtype=torch.bool).bernoulli_(1 - p)


@torchsymbol(id="ltorch.dropout_mask", eager=_dropout_mask, tags=(OpTags.RANDOM_OP,))
def dropout_mask(input: Tensor, p: float) -> Tensor:
    """Return which elements ``dropout`` keeps: a byte for each, drawn as torch draws the noise."""
    return prims.bernoulli_fill(input.shape, 1 - p, device=input.device, dtype=bool8)


def _dropout_by_mask(input: torch.Tensor, mask: torch.Tensor, p: float) -> torch.Tensor:
    return input * mask.to(input.dtype).div_(1 - p)


@torchsymbol(id="ltorch.dropout_by_mask", eager=_dropout_by_mask)
def dropout_by_mask(input: Tensor, mask: Tensor, p: float) -> Tensor:
    """Return ``dropout`` for a mask: a product with 0, or with ``1 / (1 - p)`` in the dtype of the input."""
    return ltorch.mul(input, ltorch.div(ltorch.to(mask, dtype=input.dtype.torch_dtype), 1 - p))


formulas("ltorch.dropout_by_mask", input=lambda c: dropout_by_mask(c.g, c.mask, c.p))


@gradient_rule(f"{_F}dropout")
def dropout(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Save the mask; on other devices than CPUs torch has a kernel with one (its Dropout.cpp)."""
    if p == 1.0:
        return _dropping_all(input)
    if input.device.type == "cpu":
        mask = dropout_mask(input, p)
        out = dropout_by_mask(input, mask, p)
        put_grad(input, dropout_by_mask(get_grad(out), mask, p))
        return out
    out, mask = ltorch.native_dropout(input, p, True)
    put_grad(input, native_dropout_backward(get_grad(out), mask, 1 / (1 - p)))
    return out


# With train=None torch computes a dropout, and the gradient without its factor (derivatives.yaml).
formulas(
    "torch.native_dropout",
    input=lambda c: native_dropout_backward(c.g[0], c.out[1], _scale(c.p) if c.train else 1),
)


# -- dropout of channels, and dropout that keeps mean and variance -------------------------------------------


def _channels(leading: int) -> Callable[[Tensor], tuple[int, ...]]:
    """Return the shape of a mask of channels.

    It has ``leading`` dimensions without a batch, else one more.
    """

    def shape(input: Tensor) -> tuple[int, ...]:
        rank = len(input.shape)
        count = 1 if rank == leading else 2
        return (*input.shape[:count], *(1,) * (rank - count))

    return shape


def _multiplied(name: str, shape: Callable[[Tensor], tuple[int, ...]]) -> None:
    """``x * noise``, where the noise is the operator's result for ones."""

    @gradient_rule(f"{_F}{name}")
    def rule(input: Tensor, p: float = 0.5, training: bool = True) -> Tensor:
        if p == 1.0:
            return _dropping_all(input)
        ones = prims.full(shape(input), 1, device=input.device, dtype=input.dtype)
        noise = ltorch_symbol(ones, p, True)
        out = ltorch.mul(input, noise)
        put_grad(input, ltorch.mul(get_grad(out), noise))
        return out

    ltorch_symbol = getattr(dropout_rows, name)


def _zeros_of(shape: Callable[[Tensor], tuple[int, ...]]) -> Callable[[Tensor], Tensor]:
    return lambda input: prims.full(shape(input), 0, device=input.device, dtype=input.dtype)


def _shifted(name: str, zeros: Callable[[Tensor], Tensor]) -> None:
    """``x * noise + shift``, where the operator draws the shift: positive where x is kept.

    The zeros that it starts from have the layout of torch's own noise, which is drawn in the order of the
    memory.
    """

    @gradient_rule(f"{_F}{name}")
    def rule(input: Tensor, p: float = 0.5, training: bool = False) -> Tensor:
        if p == 1.0:
            return _dropping_all(input)
        shift = ltorch_symbol(zeros(input), p, True)
        real = ltorch.real(shift) if input.dtype.is_complex else shift
        keeps = ltorch.to(ltorch.gt(real, 0), dtype=input.dtype.torch_dtype)
        noise = ltorch.mul(keeps, 1 / math.sqrt((_ALPHA * _ALPHA * p + 1) * (1 - p)))
        out = ltorch.add(ltorch.mul(input, noise), shift)
        put_grad(input, ltorch.mul(get_grad(out), noise))
        return out

    ltorch_symbol = getattr(dropout_rows, name)


_multiplied("dropout1d", _channels(2))
_multiplied("dropout2d", _channels(0))
_multiplied("dropout3d", _channels(4))
_shifted("alpha_dropout", ltorch.zeros_like)
_shifted("feature_alpha_dropout", _zeros_of(_channels(0)))


# -- random slopes -------------------------------------------------------------------------------------------


def _rrelu_with_noise(input: torch.Tensor, lower: float, upper: float) -> tuple[torch.Tensor, torch.Tensor]:
    noise = torch.empty(input.shape, dtype=input.dtype, device=input.device)  # torch's kernel fills memory
    return torch.ops.aten.rrelu_with_noise_functional.default(input, noise, lower, upper, True)


@torchsymbol(id="ltorch.rrelu_with_noise", eager=_rrelu_with_noise, tags=(OpTags.RANDOM_OP,))
def rrelu_with_noise(input: Tensor, lower: float, upper: float) -> tuple[Tensor, Tensor]:
    """``rrelu`` in training, and the factor of each element: 1, or a random slope up to 0."""
    drawn = prims.uniform(input.shape, lower, upper, device=input.device, dtype=input.dtype)
    noise = ltorch.where(ltorch.le(input, 0), drawn, 1.0)
    return ltorch.mul(input, noise), noise


formulas("ltorch.rrelu_with_noise", input=lambda c: ltorch.mul(c.g[0], c.out[1]))


@gradient_rule(f"{_F}rrelu")
def rrelu(input: Tensor, lower: float = 1 / 8, upper: float = 1 / 3, training: bool = False) -> Tensor:
    """Save the slopes; evaluation has one, the mean of the bounds."""
    if training:
        out, noise = rrelu_with_noise(input, lower, upper)
        put_grad(input, ltorch.mul(get_grad(out), noise))
        return out
    out = dropout_rows.rrelu(input, lower, upper, False)
    put_grad(input, ltorch.leaky_relu_backward(get_grad(out), input, (lower + upper) / 2, False))
    return out


# -- random numbers ------------------------------------------------------------------------------------------


# Torch lets these results require grad, which is 0.
formulas("torch.bernoulli", input=lambda c: ltorch.zeros_like(c.input))
formulas("prims.bernoulli", a=lambda c: ltorch.zeros_like(c.a))
formulas("prims.bernoulli_fill", p=lambda c: ltorch.zeros_like(c.p))
formulas("torch.poisson", input=lambda c: ltorch.zeros_like(c.input))
# torch's derivatives.yaml: reparametrised by the implicit function of the density
formulas(
    "torch._standard_gamma",
    concentration=lambda c: ltorch.mul(c.g, ltorch._standard_gamma_grad(c.concentration, c.out)),
)
formulas("torch.normal", mean=lambda c: ltorch.zeros_like(c.mean), std=lambda c: ltorch.zeros_like(c.std))

nondifferentiable(
    "prims.multinomial",
    *(f"prims.{name}" for name in ("randn", "randint", "randperm", "randint_fill", "uniform", "normal")),
    *(f"prims.{name}" for name in ("trunc_normal", "log_normal", "cauchy", "exponential", "geometric")),
)
