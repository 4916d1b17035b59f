"""Copies of small values that the caller holds, from which the backward computes large ones again.

Note [Saved copies]

    y = h * w                   # w: a weight that the caller holds, 2 KiB; y: 2 MiB
    return linear(y, v)         # its gradient reads y

Computed again from ``w``, ``y`` would be another value if the caller has written to ``w.data`` since (Note
[What may change]). So the forward copies ``w``, and the backward computes ``h * copy``:

    saved_w = clone(w)          # saved are h, saved_w, and w itself, which the gradient of h reads
    bw_y = h * saved_w

Where the backward reads ``w`` itself, as eager does, it shows a write as eager does. For torch the copy is a
hidden result; its cotangent, in a second derivative, is one of ``w``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from thunder.autograd.residuals import ForwardGraph, copy_price, is_cheap, nbytes
from thunder.ir.proxies import TensorProxy
from thunder.ir.symbol import BoundSymbol
from thunder.ir.trace import TraceCtx
from thunder.ir.trace_context import tracectx
from thunder.ops import prims

__all__ = ["possible_copies"]


def possible_copies(trace: TraceCtx, graph: ForwardGraph) -> list[BoundSymbol]:
    """Return calls that copy small values which the caller holds, and large values are computed from."""
    sources = {p.name: p for bsym in graph.bsyms for p in _small_arguments(bsym, graph)}
    with tracectx(trace):
        return [prims.clone.bind(p, output=_copy_of(p)) for p in sources.values()]


def _small_arguments(bsym: BoundSymbol, graph: ForwardGraph) -> Iterator[TensorProxy]:
    """Yield the arguments of a call that the caller holds, if copies of them cost less than its results."""
    held = [p for p in bsym.flat_proxy_args if p.name in graph.held_by_caller and isinstance(p, TensorProxy)]
    if not held or sum(map(nbytes, bsym.flat_proxy_outs)) <= sum(map(copy_price, held)):
        return
    if is_cheap(bsym) and all(_is_saved(p, graph) for p in bsym.flat_proxy_outs):
        yield from held


def _is_saved(p: Any, graph: ForwardGraph) -> bool:
    return p.name in graph.differentiable and p.name not in graph.held_by_caller and graph.can_save(p)


def _copy_of(p: TensorProxy) -> TensorProxy:
    copy = p.replace_name(f"saved_{p.name}", disambiguate=True)
    return copy.replace(declared_leaf=None, strides=None, input_offset=None, tags=())
