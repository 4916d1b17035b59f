"""Rules of elementwise primitives: one line in a table for each."""

from __future__ import annotations

from typing import Any, Final

import torch

from thunder.core.dtypes import to_torch_dtype
from thunder.core.proxies import TensorProxy
from thunder.core.symbol import BoundSymbol

from .data_types import compute_dtype, names
from .translation import RULES, Translation, rule

__all__ = ["BINARY", "BOOLEANS", "COMPARISONS", "ROUNDED", "TESTS", "UNARY"]

#: primitives with an operation of the same name: of one tensor
UNARY: Final = names(
    "abs acos acosh asin asinh atan atanh bitwise_not ceil cos cosh erf erfc erfcinv erfinv "
    "exp exp2 expm1 floor lgamma log log10 log1p log2 neg reciprocal round rsqrt sigmoid "
    "sign sin sinh sqrt tan tanh trunc"
)
#: of one tensor, with a boolean result
TESTS: Final = ["isfinite", "isinf", "isnan", "signbit"]
#: of two operands
BINARY: Final = names(
    "add atan2 bitwise_and bitwise_left_shift bitwise_or bitwise_right_shift bitwise_xor div "
    "fmod maximum minimum mul nextafter pow remainder sub"
)
#: of two operands, with a boolean result
COMPARISONS: Final = names("eq ge gt le lt ne")
#: those of which eager rounds a number to the dtype of the tensor beside it
ROUNDED: Final = names("fmod remainder")
#: what primitives mean on booleans
BOOLEANS: Final = {
    "add": "bitwise_or",
    "maximum": "bitwise_or",
    "minimum": "bitwise_and",
    "mul": "bitwise_and",
    "ne": "bitwise_xor",
}


def _unary(t: Translation, call: BoundSymbol) -> None:
    t.set_wide(call.output, getattr(t.ops, call.sym.name)(t.wide(call.args[0])))


def _test(t: Translation, call: BoundSymbol) -> None:
    t.set(call.output, getattr(t.ops, call.sym.name)(t.wide(call.args[0])))


def _is_of_bools(call: BoundSymbol) -> bool:
    return all(not isinstance(x, TensorProxy) or x.dtype.torch_dtype is torch.bool for x in call.args)


def _operands(t: Translation, call: BoundSymbol, *, rounds: bool) -> list[Any]:
    """Return the operands of a call; a fractional number is rounded as eager does.

    That is to the dtype of the tensor, if `rounds`, else to the one that it is computed in.
    """
    dtype = next(to_torch_dtype(x.dtype) for x in call.args if isinstance(x, TensorProxy))
    target = dtype if rounds else compute_dtype(dtype)
    return [t.wide(x) if isinstance(x, TensorProxy) else t.number(x, target) for x in call.args]


def _binary(t: Translation, call: BoundSymbol) -> None:
    name = call.sym.name
    if _is_of_bools(call) and name in BOOLEANS:
        t.set(call.output, getattr(t.ops, BOOLEANS[name])(*map(t.value, call.args)))
    else:
        t.set_wide(call.output, getattr(t.ops, name)(*_operands(t, call, rounds=name in ROUNDED)))


def _comparison(t: Translation, call: BoundSymbol) -> None:
    operands = _operands(t, call, rounds=True)
    if _is_of_bools(call):
        operands = [t.cast(x, torch.bool, torch.int64) for x in operands]
    t.set(call.output, getattr(t.ops, call.sym.name)(*operands))


RULES.update({f"prims.{name}": _unary for name in UNARY})
RULES.update({f"prims.{name}": _test for name in TESTS})
RULES.update({f"prims.{name}": _binary for name in BINARY})
RULES.update({f"prims.{name}": _comparison for name in COMPARISONS})


@rule("logical_not")
def _logical_not(t: Translation, call: BoundSymbol) -> None:
    """Add the negation of a boolean, or the comparison of a number with zero."""
    (a,) = call.args
    if a.dtype.torch_dtype is torch.bool:
        t.set(call.output, t.ops.logical_not(t.value(a)))
    else:
        t.set(call.output, t.ops.eq(t.wide(a), t.value(0)))


@rule("where")
def _where(t: Translation, call: BoundSymbol) -> None:
    condition, a, b = call.args
    dtype = compute_dtype(to_torch_dtype(call.output.dtype))
    branches = (t.wide(x) if isinstance(x, TensorProxy) else t.number(x, dtype) for x in (a, b))
    t.set_wide(call.output, t.ops.where(t.value(condition), *branches))


@rule("lerp")
def _lerp(t: Translation, call: BoundSymbol) -> None:
    t.set_wide(call.output, t.ops.lerp(*(t.wide(x) for x in call.args)))


@rule("convert_element_type")
def _convert(t: Translation, call: BoundSymbol) -> None:
    a, target = call.args
    if to_torch_dtype(target) is torch.bool and to_torch_dtype(a.dtype) is not torch.bool:
        t.set(call.output, t.ops.ne(t.wide(a), t.value(0)))
    else:
        t.convert(call.output, a)


@rule("clone", "detach", "shallow_copy")
def _copy(t: Translation, call: BoundSymbol) -> None:
    t.move(call.output, call.args[0], t.ops.set)
