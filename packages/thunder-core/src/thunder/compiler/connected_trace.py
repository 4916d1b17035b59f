"""The program that torch's graph sees: what runs before, around and after the compiled forward.

def connected(x, w):
  w.requires_grad_()                       # the program has set it
  with torch.enable_grad():                # the caller has gradients off, a region of the program on
    (t1, t2) = differentiable(x, w)        # the forward; its backward is a node of torch's graph
  copy_(t1, x)                             # writes and views that torch itself has to see
  return t2
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import torch

from thunder.base.tags import OpTags
from thunder.ir.codegen import INDENT, arguments_text, callee_text, output_text
from thunder.ir.literals import Names
from thunder.ir.proxies import is_proxy
from thunder.ir.registered_operators import declared_symbol
from thunder.ir.symbol import BoundSymbol, Symbol
from thunder.ir.trace import TraceCtx, TraceProvenance, TraceTag
from thunder.ir.trace_context import tracectx
from thunder.ops import prims

__all__ = ["connected_trace"]

require_grad = declared_symbol(
    Symbol(
        "requires_grad_",
        "connected.requires_grad_",
        python_printer=lambda bsym, names: [f"{bsym.args[0].name}.requires_grad_()"],
        is_prim=True,
        tags=frozenset({OpTags.DONT_DCE}),
    )
)


def connected_trace(
    forward: TraceCtx,
    run: Callable[..., Any],
    *,
    requests: Collection[str],
    deferred: TraceCtx | None,
    enables_grad: bool,
) -> TraceCtx | None:
    """Return the trace of what runs round a forward, or None where the forward runs alone.

    Args:
        forward: the forward as it runs.
        run: runs it; its results are connected to torch's graph.
        requests: the names of inputs that require grad because the program sets it.
        deferred: the statements after the forward, see :mod:`~thunder.autograd.deferred_writes`.
        enables_grad: whether gradients are off where the program is called, and on in a region of it.
    """
    inputs = [p for p in forward.args if is_proxy(p)]
    requested = [p for p in inputs if p.name in requests]
    if not requested and deferred is None and not enables_grad:
        return None
    is_differentiable = TraceTag.AUGMENTED_FORWARD in forward.tags
    if deferred is not None:
        taken = {p.name for p in inputs}
        output: Any = tuple(p for p in deferred.args if p.name not in taken)
        end = deferred.bound_symbols
    else:
        output = forward.output[0]["output"] if is_differentiable else forward.output
        end = []
    trace = TraceCtx(name="connected")
    trace.plain, trace.args = True, list(forward.args)
    trace.names = set(forward.names) | (set() if deferred is None else set(deferred.names))
    call = Symbol(
        "differentiable" if is_differentiable else "computation",
        "connected.forward",
        python_impl=run,
        python_printer=_with_gradients if enables_grad else None,
        is_prim=True,
    )
    with tracectx(trace):
        trace.bound_symbols += [require_grad.bind(p, output=None) for p in requested]
        trace.bound_symbols.append(call.bind(*forward.args, output=output))
        trace.bound_symbols += end or [prims.python_return.bind(output, output=None)]
    trace.set_provenance(TraceProvenance("Connection to torch's graph"))
    return trace


def _with_gradients(bsym: BoundSymbol, names: Names) -> list[str]:
    left = output_text(bsym.output, names.unread)
    call = f"{left}{callee_text(bsym, names)}({arguments_text(bsym, names)})"
    return [f"with {names.obj('enable_grad', torch.enable_grad)}():", f"{INDENT}{call}"]
