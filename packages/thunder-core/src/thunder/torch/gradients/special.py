"""Gradients of special functions and of rare elementwise operators.

Derivatives without another source are those of Abramowitz and Stegun, Handbook of Mathematical Functions:
chapters 6 (gamma), 7 (error functions), 9 (Bessel functions).
"""

from __future__ import annotations

import functools
import math
import operator

import torch

from thunder.base.torch_versions import BESSEL_FUNCTIONS_HAVE_GRADIENTS
from thunder.ir.proxies import TensorProxy
from thunder.ops.gradient_rules import VjpCall, conj, formulas, nondifferentiable
from thunder.torch.gradients.unary import elementwise
from thunder.torch.namespace import ltorch
from thunder.torch.rows import torch_kernels  # noqa: F401  (the rows)

Tensor = TensorProxy

_DEGREE = math.pi / 180
_LN_2 = math.log(2)

for _name, _formula in {
    "deg2rad": lambda g, x, y: g * _DEGREE,
    "rad2deg": lambda g, x, y: g / _DEGREE,
    "conj_physical": lambda g, x, y: conj(g),
    "resolve_conj": lambda g, x, y: g,
    "resolve_neg": lambda g, x, y: g,
    # -- error functions
    "special.entr": lambda g, x, y: g * (-ltorch.log(x) - 1),
    "special.erfcx": lambda g, x, y: g * (2 * x * y - 2 / math.sqrt(math.pi)),
    "special.ndtr": lambda g, x, y: g * (ltorch.exp(x * x * -0.5) / math.sqrt(2 * math.pi)),
    # the density over the probability, exp(-x²/2) divided out of both
    "special.log_ndtr": lambda g, x, y: g * math.sqrt(2 / math.pi) / ltorch.erfcx(x * -math.sqrt(0.5)),
    # -- Bessel functions (9.6.27, 9.6.28)
    "i0": lambda g, x, y: g * ltorch.i1(x),
    "special.i0e": lambda g, x, y: g * (ltorch.i1e(x) - ltorch.sgn(x) * y),
    "special.i1": lambda g, x, y: g * _of_i1(x, y),
    "special.i1e": lambda g, x, y: g * _of_i1e(x, y),
}.items():
    elementwise(_name, _formula)


def _without_zeros(x: Tensor) -> tuple[Tensor, Tensor]:
    """Return where x is 0, and x with 1 in place of 0, to divide by."""
    zero = ltorch.eq(x, 0)
    return zero, ltorch.where(zero, 1.0, x)


def _where_not_tiny(x: Tensor) -> tuple[Tensor, Tensor]:
    """Return where |x| is above the machine epsilon, and x with epsilon in the other places.

    NaN is not above it.
    """
    eps = torch.finfo(x.dtype.torch_dtype).eps
    large = ltorch.gt(ltorch.abs(x), eps)
    return large, ltorch.where(large, x, eps)


def _of_i1(x: Tensor, y: Tensor) -> Tensor:
    """``I0(x) - I1(x) / x``, which goes to 1/2 at 0."""
    large, divisor = _where_not_tiny(x)
    return ltorch.where(large, ltorch.i0(divisor) - y / divisor, 0.5)


def _of_i1e(x: Tensor, y: Tensor) -> Tensor:
    large, divisor = _where_not_tiny(x)
    return ltorch.where(large, ltorch.i0e(divisor) - y * (ltorch.sgn(divisor) + 1 / divisor), 0.5)


if BESSEL_FUNCTIONS_HAVE_GRADIENTS:  # 9.1.28, 9.1.30
    elementwise("special.bessel_j0", lambda g, x, y: -g * ltorch.bessel_j1(x))
    elementwise("special.bessel_j1", lambda g, x, y: g * _of_j1(x, y))
else:
    nondifferentiable("torch.special.bessel_j0", "torch.special.bessel_j1")


def _of_j1(x: Tensor, y: Tensor) -> Tensor:
    """Return ``J0(x) - J1(x) / x``, which goes to 1/2 at 0 and is nan at nan."""
    eps = torch.finfo(x.dtype.torch_dtype).eps
    tiny = ltorch.le(ltorch.abs(x), eps)
    divisor = ltorch.where(tiny, eps, x)
    return ltorch.where(tiny, 0.5, ltorch.bessel_j0(divisor) - y / divisor)


def _of_sinc(c: VjpCall) -> Tensor:
    """``(cos(pi x) - sinc(x)) / x``, which is 0 at 0. The result may be overwritten before the backward."""
    zero, divisor = _without_zeros(c.input)
    slope = (ltorch.cos(math.pi * c.input) - ltorch.sinc(c.input)) / divisor
    return c.g * conj(ltorch.where(zero, 0.0, slope))


def _of_angle(c: VjpCall) -> Tensor:
    """``i z / |z|²``: the angle grows across the direction of z; 0 at 0, and of real numbers."""
    if not c.input.dtype.is_complex:
        return ltorch.zeros_like(c.input)
    zero, divisor = _without_zeros(c.input)
    return ltorch.where(zero, 0.0, c.g * 1j / conj(divisor))


formulas("torch.sinc", input=_of_sinc)
formulas("torch.angle", input=_of_angle)
formulas("torch.polygamma", input=lambda c: c.g * ltorch.polygamma(c.n + 1, c.input))


def _of_mvlgamma(c: VjpCall) -> Tensor:
    """The log of multivariate gamma: a constant and ``sum lgamma(x - j / 2)``, ``j < p``."""
    # c.input + 0.0 is 0 at -0, where the slope is minus infinity as at 0
    return c.g * functools.reduce(operator.add, (ltorch.digamma(c.input + -j / 2) for j in range(c.p)))


formulas("torch.mvlgamma", input=_of_mvlgamma)


def _density(c: VjpCall) -> Tensor:
    """``x**(a - 1) * exp(-x) / Gamma(a)`` (6.5.25). Torch has no derivative by ``a`` either."""
    a, x = c.input, c.other
    return c.g * ltorch.exp((a - 1) * ltorch.log(x) - x - ltorch.lgamma(a))


formulas("torch.igamma", other=_density)
formulas("torch.igammac", other=lambda c: -_density(c))
formulas(
    "torch.ldexp",
    input=lambda c: c.g * conj(ltorch.pow(2.0, c.other)),
    other=lambda c: c.g * conj(c.out) * _LN_2,
)
# y = r e^{i t}: dy = e^{i t} dr + i y dt; at r = 0 torch sets the direction to 0
formulas(
    "torch.polar",
    abs=lambda c: ltorch.real(c.g * conj(ltorch.sgn(c.out))),
    angle=lambda c: ltorch.real(c.g * conj(c.out * 1j)),
)

nondifferentiable("torch.unravel_index")
