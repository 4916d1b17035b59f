"""Deferred writes: statements of a program that run after its node in torch's graph.

    def f(x, w):                   the function:          t0 = x * w
        x.add_(x * w)              the deferred writes:   x.copy_(x + t0); return x, x.view(-1)
        return x, x.view(-1)

Writes to inputs, and returned views of inputs or of other results, have the effect of eager only where torch
itself sees them: then a view has its base, and a write its place in the history of the tensor. They are the
last statements of a functional program, or can be moved there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence, Set
from typing import Any

import torch

from thunder.base.tags import VIEW_TAGS, OpTags
from thunder.ir.proxies import TensorProxy, is_proxy
from thunder.ir.requires_grad import any_requires_grad, requires_grad
from thunder.ir.substitution import substitute_operands
from thunder.ir.symbol import BoundSymbol
from thunder.ir.trace import TraceCtx, TraceProvenance, from_trace
from thunder.ir.trace_context import tracectx
from thunder.ops import prims
from thunder.passes.functionalisation.view_creation import GradModes

__all__ = ["split_deferred_writes", "written_inputs"]


def split_deferred_writes(trace: TraceCtx) -> tuple[TraceCtx, TraceCtx | None]:
    """Return the program without its deferred writes, and a trace of these or None.

    The second trace takes what the first returns and then the inputs that it reads, and returns what the
    program returned. Statements that set the grad mode are left out; if the program ends in another mode than
    it began with, the second trace sets it.
    """
    *body, end = trace.bound_symbols
    untracked = _untracked_calls(body)
    modes = [b for b in body if b.sym is prims.set_grad_enabled]
    body = [b for b in body if b.sym is not prims.set_grad_enabled]
    first_write = next((i for i, b in enumerate(body) if OpTags.IN_PLACE in b.tags), len(body))
    writes = body[first_write:]
    body = body[:first_write]
    views: list[BoundSymbol] = []
    if torch.is_grad_enabled():
        views, sole_views = _returned_views(trace, body, end, untracked)
        trace, body, end = _untracked(trace, body, end, sole_views)
    final_mode = [modes[-1]] if modes and modes[-1].args[0] != torch.is_grad_enabled() else []
    if not (writes or views or final_mode):
        return _with_body(trace, [*body, end]), None
    return _split(trace, body, [*views, *writes, *final_mode], end)


def _untracked_calls(body: Sequence[BoundSymbol]) -> Set[BoundSymbol]:
    """Return the calls of regions in which gradients are off."""
    modes, untracked = GradModes(torch.is_grad_enabled(), is_tracked=True), set()
    for bsym in body:
        modes.follow(bsym)
        if not modes.is_grad_on:
            untracked.add(bsym)
    return untracked


def _returned_views(
    trace: TraceCtx, body: Sequence[BoundSymbol], end: BoundSymbol, untracked: Set[BoundSymbol]
) -> tuple[list[BoundSymbol], list[TensorProxy]]:
    """Return the calls of returned views of memory that the caller holds, and other views.

    The caller holds inputs, other results, and values of which several calls compute returned views. The
    other returned views, the second result, are of values that only the view refers to. The views that one
    call computes, such as ``split``, belong to neither: torch forbids in-place writes to them anyway. Nor do
    those of ``untracked`` calls, which have to be created where gradients are off.
    """
    producer = {p.name: b for b in body if b not in untracked for p in b.flat_proxy_outs}
    chains = {p.name: _view_chain(p.name, producer) for p in end.flat_proxy_args}
    origins = {(root, calls[0] if calls else None) for root, calls in chains.values()}
    counts = Counter(root for root, _ in origins)
    held = {p.name for p in trace.args if is_proxy(p)} | {root for root, count in counts.items() if count > 1}
    moved = {call for root, calls in chains.values() if root in held for call in calls}
    sole_views = {
        p.name: p
        for p in end.flat_proxy_args
        if requires_grad(p) and chains[p.name][1]
        if chains[p.name][0] not in held and len(chains[p.name][1][0].flat_proxy_outs) == 1
    }
    return [b for b in body if b in moved], list(sole_views.values())


def _untracked(
    trace: TraceCtx, body: list[BoundSymbol], end: BoundSymbol, sole_views: Sequence[TensorProxy]
) -> tuple[TraceCtx, list[BoundSymbol], BoundSymbol]:
    """Return the program with these views as results that torch does not track as views.

    torch forbids writes to a view that a function returns, and here no other tensor would change.
    """
    if not sole_views:
        return trace, body, end
    trace = _with_body(trace, [])
    with tracectx(trace):
        results = {p.name: TensorProxy(like=p) for p in sole_views}
        calls = [prims.untracked_alias.bind(p, output=results[p.name]) for p in sole_views]
    return trace, [*body, *calls], substitute_operands(end, results)


def _view_chain(name: str, producer: Mapping[str, BoundSymbol]) -> tuple[str, list[BoundSymbol]]:
    """Return the value that a value may be a view of, and the calls from there."""
    calls: list[BoundSymbol] = []
    while (call := producer.get(name)) is not None and may_be_view(call) and _keeps_grad(call):
        calls.append(call)
        (name,) = {p.name for p in call.flat_proxy_args}
    return name, calls


def may_be_view(bsym: BoundSymbol) -> bool:
    """Return whether the result may be memory of the call's one argument."""
    if len({p.name for p in bsym.flat_proxy_args}) != 1:
        return False
    if not VIEW_TAGS.isdisjoint(bsym.tags):
        return True
    return not bsym.sym.is_prim and bool(bsym.subsymbols) and all(map(may_be_view, bsym.subsymbols))


