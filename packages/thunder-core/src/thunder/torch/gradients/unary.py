"""Gradients of elementwise operators of one tensor: ``(g, x, y) → gradient``.

``g`` is the cotangent, ``x`` the argument, ``y`` the result. Derivatives without another source are those of
Abramowitz and Stegun, Handbook of Mathematical Functions. A rule uses the result, and not the argument, where
torch saves the result for the backward.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from thunder.ir.proxies import TensorProxy
from thunder.ops import prims
from thunder.ops.gradient_rules import VjpCall, conj, formulas, nondifferentiable
from thunder.ops.operator import row_of
from thunder.torch.namespace import ltorch
from thunder.torch.rows import unary  # noqa: F401  (the rows)

Tensor = TensorProxy

_TWO_OVER_SQRT_PI = 2 / math.sqrt(math.pi)
_SQRT_2_PI = math.sqrt(2 * math.pi)
_LN_2, _LN_10 = math.log(2), math.log(10)


def elementwise(name: str, formula: Callable[[Tensor, Tensor, Tensor], Any]) -> None:
    """Add the formula to the rows ``torch.<name>`` and ``prims.<name>``, if present."""
    for operator_id, argument in ((f"torch.{name}", "input"), (f"prims.{name}", "a")):
        if row_of(operator_id) is not None:
            formulas(operator_id, **{argument: _of_call(formula, argument)})


def _of_call(formula: Callable[[Tensor, Tensor, Tensor], Any], argument: str) -> Callable[[VjpCall], Any]:
    return lambda c: formula(c.g, getattr(c, argument), c.out)


def _zeros(g: Tensor, x: Tensor, y: Tensor) -> Tensor:
    return ltorch.zeros_like(g)


def _of_direction(g: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """The gradient of ``z / |z|``: the part of ``g`` across z, over ``|z|``.

    It is 0 at 0, and for real numbers.
    """
    if not x.dtype.is_complex:
        return ltorch.zeros_like(x, memory_format=torch.contiguous_format)
    tangential = g - y * ltorch.real(g * conj(y))
    return ltorch.where(x == 0, 0.0, tangential / ltorch.abs(x))


def _of_acosh(g: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """``1 / (sqrt(z - 1) * sqrt(z + 1))``, whose cuts are acosh's (Kahan, Branch Cuts, 1987)."""
    if x.dtype.is_complex:
        return g * conj(ltorch.rsqrt(x - 1) * ltorch.rsqrt(x + 1))
    return g * ltorch.rsqrt(x * x - 1)


for _name, _formula in {
    # -- pieces and signs
    "abs": lambda g, x, y: g * ltorch.sgn(x),
    "py_abs": lambda g, x, y: g * ltorch.sgn(x),
    "neg": lambda g, x, y: -g,
    "positive": lambda g, x, y: g,
    "sgn": _of_direction,
    "ceil": _zeros,
    "floor": _zeros,
    "round": _zeros,
    "sign": _zeros,
    "trunc": _zeros,
    "frac": lambda g, x, y: g,
    "nan_to_num": lambda g, x, y: g * ltorch.isfinite(x),
    # -- powers
    "reciprocal": lambda g, x, y: -g * conj(y * y),
    "rsqrt": lambda g, x, y: -0.5 * g * conj(y**3),
    "sqrt": lambda g, x, y: g / (2 * conj(y)),
    "square": lambda g, x, y: g * (2 * conj(x)),
    # -- exponentials and logarithms
    "exp": lambda g, x, y: g * conj(y),
    "exp2": lambda g, x, y: g * conj(y) * _LN_2,
    "expm1": lambda g, x, y: g * conj(y + 1),
    "log": lambda g, x, y: g / conj(x),
    "log10": lambda g, x, y: g / (conj(x) * _LN_10),
    "log1p": lambda g, x, y: g / conj(x + 1),
    "log2": lambda g, x, y: g / (conj(x) * _LN_2),
    "sigmoid": lambda g, x, y: ltorch.sigmoid_backward(g, y),
    # -- trigonometric and hyperbolic functions
    "sin": lambda g, x, y: g * conj(ltorch.cos(x)),
    "cos": lambda g, x, y: g * conj(-ltorch.sin(x)),
    "tan": lambda g, x, y: g * conj(1 + y * y),
    "asin": lambda g, x, y: g * conj(ltorch.rsqrt(1 - x * x)),
    "acos": lambda g, x, y: g * conj(-ltorch.rsqrt(1 - x * x)),
    "atan": lambda g, x, y: g / conj(1 + x * x),
    "sinh": lambda g, x, y: g * conj(ltorch.cosh(x)),
    "cosh": lambda g, x, y: g * conj(ltorch.sinh(x)),
    "tanh": lambda g, x, y: ltorch.tanh_backward(g, y),
    "asinh": lambda g, x, y: g * conj(ltorch.rsqrt(x * x + 1)),
    "acosh": _of_acosh,
    "atanh": lambda g, x, y: g / conj(1 - x * x),
    # -- error functions, gamma functions
    "erf": lambda g, x, y: _TWO_OVER_SQRT_PI * ltorch.exp(-(x * x)) * g,
    "erfc": lambda g, x, y: -_TWO_OVER_SQRT_PI * ltorch.exp(-(x * x)) * g,
    # eager saves x alone: the result may be overwritten before the backward
    "erfinv": lambda g, x, y: ltorch.exp(ltorch.square(ltorch.erfinv(x))) / _TWO_OVER_SQRT_PI * g,
    "erfcinv": lambda g, x, y: g * (ltorch.exp(y * y) / -_TWO_OVER_SQRT_PI),
    "special.ndtri": lambda g, x, y: g * (_SQRT_2_PI * ltorch.exp(y * y * 0.5)),
    "lgamma": lambda g, x, y: g * ltorch.digamma(x),
    "digamma": lambda g, x, y: g * ltorch.polygamma(1, x),
}.items():
    elementwise(_name, _formula)

formulas("prims.ndtri", a=lambda c: c.g * (_SQRT_2_PI * ltorch.exp(c.out * c.out * 0.5)))
formulas("torch.logit", input=lambda c: ltorch.logit_backward(c.g, c.input, c.eps))


# -- parts of complex numbers; mantissas ---------------------------------------------------------------------


def _of_imaginary_part(g: Tensor) -> Tensor:
    return ltorch.complex(ltorch.zeros_like(g), g)


formulas("torch.real", input=lambda c: c.g)
formulas("prims.real", a=lambda c: c.g)
formulas("torch.imag", input=lambda c: _of_imaginary_part(c.g))
formulas("prims.imag", a=lambda c: _of_imaginary_part(c.g))


def _of_mantissa(c: VjpCall) -> Tensor | None:
    """``x = mantissa * 2**exponent``."""
    g, exponent = c.g[0], c.out[1]
    return None if g is None else prims.div(g, ltorch.exp2(ltorch.to(exponent, dtype=g.dtype.torch_dtype)))


formulas("torch.frexp", input=_of_mantissa)
formulas("prims.frexp", a=_of_mantissa)

# -- truth values and bits -----------------------------------------------------------------------------------

nondifferentiable(
    *(f"prims.{name}" for name in ("bitwise_not", "isfinite", "isinf", "isnan", "logical_not", "signbit"))
)
