"""Integers out of tensors, which are numbers of the trace as those of ``t.item()`` are.

int(t), operator.index(t)   →   i0 = item(t)
int(t.item())               →   i0
int(i1 / 2)                 →   i1 // 2, for a symbolic size
"""

from __future__ import annotations

import operator
from typing import Any

import torch

from thunder.frontend.lookasides.lookaside_registry import LookasideTable
from thunder.frontend.session import TracingSession
from thunder.frontend.torch_functions.override_state import TorchFunctions
from thunder.ir.proxies import IntegerProxy, TensorProxy
from thunder.ir.symbolic_sizes import SymbolicNumber

TABLE = LookasideTable()


@TABLE.lookaside(int)
def _int(session: TracingSession, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if len(args) == 1 and not kwargs:
        (x,) = args
        if isinstance(x, SymbolicNumber):
            return x.__trunc__()
        number = _number_in(session, x) if isinstance(x, TensorProxy) else x
        if isinstance(number, IntegerProxy):
            return +number if number.python_type is bool else number  # type: ignore[operator]
    return session.machine.generic_call(int, args, kwargs)


@TABLE.lookaside(operator.index)
def _index(session: TracingSession, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if len(args) == 1 and not kwargs:
        (x,) = args
        number = _number_in(session, x) if isinstance(x, TensorProxy) and not x.dtype.is_bool else x
        if isinstance(number, IntegerProxy) and number.python_type is int:
            return number
    return session.machine.generic_call(operator.index, args, kwargs)


def _number_in(session: TracingSession, x: TensorProxy) -> Any:
    """Return the number in a tensor of one integer, or None for another tensor."""
    has_one = all(type(n) is int and n == 1 for n in x.shape)
    if not (has_one and (x.dtype.is_integer or x.dtype.is_bool)) or session.state(TorchFunctions).applies:
        return None
    return session.call(torch.Tensor.item, (x,), {})