def _keeps_grad(call: BoundSymbol) -> bool:
    """Return whether results of a call require grad exactly if an argument does.

    So it is where gradients are on. torch's autograd tracks no view through a call with a custom gradient.
    """
    if call.sym.gradient is not None:
        return False
    needs = any_requires_grad(call.flat_proxy_args)
    return all(p.requires_grad == needs for p in call.flat_proxy_outs if isinstance(p, TensorProxy))


def _with_body(trace: TraceCtx, body: list[BoundSymbol]) -> TraceCtx:
    new = from_trace(trace)
    new.bound_symbols, new.provenance = body, trace.provenance
    return new


def _split(
    trace: TraceCtx, body: list[BoundSymbol], last: list[BoundSymbol], end: BoundSymbol
) -> tuple[TraceCtx, TraceCtx]:
    """Return the traces of ``body`` and of the statements ``last``."""
    computed = {p.name for b in last for p in b.flat_proxy_outs}
    inputs = {p.name for p in trace.args if is_proxy(p)}
    read: dict[str, Any] = {
        p.name: p for b in (*last, end) for p in b.flat_proxy_args if p.name not in computed
    }
    passed_on = [p for name, p in read.items() if name not in inputs]
    core = _with_body(trace, body)
    with tracectx(core):
        prims.python_return(tuple(passed_on))
    deferred = from_trace(trace)
    deferred.name, deferred.grad_enabled = "deferred_writes", True
    deferred.args = [*passed_on, *(p for p in trace.args if is_proxy(p) and p.name in read)]
    deferred.bound_symbols = [*last, end]
    deferred.set_provenance(TraceProvenance("Partition"))
    return core, deferred


def written_inputs(deferred: TraceCtx | None) -> frozenset[str]:
    """Return the names of the inputs to whose memory the deferred writes write."""
    if deferred is None:
        return frozenset()
    targets = {b.args[1].name for b in deferred.bound_symbols if b.sym is prims.copy_}
    overlapping = (names for g in deferred.input_aliases if (names := {a.proxy.name for a in g}) & targets)
    return frozenset(targets.union(*overlapping))
