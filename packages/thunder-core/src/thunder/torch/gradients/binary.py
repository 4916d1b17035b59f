"""Gradients of elementwise operators of two tensors, or of a tensor and a number.

Each formula has the operands in the order ``(a, b)``, for the operator of the torch language and for the
primitive. Operands may be Python numbers, and of several dtypes and shapes: a gradient is fitted to its
argument afterwards.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from thunder.base.torch_versions import BOUNDS_SHARE_GRADIENTS, FMAX_SKIPS_NAN
from thunder.ir.proxies import NumberProxy, TensorProxy
from thunder.ir.symbolic_floats import logarithm
from thunder.ops.casting import cast
from thunder.ops.gradient_rules import VjpCall, conj, formulas, nondifferentiable
from thunder.ops.operator import row_of
from thunder.torch.namespace import ltorch
from thunder.torch.rows import binary  # noqa: F401  (the rows)
from thunder.torch.rows.casts import to

Tensor = TensorProxy
#: ``(g, a, b, result) → gradient``
Binary = Callable[[Tensor, Any, Any, Tensor], Any]
_Compare = Callable[[Tensor, Tensor], Tensor]


def elementwise(name: str, of_a: Binary | None, of_b: Binary | None, second: str = "other") -> None:
    """Add formulas for both operands to the rows ``torch.<name>`` and ``prims.<name>``.

    A row that does not exist is skipped. ``second`` is the name of the second operand of ``torch.<name>``.
    """
    for operator_id, arguments in ((f"torch.{name}", ("input", second)), (f"prims.{name}", ("a", "b"))):
        if row_of(operator_id) is not None:
            both = zip(arguments, (of_a, of_b), strict=True)
            formulas(operator_id, **{n: _of_call(f, arguments) for n, f in both if f is not None})


def _of_call(formula: Binary, arguments: tuple[str, str]) -> Callable[[VjpCall], Any]:
    a, b = arguments
    return lambda c: formula(c.g, getattr(c, a), getattr(c, b), c.out)


def _zeros_of_a(g: Tensor, a: Tensor, b: Any, y: Tensor) -> Tensor:
    return ltorch.zeros_like(a)


def _zeros_of_b(g: Tensor, a: Any, b: Tensor, y: Tensor) -> Tensor:
    return ltorch.zeros_like(b)


# -- arithmetic ----------------------------------------------------------------------------------------------


def _times(g: Tensor, factor: Any) -> Tensor:
    return g if type(factor) is int and factor == 1 else g * conj(factor)


formulas("torch.add", input=lambda c: c.g, other=lambda c: _times(c.g, c.alpha))
formulas("torch.sub", input=lambda c: c.g, other=lambda c: -_times(c.g, c.alpha))
formulas("torch.rsub", input=lambda c: -_times(c.g, c.alpha), other=lambda c: c.g)
formulas("prims.add", a=lambda c: c.g, b=lambda c: c.g)
formulas("prims.sub", a=lambda c: c.g, b=lambda c: -c.g)
elementwise("mul", lambda g, a, b, y: g * conj(b), lambda g, a, b, y: g * conj(a))


def _of_dividend(g: Tensor, a: Any, b: Any, y: Tensor) -> Tensor:
    return g / conj(b)


def _of_divisor(g: Tensor, a: Any, b: Tensor, y: Tensor) -> Tensor:
    return -g * conj(ltorch.true_divide(ltorch.true_divide(a, b), b))


elementwise("true_divide", _of_dividend, _of_divisor)
formulas(
    "prims.div",
    a=lambda c: _of_dividend(c.g, c.a, c.b, c.out),
    b=lambda c: _of_divisor(c.g, c.a, c.b, c.out),
)


def _rounded(formula: Binary) -> Callable[[VjpCall], Any]:
    """The formula of the exact quotient; the gradient of a rounded one is 0."""
    return lambda c: (
        formula(c.g, c.input, c.other, c.out) if c.rounding_mode is None else ltorch.zeros_like(c.g)
    )


formulas("torch.div", input=_rounded(_of_dividend), other=_rounded(_of_divisor))
elementwise("py_floordiv", _zeros_of_a, _zeros_of_b)
elementwise(
    "remainder",
    lambda g, a, b, y: g,
    lambda g, a, b, y: -g * ltorch.div(a, b, rounding_mode="floor"),
)
elementwise(
    "fmod",
    lambda g, a, b, y: g,
    lambda g, a, b, y: -g * ltorch.div(a, b, rounding_mode="trunc"),
)


# -- powers --------------------------------------------------------------------------------------------------


def _of_base(g: Tensor, a: Tensor, b: Any, y: Tensor) -> Tensor:
    """``b * a**(b - 1)`` in the result's precision; 0 for the exponent 0, for any base."""
    base = to(a, None, y.dtype.torch_dtype)
    if isinstance(b, NumberProxy):
        b = ltorch.scalar_tensor(b, dtype=y.dtype.torch_dtype, device=y.device)
    if isinstance(b, TensorProxy):
        return ltorch.where(b == 0, 0.0, g * conj(b * base ** (b - 1)))
    if b == 0:
        return ltorch.zeros_like(g)
    if b == 1:
        return g
    return g * conj(b * (base if b == 2 else base ** (b - 1)))


