"""The sizes of the call that was traced, for choices and estimates on which no result depends."""

from __future__ import annotations

import math
from typing import Any

from thunder.ir.proxies import TensorProxy
from thunder.ir.substitution import with_leaves
from thunder.ir.symbol import BoundSymbol
from thunder.ir.symbolic_numbers import SymbolicNumber
from thunder.ir.symbolic_sizes import has_symbols, hint_of, hints_of
from thunder.ir.trace import TraceCtx, from_trace

__all__ = ["call_with_traced_sizes", "tensor_bytes", "with_traced_sizes"]


def tensor_bytes(value: Any) -> int:
    """Return the bytes of a tensor's elements in the traced call, 0 for another value; no fact is asked."""
    if not isinstance(value, TensorProxy):
        return 0
    return math.prod(hints_of(value.shape)) * value.dtype.itemsize


def with_traced_sizes(trace: TraceCtx) -> TraceCtx:
    """Return a trace with numbers in the place of symbolic sizes, those of the traced call.

    It describes that call alone, and is not run.
    """
    if not any(isinstance(a, SymbolicNumber) or _has_symbols(a) for a in (*trace.args, *_values(trace))):
        return trace
    numbers = from_trace(trace)
    numbers.args = [_number(a) for a in trace.args]
    numbers.bound_symbols = [call_with_traced_sizes(bsym) for bsym in trace.bound_symbols]
    return numbers


def _values(trace: TraceCtx) -> list[Any]:
    return [p for bsym in trace.bound_symbols for p in (*bsym.flat_proxy_args, *bsym.flat_proxy_outs)]


def call_with_traced_sizes(bsym: BoundSymbol) -> BoundSymbol:
    """Return a call with numbers in the place of symbolic sizes, those of the traced call."""
    return with_leaves(_number, bsym)


def _number(value: Any) -> Any:
    if isinstance(value, SymbolicNumber):
        return value.hint
    if not _has_symbols(value):
        return value
    strides = None if value.strides is None else tuple(map(hint_of, value.strides))
    return value.replace(shape=tuple(map(hint_of, value.shape)), strides=strides)


def _has_symbols(value: Any) -> bool:
    return isinstance(value, TensorProxy) and (
        has_symbols(value.shape) or (value.strides is not None and has_symbols(value.strides))
    )
