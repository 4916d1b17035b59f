"""What a backward inside of a program computes again, so that less memory is alive when it begins.

    h = mm(x, w); a = gelu(h); y = mm(a, v)                h = mm(x, w); a = gelu(h); y = mm(a, v)
    …                                               →      …
    g_v = mm(a.T, g)                                       bw_a = gelu(h); g_v = mm(bw_a.T, g)

A program that calls ``backward()`` has forward and backward in one trace. What its backward reads is chosen
as for a backward of its own (``thunder.autograd.residuals``), with two differences: nobody can write to
anything between the two, and what the program is given costs nothing.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from itertools import chain

from thunder.autograd.rematerialiser import Rematerialiser
from thunder.autograd.residuals import ForwardGraph, choose_residuals
from thunder.ir.proxies import Variable, is_proxy
from thunder.ir.symbol import BoundSymbol, BoundSymbolTag, with_parts
from thunder.ir.symbolic_numbers import SymbolicNumber
from thunder.ir.trace import TraceCtx, TraceProvenance, from_trace
from thunder.ir.trace_context import tracectx
from thunder.passes.dce import dce
from thunder.passes.mutations import writes

__all__ = ["compute_again_inside"]


def compute_again_inside(trace: TraceCtx, policy: str | int) -> TraceCtx:
    """Let backwards inside of a program compute values again instead of keeping them: trace → trace.

    ``policy`` is that of :func:`~thunder.autograd.residuals.choose_residuals`. Returns ``trace`` itself
    without such a backward, where the program runs with gradients on, and where it writes before a backward.
    """
    start = time.perf_counter_ns()
    last = max((i for i, b in enumerate(trace.bound_symbols) if _is_backward(b)), default=-1)
    until, rest = trace.bound_symbols[: last + 1], trace.bound_symbols[last + 1 :]
    if trace.grad_enabled or not until or any(map(writes, until)):
        return trace
    graph = _graph(trace, until, rest)
    backward = [b for b in until if _is_backward(b)]
    names = {p.name for b in backward for p in b.flat_proxy_args}
    read = [v for name, v in graph.values.items() if name in names or isinstance(v, SymbolicNumber)]
    kept = [*choose_residuals(graph, read, policy), *filter(is_proxy, graph.inputs)]
    new = from_trace(trace)
    with tracectx(new):
        rematerialiser = Rematerialiser(
            new,
            graph,
            available={Variable(p): p for p in kept},
            taken={p.name for b in with_parts(trace.bound_symbols) for p in b.flat_proxy_outs},
            tags=(BoundSymbolTag.BACKWARD, BoundSymbolTag.COMPUTED_AGAIN),
        )
        for bsym in until:
            new.record(rematerialiser.with_arguments(bsym) if _is_backward(bsym) else bsym)
        for bsym in rest:
            new.record(bsym)
    if len(new.bound_symbols) == len(trace.bound_symbols):
        return trace
    new = dce(new)
    new.set_provenance(TraceProvenance("Computed again", time.perf_counter_ns() - start))
    return new


def _graph(trace: TraceCtx, until: Sequence[BoundSymbol], rest: Sequence[BoundSymbol]) -> ForwardGraph:
    """Return the values that a program computes before its last backward ends, outside of backwards.

    What is computed inside of backwards is an input.
    """
    arguments = list(filter(is_proxy, trace.args))
    gradients = [p for b in until if _is_backward(b) for p in b.flat_proxy_outs]
    forward = [b for b in until if not _is_backward(b)]
    read_later = (p.name for b in rest for p in b.flat_proxy_args)
    return ForwardGraph(
        inputs=[*arguments, *gradients],
        bsyms=forward,
        differentiable=frozenset(p.name for b in forward for p in b.flat_proxy_outs),
        alive=frozenset(chain((p.name for p in arguments), read_later)),
    )


def _is_backward(bsym: BoundSymbol) -> bool:
    return BoundSymbolTag.BACKWARD in bsym.own_tags