def _of_exponent(g: Tensor, a: Any, b: Tensor, y: Tensor) -> Tensor:
    """The gradient of the exponent, ``y * log(a)``.

    It is 0 where the base is 0 and the exponent is not negative, where ``log`` has no value.
    """
    not_negative = (ltorch.real(b) if b.dtype.is_complex else b) >= 0
    if isinstance(a, TensorProxy):
        gradient = g * conj(y * ltorch.log(to(a, None, y.dtype.torch_dtype)))
        return ltorch.where(ltorch.logical_and(a == 0, not_negative), 0.0, gradient)
    if a == 0:
        return ltorch.where(not_negative, 0.0, g * conj(y * -math.inf))
    return g * conj(y * _log_of_number(a))


def _log_of_number(a: Any) -> Any:
    if isinstance(a, complex):
        return complex(math.log(abs(a)), math.atan2(a.imag, a.real))
    return logarithm(a) if a > 0 else math.nan


def _in_dtype_of_result(formula: Binary) -> Binary:
    """Return the formula for operands in the result's dtype: torch adds no 8-bit floats to others."""

    def converting(g: Tensor, a: Any, b: Any, y: Tensor) -> Any:
        a, b = (cast(x, y.dtype) if isinstance(x, TensorProxy) else x for x in (a, b))
        return formula(g, a, b, y)

    return converting


elementwise("pow", _of_base, _of_exponent, second="exponent")
elementwise(
    "float_power",
    _in_dtype_of_result(_of_base),
    _in_dtype_of_result(_of_exponent),
    second="exponent",
)


# -- angles, lengths, signs ----------------------------------------------------------------------------------


