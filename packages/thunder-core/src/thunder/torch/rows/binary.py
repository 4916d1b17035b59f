"""Elementwise operators of two tensors, or of a tensor and a number."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch

from thunder.base.dtypes import bool8, float64
from thunder.base.dtypes import dtype as Dtype
from thunder.base.errors import OperatorError
from thunder.ir.proxies import TensorProxy, pytype, pyval
from thunder.ir.symbol import Symbol
from thunder.ops import prims
from thunder.ops.casting import cast
from thunder.ops.in_place import elementwise_kernel
from thunder.ops.layout_rules import BESIDE_NUMBER, COMPARED, POWER, QUOTIENT
from thunder.ops.operator import NONDIFFERENTIABLE
from thunder.ops.promotion import complex_result, float_result, same_result
from thunder.ops.same_operators import declare_same
from thunder.torch.broadcasting import operands, require_tensor
from thunder.torch.registration import torch_names, torchsymbol
from thunder.torch.rows.unary import reciprocal


def _check_sides(name: str, left_number: bool, right_number: bool, input: Any, other: Any) -> None:
    if not left_number:
        require_tensor(name, input)
    if not right_number:
        require_tensor(name, other)


def binary(
    name: str,
    prim: Symbol,
    rule: Callable[[Dtype], Dtype] = same_result,
    *,
    aliases: Iterable[str] = (),
    dunders: Iterable[str] = (),
    inplace: Iterable[str] | None = None,
    left_number: bool = False,
    right_number: bool = True,
    **row: Any,
) -> Symbol:
    """Register the row ``torch.<name>`` of a primitive with its method, dunders and variants.

    ``inplace`` are further names of the in-place variant. Kernels take a number for a tensor.
    """

    def decomposition(input: Any, other: Any) -> TensorProxy:
        if not (isinstance(input, TensorProxy) and isinstance(other, TensorProxy)):
            _check_sides(name, left_number, right_number, input, other)
        a, b = operands(input, other, rule)
        return prim(a, b)

    decomposition.__name__ = name
    facts: dict[str, Any] = {"layout": BESIDE_NUMBER} if right_number else {}
    if inplace is not None:
        facts |= elementwise_kernel(name)
    paths = [n if n.startswith("torch.") else f"torch.{n}" for n in (name, *aliases)]
    plain = [n for n in (name, *aliases) if "." not in n]
    return torchsymbol(
        *paths,
        methods=(*plain, *dunders),
        inplace=(*(f"{n}_" for n in plain), *inplace) if inplace is not None else (),
        **(facts | row),
    )(decomposition)


def _scaled(b: Any, alpha: Any, dtype: Dtype) -> Any:
    """Return ``b * alpha`` for ``add`` and ``sub``, where torch takes the number out of a tensor ``alpha``.

    Raises OperatorError for an alpha of a higher category than the result.
    """
    if pytype(alpha) is int and alpha == 1:
        return b
    if issubclass(pytype(alpha), bool) and not dtype.is_bool:
        raise OperatorError("Boolean alpha only supported for Boolean results.")
    if issubclass(pytype(alpha), float) and not dtype.is_inexact:
        raise OperatorError("For integral input tensors, argument alpha must not be a floating point number.")
    if issubclass(pytype(alpha), complex) and not dtype.is_complex:
        raise OperatorError("For non-complex input tensors, argument alpha must not be a complex number.")
    if isinstance(alpha, TensorProxy) and isinstance(b, TensorProxy):
        number = prims.convert_element_type(prims.detach(alpha), dtype)
        return prims.mul(b, prims.broadcast_in_dim(number, b.shape, ()))
    return prims.mul(b, alpha) if isinstance(b, TensorProxy) else pyval(b) * pyval(alpha)


# -- arithmetic ----------------------------------------------------------------------------------------------


@torchsymbol(
    "torch.add",
    methods=("add", "__add__", "__radd__"),
    inplace=("add_", "__iadd__"),
    **elementwise_kernel("add"),
    layout=BESIDE_NUMBER,
    integers="values",
)
def add(input: Any, other: Any, *, alpha: Any = 1) -> TensorProxy:
    """``input + alpha * other``."""
    a, b = operands(input, other)
    if type(alpha) is not int or alpha != 1:
        b = _scaled(b, alpha, a.dtype if isinstance(a, TensorProxy) else b.dtype)
    return prims.add(a, b)


@torchsymbol(
    "torch.sub",
    "torch.subtract",
    methods=("sub", "subtract", "__sub__"),
    inplace=("sub_", "subtract_", "__isub__"),
    **elementwise_kernel("sub"),
    layout=BESIDE_NUMBER,
    integers="values",
)
def sub(input: Any, other: Any, *, alpha: Any = 1) -> TensorProxy:
    """``input - alpha * other``."""
    _refuse_bools(input, other)
    a, b = operands(input, other)
    b = _scaled(b, alpha, a.dtype if isinstance(a, TensorProxy) else b.dtype)
    return prims.sub(a, b)


@torchsymbol("torch.rsub", methods=("__rsub__",), layout=BESIDE_NUMBER, integers="values")
def rsub(input: Any, other: Any, *, alpha: Any = 1) -> TensorProxy:
    """``other - alpha * input``."""
    require_tensor("rsub", input)
    _refuse_bools(input, other)
    a, b = operands(input, other)
    return prims.sub(b, _scaled(a, alpha, a.dtype))


def _refuse_bools(*operands: Any) -> None:
    for x in operands:
        if pytype(x) is bool or (isinstance(x, TensorProxy) and x.dtype is bool8):
            raise OperatorError("Subtraction, the `-` operator, with a bool tensor is not supported.")


mul = binary(
    "mul",
    prims.mul,
    aliases=("multiply",),
    dunders=("__mul__", "__rmul__"),
    inplace=("__imul__",),
    left_number=True,
    integers="values",
)


def _whole_quotient(a: Any, b: Any) -> TensorProxy:
    """Divide integers, rounding towards zero."""
    return prims.py_floordiv(prims.sub(a, prims.fmod(a, b)), b)


@torchsymbol(
    "torch.div",
    "torch.divide",
    methods=("div", "divide", "__div__"),
    inplace=("div_", "divide_", "__idiv__", "__itruediv__"),
    **elementwise_kernel("div"),
    layout=QUOTIENT,
    integers="values",
)
def div(input: Any, other: Any, *, rounding_mode: str | None = None) -> TensorProxy:
    """``input / other``, rounded towards zero (``"trunc"``) or down (``"floor"``)."""
    if rounding_mode is None:
        a, b = operands(input, other, float_result)
        return prims.div(a, b)
    if rounding_mode not in ("trunc", "floor"):
        raise OperatorError(
            f"div expected rounding_mode to be one of None, 'trunc', or 'floor' but found '{rounding_mode}'"
        )
    a, b = operands(input, other)
    if rounding_mode == "floor":
        return prims.py_floordiv(a, b)
    exact = (a if isinstance(a, TensorProxy) else b).dtype.is_integer
    return _whole_quotient(a, b) if exact else prims.trunc(prims.div(a, b))


@torchsymbol(
    "torch.true_divide",
    methods=("true_divide", "__truediv__"),
    inplace=("true_divide_",),
    with_out=torch.true_divide,
    integers="values",
)
def true_divide(input: Any, other: Any) -> TensorProxy:
    """``input / other``."""
    a, b = operands(input, other, float_result)
    return prims.div(a, b)


declare_same(
    div,
    true_divide,
    lambda input, other, rounding_mode=None: ((input, other), {}) if rounding_mode is None else None,
    lambda input, other: ((input, other), {}),
)


@torch_names(methods=("__rdiv__", "__rtruediv__"))
def reflected_div(input: TensorProxy, other: Any) -> TensorProxy:
    """``other / input``, which eager computes as a product with the reciprocal."""
    return mul(reciprocal(input), other)


floor_divide = binary(
    "floor_divide",
    prims.py_floordiv,
    dunders=("__floordiv__",),
    inplace=("__ifloordiv__",),
    left_number=True,
    layout=COMPARED,
)
remainder = binary(
    "remainder", prims.remainder, dunders=("__mod__",), inplace=("__imod__",), left_number=True
)
fmod = binary("fmod", prims.fmod, inplace=())


def _reflected(symbol: Symbol, *dunders: str) -> None:
    """Register ``other <op> input`` for dunders whose left operand is not the tensor."""

    @torch_names(methods=dunders)
    def swapped(input: TensorProxy, other: Any) -> Any:
        return symbol(other, input)


@torchsymbol(
    "torch.pow",
    methods=("pow", "__pow__"),
    inplace=("pow_", "__ipow__"),
    layout=POWER,
    **elementwise_kernel("pow"),
)
def pow(input: Any, exponent: Any) -> TensorProxy:
    """``input ** exponent``."""
    a, b = operands(input, exponent)
    if isinstance(a, TensorProxy) and a.dtype.is_integer and pytype(b) is int and pyval(b) < 0:
        raise OperatorError("Integers to negative integer powers are not allowed.")
    if isinstance(a, TensorProxy) and a.dtype is bool8 and pytype(b) is bool:
        return prims.bitwise_or(a, not pyval(b))  # the only powers of bools with a kernel in torch
    return prims.pow(a, b)


@torchsymbol("torch.float_power", methods=("float_power",), layout=POWER)
def float_power(input: Any, exponent: Any) -> TensorProxy:
    """``input ** exponent`` in double precision."""
    a, b = operands(input, exponent, lambda d: complex_result(float64) if d.is_complex else float64)
    return prims.pow(a, b)


# -- floating point ------------------------------------------------------------------------------------------

atan2 = binary("atan2", prims.atan2, float_result, aliases=("arctan2",), inplace=(), right_number=False)
copysign = binary("copysign", prims.copysign, float_result, inplace=(), layout=COMPARED)
hypot = binary("hypot", prims.hypot, inplace=(), right_number=False)
nextafter = binary("nextafter", prims.nextafter, inplace=(), right_number=False)
maximum = binary("maximum", prims.maximum, right_number=False, with_out=torch.maximum)
minimum = binary("minimum", prims.minimum, right_number=False, with_out=torch.minimum)
zeta = binary("torch.special.zeta", prims.zeta, float_result, left_number=True, layout=None)


def _skipping_nan(name: str, prim: Symbol) -> Symbol:
    def decomposition(input: TensorProxy, other: TensorProxy) -> TensorProxy:
        a, b = operands(input, other)
        if not a.dtype.is_floating_point:
            return prim(a, b)
        chosen = prims.where(prims.isnan(b), a, prim(a, b))
        return prims.where(prims.isnan(a), b, chosen)

    return torchsymbol(f"torch.{name}", methods=(name,), with_out=getattr(torch, name))(decomposition)


fmax = _skipping_nan("fmax", prims.maximum)
fmin = _skipping_nan("fmin", prims.minimum)


def _log_of_sum(name: str, exp: Symbol, log: Callable[[Any], Any], **row: Any) -> Symbol:
    def decomposition(input: TensorProxy, other: TensorProxy) -> TensorProxy:
        """``log(exp(a) + exp(b))``, the larger taken out."""
        a, b = operands(input, other)
        if a.dtype.is_complex:
            left = prims.ge(prims.real(a), prims.real(b))
            high, low = prims.where(left, a, b), prims.where(left, b, a)
            return prims.add(high, log(exp(prims.sub(low, high))))
        larger = prims.maximum(a, b)
        gap = prims.neg(prims.abs(prims.sub(a, b)))
        both_infinite = prims.bitwise_and(prims.isinf(a), prims.eq(a, b))
        return prims.where(both_infinite, a, prims.add(larger, log(exp(gap))))

    return torchsymbol(f"torch.{name}", methods=(name,), layout=COMPARED, **row)(decomposition)


logaddexp = _log_of_sum("logaddexp", prims.exp, prims.log1p, with_out=torch.logaddexp)
logaddexp2 = _log_of_sum("logaddexp2", prims.exp2, lambda x: prims.log2(prims.add(x, 1.0)))


def _times_log(name: str, log: Symbol, *names: str, **row: Any) -> Symbol:
    def decomposition(input: Any, other: Any) -> TensorProxy:
        """``input * log(other)``, and 0 where the input is 0, unless the other is nan."""
        a, b = operands(input, other, float_result)
        if not isinstance(b, TensorProxy):
            b = prims.full(a.shape, b, device=a.device, dtype=a.dtype)
        if not isinstance(a, TensorProxy):
            a = prims.full(b.shape, a, device=b.device, dtype=b.dtype)
        product = prims.where(prims.eq(a, 0.0), 0.0, prims.mul(a, log(b)))
        return prims.where(prims.isnan(b), float("nan"), product)

    plain = [n.removeprefix("torch.") for n in names if n.count(".") == 1]
    return torchsymbol(*names, methods=plain, inplace=[f"{n}_" for n in plain], **row)(decomposition)


xlogy = _times_log(
    "xlogy", prims.log, "torch.xlogy", "torch.special.xlogy", layout=COMPARED, **elementwise_kernel("xlogy")
)
xlog1py = _times_log("xlog1py", prims.log1p, "torch.special.xlog1py")


# -- comparisons ---------------------------------------------------------------------------------------------


def comparison(name: str, prim: Symbol, *aliases: str) -> Symbol:
    """Register a comparison, whose dunder returns NotImplemented for unknown types."""
    symbol = binary(
        name,
        prim,
        aliases=aliases,
        inplace=(),
        vjp=NONDIFFERENTIABLE,
        in_place=None,
        with_out=None,
        integers="values",
    )

    @torch_names(methods=(f"__{name}__",))
    def dunder(input: TensorProxy, other: Any) -> Any:
        if isinstance(other, TensorProxy | bool | int | float | complex) or pytype(other) is not type(other):
            return symbol(input, other)
        return NotImplemented

    return symbol


eq = comparison("eq", prims.eq)
ne = comparison("ne", prims.ne, "not_equal")
lt = comparison("lt", prims.lt, "less")
le = comparison("le", prims.le, "less_equal")
gt = comparison("gt", prims.gt, "greater")
ge = comparison("ge", prims.ge, "greater_equal")


@torchsymbol("torch.isclose", methods=("isclose",), vjp=NONDIFFERENTIABLE)
def isclose(
    input: TensorProxy, other: TensorProxy, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False
) -> TensorProxy:
    """``|input - other| <= atol + rtol * |other|``."""
    if input.dtype is not other.dtype:
        raise OperatorError(f"{input.dtype!r} did not match {other.dtype!r}")
    a, b = operands(input, other)
    close = prims.eq(a, b)
    if equal_nan and a.dtype.is_inexact:
        close = prims.bitwise_or(close, prims.bitwise_and(prims.isnan(a), prims.isnan(b)))
    if rtol == 0 and atol == 0:
        return close
    d = float_result(a.dtype)
    a, b = cast(a, d), cast(b, d)
    allowed = prims.add(prims.abs(prims.mul(b, float(rtol))), float(atol))
    actual = prims.abs(prims.sub(a, b))
    near = prims.bitwise_and(prims.isfinite(actual), prims.le(actual, allowed))
    return prims.bitwise_or(close, near)


# -- bits and logic ------------------------------------------------------------------------------------------


def _bitwise(word: str, prim: Symbol) -> Symbol:
    return binary(
        f"bitwise_{word}",
        prim,
        dunders=(f"__{word}__", f"__r{word}__"),
        inplace=(f"__i{word}__",),
        left_number=True,
        vjp=NONDIFFERENTIABLE,
    )


bitwise_and = _bitwise("and", prims.bitwise_and)
bitwise_or = _bitwise("or", prims.bitwise_or)
bitwise_xor = _bitwise("xor", prims.bitwise_xor)
bitwise_left_shift = binary(
    "bitwise_left_shift",
    prims.bitwise_left_shift,
    dunders=("__lshift__",),
    inplace=("__ilshift__",),
    left_number=True,
    layout=None,
    in_place=None,
    with_out=None,
    vjp=NONDIFFERENTIABLE,
)
bitwise_right_shift = binary(
    "bitwise_right_shift",
    prims.bitwise_right_shift,
    dunders=("__rshift__",),
    inplace=("__irshift__",),
    left_number=True,
    layout=None,
    in_place=None,
    with_out=None,
    vjp=NONDIFFERENTIABLE,
)


def _truth(a: TensorProxy) -> TensorProxy:
    return a if a.dtype is bool8 else prims.ne(a, 0)


def _logical(name: str, prim: Symbol) -> Symbol:
    def decomposition(input: TensorProxy, other: TensorProxy) -> TensorProxy:
        require_tensor(name, input, other)
        a, b = operands(_truth(input), _truth(other))
        return prim(a, b)

    decomposition.__name__ = name
    return torchsymbol(
        f"torch.{name}",
        methods=(name,),
        inplace=(f"{name}_",),
        vjp=NONDIFFERENTIABLE,
        with_out=getattr(torch, name),
        layout=COMPARED,
    )(decomposition)


logical_and = _logical("logical_and", prims.bitwise_and)
logical_or = _logical("logical_or", prims.bitwise_or)
logical_xor = _logical("logical_xor", prims.bitwise_xor)

_reflected(pow, "__rpow__")
_reflected(floor_divide, "__rfloordiv__")
_reflected(remainder, "__rmod__")
_reflected(bitwise_left_shift, "__rlshift__")
_reflected(bitwise_right_shift, "__rrshift__")
