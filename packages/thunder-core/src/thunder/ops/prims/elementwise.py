"""Elementwise primitives. Operands have one shape and dtype; one may be a number.

Each is one row of a table: the name, the kinds of dtypes of the operands, the result's dtype, and torch's
function of the same meaning.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from thunder.base.attribute_paths import attribute_at
from thunder.base.dtypes import bool8, dtype
from thunder.base.dtypes import int32 as int32_dtype
from thunder.base.errors import OperatorError
from thunder.base.tags import OpTags
from thunder.ir.proxies import NumberProxy, TensorProxy
from thunder.ir.symbol import BoundSymbol, Symbol
from thunder.ops.in_place import InPlaceForm, restoring_all
from thunder.ops.prims.declaration import primitive
from thunder.ops.prims.indexing import copy_with_setitem
from thunder.ops.prims.shapes import view_as_complex, view_as_real
from thunder.ops.promotion import bool_result, real_result, same_result
from thunder.ops.torch_errors import OperatorNotImplementedError
from thunder.ops.view_rules import ViewRule

# fmt: off
__all__ = [
    "abs", "acos", "acosh", "add", "asin", "asinh", "atan", "atan2", "atanh", "bitwise_and",
    "bitwise_left_shift", "bitwise_not", "bitwise_or", "bitwise_right_shift", "bitwise_xor", "ceil",
    "copysign", "cos", "cosh", "digamma", "div", "eq", "erf", "erfc", "erfcinv", "erfinv", "exp", "exp2",
    "expm1", "floor", "fmod", "frexp", "ge", "gt", "hypot", "imag", "isfinite", "isinf", "isnan", "le",
    "lerp", "lgamma", "log", "log1p", "log2", "log10", "logical_not", "lt", "maximum", "minimum", "mul",
    "ndtri", "ne", "neg", "nextafter", "pow", "py_abs", "py_floordiv", "real", "reciprocal", "remainder",
    "round", "rsqrt", "sgn", "sigmoid", "sign", "signbit", "sin", "sinh", "sqrt", "sub", "tan", "tanh",
    "trunc", "where", "zeta",
]
# fmt: on

#: dtype of the operands → dtype of the result
ResultDtype = Callable[[dtype], dtype]

_POINTWISE = (OpTags.POINTWISE_OP,)
_COMMUTATIVE = (OpTags.COMMUTATIVE,)

BOOL, INT, FLOAT, COMPLEX = "bifc"
NUMBERS = INT + FLOAT + COMPLEX
ANY = BOOL + NUMBERS
ORDERED = BOOL + INT + FLOAT
REALS = INT + FLOAT
INEXACT = FLOAT + COMPLEX


def kind_of(d: dtype) -> str:
    """Return ``b``, ``i``, ``f`` or ``c``: boolean, integer, floating-point, complex."""
    return FLOAT if d.is_floating_point else COMPLEX if d.is_complex else BOOL if d is bool8 else INT


def _refused(name: str, *operands: Any) -> OperatorError:
    return OperatorError(f'"{name}" not implemented for {_shown(operands)}')


def no_kernel(name: str, *operands: Any) -> OperatorError:
    """Return the error for dtypes that an operator does not have, of the class of torch's."""
    return OperatorNotImplementedError(f'"{name}" not implemented for {_shown(operands)}')


def _shown(operands: tuple[Any, ...]) -> str:
    return ", ".join(
        x.type_string() if isinstance(x, TensorProxy) else f"{type(x).__name__} {x!r}" for x in operands
    )


def _unary_meta(name: str, kinds: str, result_dtype: ResultDtype) -> Callable[[TensorProxy], TensorProxy]:
    def meta(a: TensorProxy) -> TensorProxy:
        if not isinstance(a, TensorProxy):
            raise TypeError(f"{name}(): argument 'input' must be Tensor, not {type(a).__name__}")
        d = a.dtype
        if kind_of(d) not in kinds:
            raise no_kernel(name, a)
        return TensorProxy(shape=a.shape, device=a.device, dtype=result_dtype(d))

    return meta


def _binary_meta(name: str, kinds: str, result_dtype: ResultDtype) -> Callable[[Any, Any], TensorProxy]:
    def meta(a: Any, b: Any) -> TensorProxy:
        tensor = a
        if isinstance(a, TensorProxy):
            if isinstance(b, TensorProxy):
                if a.shape != b.shape or a.dtype is not b.dtype or a.device is not b.device:
                    raise _refused(name, a, b)
            elif not isinstance(b, int | float | complex | NumberProxy):
                raise _refused(name, a, b)
        else:
            tensor = b
            if not isinstance(b, TensorProxy) or not isinstance(a, int | float | complex | NumberProxy):
                raise _refused(name, a, b)
        d = tensor.dtype
        if kind_of(d) not in kinds:
            raise no_kernel(name, a, b)
        return TensorProxy(shape=tensor.shape, device=tensor.device, dtype=result_dtype(d))

    return meta


