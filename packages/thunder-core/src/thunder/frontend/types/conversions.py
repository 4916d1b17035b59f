"""Truth values and numbers that a program asks for of tensors, and of numbers that are values of the trace.

if t: …                     →   a decision
int(t), operator.index(t)   →   i0 = item(t), a number of the trace; of another tensor a decision
int(t.item())               →   i0
int(i1 / 2)                 →   i1 // 2, for a symbolic size
float(t)                    →   a decision

The session answers. Only native code that meets a tensor asks by the methods of the proxy.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, Final

import torch

from thunder.frontend.session import TracingSession
from thunder.frontend.torch_functions.override_state import TorchFunctions
from thunder.ir.number_proxies import decided_by
from thunder.ir.proxies import IntegerProxy, NumberProxy, TensorProxy
from thunder.ir.refused_methods import answer
from thunder.ir.symbolic_floats import of_function
from thunder.ir.symbolic_sizes import SymbolicInt, SymbolicNumber

#: the functions that convert to a number → their special methods, the type of the result
METHODS: Final[dict[Callable[..., Any], tuple[str, type]]] = {
    int: ("__int__", int),
    float: ("__float__", float),
    complex: ("__complex__", complex),
    operator.index: ("__index__", int),
}


def truth_of_tensor(session: TracingSession, x: TensorProxy) -> Any:
    """Return ``bool(x)``; NotImplemented where the program sees a call of a method."""
    return _answer(session, "__bool__", x)


def truth_of_number(session: TracingSession, number: NumberProxy) -> Any:
    """Return ``bool(number)``, a decision."""
    return decided_by(session.trace.recorder, "bool", "bool", number)


def number_of_tensor(session: TracingSession, x: TensorProxy, convert: Any) -> Any:
    """Return a tensor as a number; NotImplemented where the program sees a call of a method."""
    has_one = all(type(n) is int and n == 1 for n in x.shape)
    is_integer = x.dtype.is_integer or x.dtype.is_bool
    is_asked = convert is int or (convert is operator.index and not x.dtype.is_bool)
    if has_one and is_integer and is_asked and not _may_override(session):
        return number_of_number(session, session.call(torch.Tensor.item, (x,), {}), convert)
    return _answer(session, METHODS[convert][0], x)


def number_of_number(session: TracingSession, number: Any, convert: Any) -> Any:
    """Return a number that is a value of the trace as one of another type: itself, or a decision."""
    if isinstance(number, IntegerProxy) and convert in (int, operator.index):
        if number.python_type is int:
            return number
        if convert is int:
            return +number  # type: ignore[operator]
    if not isinstance(number, NumberProxy):
        return NotImplemented
    question = METHODS[convert][0].strip("_")
    return decided_by(session.trace.recorder, question, question, number)


def number_of_symbol(session: TracingSession, number: SymbolicNumber, convert: Any) -> Any:
    """Return a number that sizes determine as one of another type; NotImplemented where that fixes them."""
    if convert is int:
        return number.__trunc__()
    if convert is operator.index and isinstance(number, SymbolicInt):
        return number
    return of_function(float, number) if convert is float else NotImplemented


def _may_override(session: TracingSession) -> bool:
    return session.state(TorchFunctions).applies


def _answer(session: TracingSession, name: str, x: TensorProxy) -> Any:
    is_own = session.type_attr(TensorProxy, name) is getattr(TensorProxy, name)
    if not is_own or _may_override(session):
        return NotImplemented
    return answer(session.trace.recorder, name, x)
