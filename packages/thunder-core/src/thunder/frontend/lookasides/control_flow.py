"""Torch's structured control flow: each operator is the Python that torch itself runs in eager.

    torch.cond(pred, f, g, (x,))                    →   f(x) or g(x), by a decision on data
    torch._higher_order_ops.while_loop(c, f, xs)    →   a loop whose condition is a decision in each round
    scan, map, associative_scan, flex_attention     →   torch's dense implementation, interpreted

Gradients are those of the calls that were made. In eager, torch compiles these operators for itself.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Sequence
from typing import Any

import torch
import torch.fx.traceback

from thunder.base.autocast_state import autocast_kinds
from thunder.base.errors import UnsupportedProgram
from thunder.frontend.lookasides.lookaside_registry import LookasideTable
from thunder.frontend.places import COMPUTES
from thunder.frontend.session import TracingSession

TABLE = LookasideTable(COMPUTES)

Args = tuple[Any, ...]
Kwargs = dict[str, Any]

_PACKAGE = "torch._higher_order_ops"


@TABLE.named_lookaside(f"{_PACKAGE}.cond", "cond")
def _cond(session: TracingSession, args: Args, kwargs: Kwargs) -> Any:
    """Call one of the two functions of ``torch.cond``: a condition in a tensor is a decision on data."""

    def choose(pred: Any, true_fn: Any, false_fn: Any, operands: Any = ()) -> Any:
        taken = true_fn if session.call(bool, (pred,), {}) else false_fn
        return session.call(taken, tuple(operands), {})

    return choose(*args, **kwargs)


def _interpreted(module: str, operator: str, dense: str) -> None:
    """Let calls of an operator's class be calls of the function that torch runs for dense tensors."""

    @TABLE.named_lookaside(f"{_PACKAGE}.{module}", f"{operator}.__call__")
    def call(session: TracingSession, args: Args, kwargs: Kwargs) -> Any:
        _, *rest = args
        return session.call(getattr(sys.modules[f"{_PACKAGE}.{module}"], dense), tuple(rest), kwargs)


_interpreted("while_loop", "WhileLoopOp", "while_loop_dense")
_interpreted("scan", "ScanOp", "generic_scan")
_interpreted("map", "MapImpl", "map_dense")
_interpreted("associative_scan", "AssociativeScanOp", "generic_associative_scan")


@TABLE.named_lookaside(f"{_PACKAGE}.flex_attention", "FlexAttentionHOP.__call__")
def _flex_attention(session: TracingSession, args: Args, kwargs: Kwargs) -> Any:
    """Interpret torch's attention with a function of scores; raise UnsupportedProgram under autocast."""
    _, query, *rest = args
    if query.device.type in autocast_kinds():
        raise UnsupportedProgram(
            "flex_attention under autocast, which casts its operands by a rule of its own",
            hint="Cast query, key and value, and call it under torch.autocast(…, enabled=False).",
        )
    dense = sys.modules[f"{_PACKAGE}.flex_attention"].sdpa_dense
    return session.call(dense, (query, *rest), kwargs)


@TABLE.named_lookaside(f"{_PACKAGE}.flex_attention", "_permute_strides")
def _permute_strides(session: TracingSession, args: Args, kwargs: Kwargs) -> Any:
    """Return a copy whose strides have the order of the query's, the last dimension densest."""
    out, query_strides = args
    shape, last = out.shape, len(out.shape) - 1
    order = sorted(range(len(shape)), key=query_strides.__getitem__, reverse=True)[::-1]
    strides = _dense_strides(shape, order)
    if strides[last] != 1:
        strides = _dense_strides(shape, [last, *(dim for dim in order if dim != last)])
    copy = session.call(torch.Tensor.new_empty_strided, (out, shape, strides), {})
    return session.call(torch.Tensor.copy_, (copy, out), {})


def _dense_strides(shape: Sequence[int], order: Sequence[int]) -> tuple[int, ...]:
    """Return the strides of a dense tensor whose dimensions are in this order, the densest first."""
    strides, size = [0] * len(shape), 1
    for dim in order:
        strides[dim] = size
        size *= shape[dim]
    return tuple(strides)


@TABLE.lookaside(torch.fx.traceback.annotate)
def _annotate(session: TracingSession, args: Args, kwargs: Kwargs) -> Any:
    """Return a context that does nothing: what it annotates are nodes of torch's graphs."""
    return contextlib.nullcontext()