def _unary(
    name: str,
    kinds: str,
    result_dtype: ResultDtype = same_result,
    path: str | None = None,
    eager: Any = None,
    tags: tuple[Any, ...] = (),
    view: ViewRule | None = None,
) -> Symbol:
    reference = eager or attribute_at(torch, (path or name).removeprefix("torch."))
    return primitive(
        name,
        _unary_meta(name, kinds, result_dtype),
        eager=reference,
        eager_path=None if eager else path or f"torch.{name}",
        tags=(*_POINTWISE, *tags),
        view=view,
    )


def _binary(
    name: str,
    kinds: str,
    result_dtype: ResultDtype = same_result,
    path: str | None = None,
    eager: Any = None,
    tags: tuple[Any, ...] = (),
) -> Symbol:
    reference = eager or _tensor_first(attribute_at(torch, (path or name).removeprefix("torch.")))
    # torch's functions of the same name take a number on the left only where their signature allows it
    return primitive(
        name, _binary_meta(name, kinds, result_dtype), eager=reference, tags=(*_POINTWISE, *tags)
    )


def _tensor_first(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Return ``fn`` for a tensor and a number that torch's function does not take."""

    def compute(a: Any, b: Any) -> Any:
        try:
            return fn(a, b)
        except TypeError:
            if isinstance(a, torch.Tensor) == isinstance(b, torch.Tensor):
                raise
            if isinstance(a, torch.Tensor):
                return fn(a, torch.full((), b, dtype=a.dtype, device=a.device))
            return fn(torch.full((), a, dtype=b.dtype, device=b.device), b)

    compute.__name__ = fn.__name__
    return compute


def _of_part(which: int) -> ViewRule:
    """Return the rule of the view of the real (0) or imaginary (1) part."""

    def inverse(call: BoundSymbol, base: TensorProxy, value: TensorProxy) -> TensorProxy:
        pairs = copy_with_setitem(view_as_real(base), (..., which), value)
        return view_as_complex(pairs)  # type: ignore[no-any-return]

    return ViewRule(inverse=inverse)


# -- unary ---------------------------------------------------------------------------------------------------

abs = _unary("abs", NUMBERS, real_result)
acos = _unary("acos", INEXACT)
acosh = _unary("acosh", INEXACT)
asin = _unary("asin", INEXACT)
asinh = _unary("asinh", INEXACT)
atan = _unary("atan", INEXACT)
atanh = _unary("atanh", INEXACT)
bitwise_not = _unary("bitwise_not", BOOL + INT)
ceil = _unary("ceil", REALS)
cos = _unary("cos", INEXACT)
cosh = _unary("cosh", INEXACT)
digamma = _unary("digamma", FLOAT)
erf = _unary("erf", FLOAT)
erfc = _unary("erfc", FLOAT)
erfcinv = _unary("erfcinv", FLOAT, eager=lambda a: torch.special.ndtri(a * 0.5) * -math.sqrt(0.5))
erfinv = _unary("erfinv", FLOAT)
exp = _unary("exp", INEXACT)
exp2 = _unary("exp2", INEXACT)
expm1 = _unary("expm1", INEXACT)
floor = _unary("floor", REALS)
imag = _unary("imag", COMPLEX, real_result, tags=(OpTags.VIEW, OpTags.MAY_MARK), view=_of_part(1))
isfinite = _unary("isfinite", ANY, bool_result)
isinf = _unary("isinf", ANY, bool_result)
isnan = _unary("isnan", ANY, bool_result)
lgamma = _unary("lgamma", FLOAT)
log = _unary("log", INEXACT)
log10 = _unary("log10", INEXACT)
log1p = _unary("log1p", INEXACT)
log2 = _unary("log2", INEXACT)
logical_not = _unary("logical_not", ANY, bool_result)
ndtri = _unary("ndtri", FLOAT, path="torch.special.ndtri")
neg = _unary("neg", NUMBERS)
py_abs = _unary("py_abs", NUMBERS, real_result, eager=lambda a: a.abs())
real = _unary("real", COMPLEX, real_result, tags=(OpTags.VIEW,), view=_of_part(0))
reciprocal = _unary("reciprocal", INEXACT)
round = _unary("round", FLOAT)
rsqrt = _unary("rsqrt", INEXACT)
sgn = _unary("sgn", ANY)
sigmoid = _unary("sigmoid", INEXACT)
sign = _unary("sign", ORDERED)
signbit = _unary("signbit", ORDERED, bool_result)
sin = _unary("sin", INEXACT)
sinh = _unary("sinh", INEXACT)
sqrt = _unary("sqrt", INEXACT)
tan = _unary("tan", INEXACT)
tanh = _unary("tanh", INEXACT)
trunc = _unary("trunc", REALS)


def _frexp_meta(a: TensorProxy) -> tuple[TensorProxy, TensorProxy]:
    if not a.dtype.is_floating_point:
        raise _refused("frexp", a)
    return (
        TensorProxy(shape=a.shape, device=a.device, dtype=a.dtype),
        TensorProxy(shape=a.shape, device=a.device, dtype=int32_dtype),
    )


frexp = primitive("frexp", _frexp_meta, eager=lambda a: tuple(torch.frexp(a)), tags=_POINTWISE)

# -- binary --------------------------------------------------------------------------------------------------


def _py_floordiv(a: Any, b: Any) -> Any:
    return torch.floor_divide(a, b)


add = _binary("add", ANY, tags=_COMMUTATIVE)
atan2 = _binary("atan2", FLOAT)
bitwise_and = _binary("bitwise_and", BOOL + INT, tags=_COMMUTATIVE)
bitwise_left_shift = _binary("bitwise_left_shift", INT)
bitwise_or = _binary("bitwise_or", BOOL + INT, tags=_COMMUTATIVE)
bitwise_right_shift = _binary("bitwise_right_shift", INT)
bitwise_xor = _binary("bitwise_xor", BOOL + INT, tags=_COMMUTATIVE)
copysign = _binary("copysign", FLOAT)
div = _binary("div", INEXACT, tags=(OpTags.DIVIDES,))
eq = _binary("eq", ANY, bool_result, tags=_COMMUTATIVE)
fmod = _binary("fmod", REALS, tags=(OpTags.DIVIDES,))
ge = _binary("ge", ORDERED, bool_result)
gt = _binary("gt", ORDERED, bool_result)
hypot = _binary("hypot", FLOAT, tags=_COMMUTATIVE)
le = _binary("le", ORDERED, bool_result)
lt = _binary("lt", ORDERED, bool_result)
maximum = _binary("maximum", ORDERED, tags=_COMMUTATIVE)
minimum = _binary("minimum", ORDERED, tags=_COMMUTATIVE)
mul = _binary("mul", ANY, tags=_COMMUTATIVE)
ne = _binary("ne", ANY, bool_result, tags=_COMMUTATIVE)
nextafter = _binary("nextafter", FLOAT)
pow = _binary("pow", NUMBERS)
py_floordiv = _binary("py_floordiv", REALS, eager=_py_floordiv, tags=(OpTags.DIVIDES,))
remainder = _binary("remainder", REALS, tags=(OpTags.DIVIDES,))
sub = _binary("sub", NUMBERS)
zeta = _binary("zeta", FLOAT, path="torch.special.zeta")

# -- ternary -------------------------------------------------------------------------------------------------


def _lerp_meta(start: TensorProxy, end: TensorProxy, weight: Any) -> TensorProxy:
    others = (end, weight) if isinstance(weight, TensorProxy) else (end,)
    if kind_of(start.dtype) not in INEXACT or any(
        o.shape != start.shape or o.dtype is not start.dtype for o in others
    ):
        raise _refused("lerp", start, *others)
    return TensorProxy(shape=start.shape, device=start.device, dtype=start.dtype)


lerp = primitive("lerp", _lerp_meta, eager=torch.lerp, eager_path="torch.lerp", tags=_POINTWISE)


def _where_meta(pred: TensorProxy, a: Any, b: Any) -> TensorProxy:
    tensors = [x for x in (a, b) if isinstance(x, TensorProxy)]
    if pred.dtype is not bool8 or any(t.shape != pred.shape for t in tensors):
        raise _refused("where", pred, a, b)
    if not tensors or tensors[0].dtype is not tensors[-1].dtype:
        raise _refused("where", pred, a, b)
    return TensorProxy(shape=pred.shape, device=tensors[0].device, dtype=tensors[0].dtype)


#: one of ``a`` and ``b`` may be a number, of the other's type
where = primitive(
    "where",
    _where_meta,
    eager=torch.where,
    eager_path="torch.where",
    tags=_POINTWISE,
    in_place=InPlaceForm(
        run=lambda condition, a, b: torch.where(condition, a, b, out=b),
        bases=lambda args, kwargs: (args[2],),
        restoring=lambda condition, a, b: restoring_all(b),
        is_whole=True,
    ),
)
