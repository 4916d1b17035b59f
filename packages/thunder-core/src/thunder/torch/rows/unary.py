"""Elementwise operators of one tensor: mostly a primitive, a rule for the dtype and names."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import torch

from thunder.base.dtypes import dtype as Dtype
from thunder.base.dtypes import int64
from thunder.base.errors import OperatorError
from thunder.base.tags import OpTags
from thunder.ir.proxies import TensorProxy
from thunder.ir.symbol import Symbol
from thunder.ops import prims
from thunder.ops.casting import cast
from thunder.ops.in_place import elementwise_kernel, whole
from thunder.ops.operator import NONDIFFERENTIABLE
from thunder.ops.promotion import float_result, same_result
from thunder.ops.torch_errors import OperatorTypeError
from thunder.torch.broadcasting import require_tensor
from thunder.torch.registration import torch_names, torchsymbol


def unary(
    name: str,
    prim: Symbol,
    rule: Callable[[Dtype], Dtype] = same_result,
    *,
    aliases: Iterable[str] = (),
    dunders: Iterable[str] = (),
    inplace: bool = True,
    **row: Any,
) -> Symbol:
    """Register the row ``torch.<name>`` of a primitive: function, method, in-place variant.

    ``aliases`` are other names of it in torch.
    """

    def decomposition(input: TensorProxy) -> TensorProxy:
        if not isinstance(input, TensorProxy):
            require_tensor(name, input)
        d = rule(input.dtype)
        return prim(input if input.dtype is d else cast(input, d))

    decomposition.__name__ = name
    names = [name, *aliases]
    paths = [n if n.startswith("torch.") else f"torch.{n}" for n in names]
    plain = [n for n in names if "." not in n]
    return torchsymbol(
        *paths,
        methods=(*plain, *dunders),
        inplace=[f"{n}_" for n in plain] if inplace else (),
        inplace_functions=[f"torch.{n}_" for n in plain] if inplace else (),
        **((elementwise_kernel(name) if inplace else {}) | row),
    )(decomposition)


abs = unary("abs", prims.abs, aliases=("absolute",), dunders=("__abs__",))
acos = unary("acos", prims.acos, float_result, aliases=("arccos",))
acosh = unary("acosh", prims.acosh, float_result, aliases=("arccosh",))
asin = unary("asin", prims.asin, float_result, aliases=("arcsin",))
asinh = unary("asinh", prims.asinh, float_result, aliases=("arcsinh",))
atan = unary("atan", prims.atan, float_result, aliases=("arctan",))
atanh = unary("atanh", prims.atanh, float_result, aliases=("arctanh",))
bitwise_not = unary("bitwise_not", prims.bitwise_not, vjp=NONDIFFERENTIABLE)


@torch_names(methods=("__invert__",))
def invert(input: TensorProxy) -> TensorProxy:
    """``~input``."""
    if input.dtype.is_inexact:
        raise OperatorTypeError("~ (operator.invert) is only implemented on integer and Boolean-type tensors")
    return bitwise_not(input)


ceil = unary("ceil", prims.ceil)
cos = unary("cos", prims.cos, float_result)
cosh = unary("cosh", prims.cosh, float_result)
digamma = unary(
    "digamma", prims.digamma, float_result, aliases=("torch.special.digamma", "torch.special.psi")
)
erf = unary("erf", prims.erf, float_result, aliases=("torch.special.erf",))
erfc = unary("erfc", prims.erfc, float_result, aliases=("torch.special.erfc",))
erfinv = unary("erfinv", prims.erfinv, float_result, aliases=("torch.special.erfinv",))
exp = unary("exp", prims.exp, float_result)
exp2 = unary("exp2", prims.exp2, float_result, aliases=("torch.special.exp2",))
expm1 = unary("expm1", prims.expm1, float_result, aliases=("torch.special.expm1",))
floor = unary("floor", prims.floor)
isfinite = unary("isfinite", prims.isfinite, inplace=False, vjp=NONDIFFERENTIABLE)
isinf = unary("isinf", prims.isinf, inplace=False, vjp=NONDIFFERENTIABLE)
isnan = unary("isnan", prims.isnan, inplace=False, vjp=NONDIFFERENTIABLE)
lgamma = unary("lgamma", prims.lgamma, float_result, aliases=("torch.special.gammaln",))
log = unary("log", prims.log, float_result)
log10 = unary("log10", prims.log10, float_result)
log1p = unary("log1p", prims.log1p, float_result, aliases=("torch.special.log1p",))
log2 = unary("log2", prims.log2, float_result)
logical_not = unary("logical_not", prims.logical_not, vjp=NONDIFFERENTIABLE, in_place=None)
neg = unary("neg", prims.neg, aliases=("negative",), dunders=("__neg__",))
reciprocal = unary("reciprocal", prims.reciprocal, float_result)
rsqrt = unary("rsqrt", prims.rsqrt, float_result)
sgn = unary("sgn", prims.sgn, in_place=None, with_out=None)
sigmoid = unary("sigmoid", prims.sigmoid, float_result, aliases=("torch.special.expit",))
sign = unary("sign", prims.sign)
signbit = unary("signbit", prims.signbit, inplace=False, vjp=NONDIFFERENTIABLE)
sin = unary("sin", prims.sin, float_result)
sinh = unary("sinh", prims.sinh, float_result)
sqrt = unary("sqrt", prims.sqrt, float_result)
tan = unary("tan", prims.tan, float_result)
tanh = unary("tanh", prims.tanh, float_result)
trunc = unary("trunc", prims.trunc, aliases=("fix",))
ndtri = unary("torch.special.ndtri", prims.ndtri, float_result, inplace=False)


def _round_spelling(input: Any, *, decimals: int | None = None) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Bind ``round(x)``, which integers support, and ``round(x, decimals=)``, which they do not."""
    return (input,), {} if decimals is None else {"decimals": decimals}


