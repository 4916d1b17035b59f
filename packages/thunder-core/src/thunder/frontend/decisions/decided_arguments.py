"""Numbers out of tensors as arguments of operators: some flow through, others are decisions.

n = (x > 0).sum().item()        n is a value of the trace
y = x * n                   →   y = mul(x, n), for any n
z = x.narrow(0, 0, n)       →   check_decision(n, question="index", answer=2, index=0); z = x.narrow(0, 0, 2)
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, Final

import torch

from thunder.base.errors import DataDependentControlFlow
from thunder.base.pytree import tree_flatten, tree_map, tree_unflatten
from thunder.frontend.session import TracingSession
from thunder.ir.number_proxies import decided_value
from thunder.ir.proxies import (
    IntegerProxy,
    TensorProxy,
    constant_value,
)
from thunder.ir.recorder import UNDECIDED
from thunder.ir.refused_methods import as_size
from thunder.ir.symbol import Symbol
from thunder.ir.symbolic_sizes import SymbolicInt
from thunder.ops.operator import Operator, row_of

__all__ = ["call_with_decided_arguments", "with_decided_integers"]

#: types of arguments that neither are integers of the trace nor hold any, and of which most are
_WITHOUT_INTEGERS: Final = frozenset(
    {TensorProxy, SymbolicInt, int, float, bool, str, type(None), torch.dtype, torch.device}
)
#: names of the operand
_OPERANDS: Final = frozenset(("input", "self"))


def with_decided_integers(session: TracingSession, symbol: Any, args: Any, kwargs: Any) -> tuple[Any, Any]:
    """Return the arguments of a call with those integers decided on which metadata may depend."""
    if session.speculation is None:
        return args, kwargs
    row = row_of(symbol) if isinstance(symbol, Symbol) else None
    takes = "decided" if row is None else row.integers
    if row is not None and takes == "sizes":
        args, kwargs = _with_decided_sizes(row, args, kwargs)
    values = (*args, *kwargs.values())
    is_plain = _WITHOUT_INTEGERS.issuperset(map(type, values))
    if not is_plain and takes != "values" and any(map(_has_integer, values)):
        args, kwargs = tree_map(_decided_integer, (args, kwargs))
    return args, kwargs


def _with_decided_sizes(row: Operator, args: Any, kwargs: Any) -> tuple[Any, Any]:
    """Return the arguments of a call with the sizes decided on that are tensors, but not the operand."""
    is_factory = row.parameters[0] not in _OPERANDS
    operand = () if is_factory else args[:1]
    sizes = args[len(operand) :], {k: v for k, v in kwargs.items() if is_factory or k not in _OPERANDS}
    if any(map(_has_size, (*sizes[0], *sizes[1].values()))):
        positional, named = tree_map(_decided_size, sizes)
        args, kwargs = (*operand, *positional), {**kwargs, **named}
    return args, kwargs


def call_with_decided_arguments(
    session: TracingSession,
    symbol: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    error: DataDependentControlFlow,
) -> Any:
    """Call an operator that has asked for the value of an argument, ``error``, with the values of numbers.

    Raises the error if there are none, or if they cannot be decided.
    """
    if session.speculation is None:
        raise error

    def decided(x: Any) -> Any:
        if isinstance(x, TensorProxy) and not x.shape and x.dtype.is_integer:
            return operator.index(x)
        return decided_value(x, "an operator")

    leaves, spec = tree_flatten((args, kwargs))
    try:
        values = list(map(decided, leaves))
    except DataDependentControlFlow:
        raise error from None
    if all(a is b for a, b in zip(leaves, values, strict=True)):
        raise error
    args, kwargs = tree_unflatten(values, spec)
    return symbol(*args, **kwargs)


def _has_size(x: Any) -> bool:
    return _is_size(x) or (isinstance(x, tuple | list) and any(map(_has_size, x)))


def _is_size(x: Any) -> bool:
    return isinstance(x, TensorProxy) and not x.shape and x.dtype.is_integer


def _decided_size(x: Any) -> Any:
    return _as_size(x) if _is_size(x) else x


def _has_integer(x: Any) -> bool:
    if isinstance(x, tuple | list):
        return any(map(_has_integer, x))
    return isinstance(x, IntegerProxy) and not isinstance(x, SymbolicInt)


def _decided_integer(x: Any) -> Any:
    return _as_size(x) if _has_integer(x) and not isinstance(x, tuple | list) else x


def _as_size(x: Any) -> Any:
    """Return an integer of the trace as a size; raises DataDependentControlFlow where that is impossible."""
    size = as_size(x) if constant_value(x) is None else UNDECIDED
    return operator.index(x) if size is UNDECIDED else size
