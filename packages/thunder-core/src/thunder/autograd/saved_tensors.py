"""The tensors that a forward saves for its backward, for transforms that change them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from thunder.base.errors import InvalidArgument
from thunder.base.structural_ids import RETURN
from thunder.ir.proxies import TensorProxy
from thunder.ir.symbol import BoundSymbol
from thunder.ir.trace import TraceCtx, TraceTag

__all__ = ["get_saved_for_backward_tensors", "set_saved_for_backward_tensors"]


def _returning(trace: TraceCtx) -> BoundSymbol:
    end = trace.bound_symbols[-1] if trace.bound_symbols else None
    if TraceTag.AUGMENTED_FORWARD not in trace.tags or end is None or end.sym.id != RETURN:
        raise InvalidArgument(
            "the trace is not the forward of a program with a backward",
            found={"tags": trace.tags},
            hint="Test `TraceTag.AUGMENTED_FORWARD in trace.tags` first.",
        )
    return end


def get_saved_for_backward_tensors(trace: TraceCtx) -> tuple[TensorProxy, ...]:
    """Return the tensors that a forward saves for its backward, in the backward's order.

    Raises InvalidArgument for a trace that is not tagged ``AUGMENTED_FORWARD``.
    """
    _, (tensors, _) = _returning(trace).args
    return tuple(tensors)


def set_saved_for_backward_tensors(trace: TraceCtx, tensors: Sequence[Any]) -> None:
    """Replace the tensors that a forward saves, in place; the backward has to unpack as many.

    Raises InvalidArgument for a trace that is not tagged ``AUGMENTED_FORWARD``.
    """
    end = _returning(trace)
    result, (_, others) = end.args
    trace.bound_symbols[-1] = end.from_bsym(args=(result, (tuple(tensors), others)))