@torchsymbol(
    "torch.round",
    "torch.special.round",
    methods=("round",),
    inplace=("round_",),
    inplace_functions=("torch.round_",),
    **elementwise_kernel("round"),
    spelling=_round_spelling,
)
def round(input: TensorProxy, *, decimals: int | None = None) -> TensorProxy:
    """To ``decimals`` places, halves to even."""
    if decimals is None:
        return prims.round(input) if input.dtype.is_inexact else prims.clone(input)
    if not input.dtype.is_floating_point:
        raise OperatorError("round with decimals is not implemented for integer tensors")
    if decimals == 0:
        return prims.round(input)
    scale = 10.0 ** math.fabs(decimals)
    if decimals > 0:
        return prims.div(prims.round(prims.mul(input, scale)), scale)
    return prims.mul(prims.round(prims.div(input, scale)), scale)


@torchsymbol(
    "torch.square",
    methods=("square",),
    inplace=("square_",),
    inplace_functions=("torch.square_",),
    **elementwise_kernel("square"),
)
def square(input: TensorProxy) -> TensorProxy:
    """``input * input``; integers for a boolean tensor."""
    a = cast(input, int64) if input.dtype.is_bool else input
    return prims.mul(a, a)


@torchsymbol(
    "torch.frac",
    methods=("frac",),
    inplace=("frac_",),
    inplace_functions=("torch.frac_",),
    **elementwise_kernel("frac"),
)
def frac(input: TensorProxy) -> TensorProxy:
    """The fractional part, with the sign of the input."""
    if not input.dtype.is_floating_point:
        raise OperatorError(f'"frac" not implemented for {input.type_string()}')
    return prims.sub(input, prims.trunc(input))


@torchsymbol(
    "torch.logit",
    "torch.special.logit",
    methods=("logit",),
    inplace=("logit_",),
    inplace_functions=("torch.logit_",),
)
def logit(input: TensorProxy, eps: float | None = None) -> TensorProxy:
    """``log(x / (1 - x))``, with x clamped to ``[eps, 1 - eps]`` unless eps is None."""
    a = cast(input, float_result(input.dtype))
    if eps is not None:
        a = prims.minimum(prims.maximum(a, eps), 1.0 - eps)
    return prims.log(prims.div(a, prims.sub(1.0, a)))


@torchsymbol(
    "torch.nan_to_num",
    methods=("nan_to_num",),
    inplace=("nan_to_num_",),
    inplace_functions=("torch.nan_to_num_",),
    in_place=whole(torch.Tensor.nan_to_num_),
)
def nan_to_num(
    input: TensorProxy, nan: float | None = None, posinf: float | None = None, neginf: float | None = None
) -> TensorProxy:
    """nan, inf and -inf replaced: by default with 0, the largest and the smallest number."""
    if not input.dtype.is_inexact:
        return prims.clone(input)
    if input.dtype.is_complex:
        parts = prims.view_as_real(input)
        return prims.view_as_complex(nan_to_num(parts, nan, posinf, neginf))
    limits = torch.finfo(input.dtype.torch_dtype)
    infinite = prims.isinf(input)
    negative = prims.lt(input, 0.0)
    high = limits.max if posinf is None else float(posinf)
    low = limits.min if neginf is None else float(neginf)
    a = prims.where(prims.isnan(input), 0.0 if nan is None else float(nan), input)
    a = prims.where(prims.bitwise_and(infinite, negative), low, a)
    return prims.where(prims.bitwise_and(infinite, prims.logical_not(negative)), high, a)


@torchsymbol("torch.isposinf", methods=("isposinf",), vjp=NONDIFFERENTIABLE)
def isposinf(input: TensorProxy) -> TensorProxy:
    """True where an element is positive infinity."""
    return prims.bitwise_and(prims.isinf(input), prims.gt(input, 0))


@torchsymbol("torch.isneginf", methods=("isneginf",), vjp=NONDIFFERENTIABLE)
def isneginf(input: TensorProxy) -> TensorProxy:
    """True where an element is negative infinity."""
    return prims.bitwise_and(prims.isinf(input), prims.lt(input, 0))


@torchsymbol("torch.real", properties=("real",), tags=(OpTags.VIEW,))
def real(input: TensorProxy) -> TensorProxy:
    """The real part; a real tensor itself."""
    return prims.real(input) if input.dtype.is_complex else input


@torchsymbol("torch.imag", properties=("imag",), tags=(OpTags.VIEW,))
def imag(input: TensorProxy) -> TensorProxy:
    """The imaginary part of a complex tensor."""
    return prims.imag(input)


@torchsymbol("torch.positive", methods=("positive", "__pos__"), tags=(OpTags.VIEW,))
def positive(input: TensorProxy) -> TensorProxy:
    """The input itself; booleans are refused."""
    if input.dtype.is_bool:
        raise OperatorError("The `+` operator, on a bool tensor is not supported.")
    return input


@torchsymbol("torch.frexp", methods=("frexp",))
def frexp(input: TensorProxy) -> Any:
    """Mantissa and exponent."""
    return torch.return_types.frexp(prims.frexp(input))