def _over_squares(g: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """``g / (a² + b²)``; 0 where both are 0, as in torch."""
    squares = a * a + b * b
    return ltorch.where(squares == 0, 0.0, g / squares)


elementwise(
    "atan2",
    lambda g, a, b, y: _over_squares(g, a, b) * b,
    lambda g, a, b, y: _over_squares(g, a, b) * -a,
)
elementwise("hypot", lambda g, a, b, y: g * (a / y), lambda g, a, b, y: g * (b / y))
elementwise(
    "copysign",
    lambda g, a, b, y: ltorch.where(a == 0, 0.0, g * (y / a)),
    _zeros_of_b,
)
elementwise("nextafter", lambda g, a, b, y: ltorch.where(ltorch.eq(a, b), 0.0, g), _zeros_of_b)


# -- choices -------------------------------------------------------------------------------------------------
# Of equal operands each gets half, as in torch; where one is nan, both get everything.


def gradient_of_choice(g: Tensor, a: Any, b: Any, loses: Tensor) -> Tensor:
    """Return the gradient of ``a``: half of ``g`` where equal to ``b``, 0 where it loses, else all of it.

    Beside a nan it is all of ``g``.
    """
    return ltorch.where(loses, 0.0, ltorch.where(ltorch.eq(a, b), g / 2, g))


elementwise(
    "maximum",
    lambda g, a, b, y: gradient_of_choice(g, a, b, ltorch.lt(a, b)),
    lambda g, a, b, y: gradient_of_choice(g, b, a, ltorch.lt(b, a)),
)
elementwise(
    "minimum",
    lambda g, a, b, y: gradient_of_choice(g, a, b, ltorch.gt(a, b)),
    lambda g, a, b, y: gradient_of_choice(g, b, a, ltorch.gt(b, a)),
)


def _chosen(name: str, is_better: _Compare, is_as_good: _Compare) -> None:
    """Register the rule of ``fmax`` or ``fmin``, which choose the operand that is not nan.

    Equal operands share the gradient, or the first gets it all, as in the running version of torch.
    """
    wins = is_better if BOUNDS_SHARE_GRADIENTS else is_as_good

    def share(g: Tensor, a: Tensor, b: Tensor) -> Tensor:
        return ltorch.where(ltorch.eq(a, b), g / 2, g) if BOUNDS_SHARE_GRADIENTS else g

    def of_first(g: Tensor, a: Tensor, b: Tensor, y: Tensor) -> Tensor:
        if not FMAX_SKIPS_NAN:
            return ltorch.where(is_better(b, a), 0.0, share(g, a, b))
        return ltorch.where(ltorch.logical_or(is_as_good(a, b), ltorch.isnan(b)), share(g, a, b), 0.0)

    def of_second(g: Tensor, a: Tensor, b: Tensor, y: Tensor) -> Tensor:
        if not FMAX_SKIPS_NAN:
            return ltorch.where(is_better(a, b), 0.0, share(g, a, b))
        return ltorch.where(ltorch.logical_or(wins(a, b), ltorch.isnan(b)), 0.0, share(g, a, b))

    elementwise(name, of_first, of_second)


_chosen("fmax", ltorch.gt, ltorch.ge)
_chosen("fmin", ltorch.lt, ltorch.le)


# -- logarithms ----------------------------------------------------------------------------------------------

elementwise(
    "logaddexp",
    lambda g, a, b, y: g * conj(ltorch.sigmoid(a - b)),
    lambda g, a, b, y: g * conj(ltorch.sigmoid(b - a)),
)
elementwise(
    "logaddexp2",
    lambda g, a, b, y: g / (1 + ltorch.exp2(b - a)),
    lambda g, a, b, y: g / (1 + ltorch.exp2(a - b)),
)


def _of_factor(times_log: Callable[[Tensor, Any], Tensor], pole: float) -> Binary:
    """``log(b)``; 0 where the factor is 0 and the logarithm has no finite value."""

    def formula(g: Tensor, a: Tensor, b: Any, y: Tensor) -> Tensor:
        gradient = times_log(g, b)
        if isinstance(b, TensorProxy):
            return ltorch.where(ltorch.logical_and(a == 0, b <= pole), 0.0, gradient)
        return ltorch.where(a == 0, 0.0, gradient) if b <= pole else gradient

    return formula


elementwise("xlogy", _of_factor(lambda g, b: ltorch.xlogy(g, b), 0.0), lambda g, a, b, y: g * a / b)
elementwise(
    "special.xlog1py",
    _of_factor(lambda g, b: ltorch.xlog1py(g, b), -1.0),
    lambda g, a, b, y: g * a / (b + 1),
)

# Hurwitz' zeta(s, q) = sum (q + n)**-s, by q. Torch has no derivative by s either.
elementwise("special.zeta", None, lambda g, a, b, y: g * -a * ltorch.zeta(a + 1, b))
formulas("prims.zeta", b=lambda c: c.g * -c.a * ltorch.zeta(c.a + 1, c.b))

# -- comparisons and bits ------------------------------------------------------------------------------------

nondifferentiable(
    *(f"prims.{name}" for name in ("eq", "ne", "lt", "le", "gt", "ge")),
    *(f"prims.bitwise_{name}" for name in ("and", "or", "xor", "left_shift", "right_shift")),
)
