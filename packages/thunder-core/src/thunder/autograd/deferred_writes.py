"""What of a differentiated program runs behind the function that torch's autograd sees.

    def f(x, w):                   the function:   t0 = x * w
        x.add_(x * w)              the tail:       x.copy_(x + t0); return x, x.view(-1)
        return x, x.view(-1)

Writes to inputs, and views of inputs or of other results that the program returns, mean to torch what they
mean in eager only where torch sees them itself: then a view has its base, and a write its place in the
history of the tensor. They are the last statements of a functional program, or can be.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from thunder.base.tags import OpTags
from thunder.ir.proxies import TensorProxy, Variable, is_proxy
from thunder.ir.symbol import BoundSymbol
from thunder.ir.trace import TraceCtx, TraceProvenance, from_trace, tracectx
from thunder.ops import prims

__all__ = ["split_tail", "written_inputs"]

_VIEWS = frozenset({OpTags.VIEW, OpTags.MAYBE_VIEW})


def split_tail(trace: TraceCtx) -> tuple[TraceCtx, TraceCtx | None]:
    """The program without its tail, and the tail, or None if there is none.

    The tail takes what the rest returns and then the inputs that it reads, and returns what the program
    returned. Statements that set the grad mode are left out; where the program leaves another mode behind,
    the tail sets it.
    """
    *body, end = trace.bound_symbols
    modes = [b for b in body if b.sym is prims.set_grad_enabled]
    body = [b for b in body if b.sym is not prims.set_grad_enabled]
    first_write = next((i for i, b in enumerate(body) if OpTags.IN_PLACE in b.tags), len(body))
    writes = body[first_write:]
    body = body[:first_write]
    views: list[BoundSymbol] = []
    if torch.is_grad_enabled():
        views, alone = _returned_views(trace, body, end)
        trace, body, end = _without_base(trace, body, end, alone)
    left_behind = [modes[-1]] if modes and modes[-1].args[0] != torch.is_grad_enabled() else []
    if not (writes or views or left_behind):
        return _with_body(trace, [*body, end]), None
    return _split(trace, body, [*views, *writes, *left_behind], end)


def _returned_views(
    trace: TraceCtx, body: Sequence[BoundSymbol], end: BoundSymbol
) -> tuple[list[BoundSymbol], list[TensorProxy]]:
    """The calls that make returned views of what the caller holds too: of inputs, of other results, or of one
    value of which several calls have made some; and the returned views of what nobody else holds.

    The views that one call makes, such as ``split``, stay what they are: nobody may write to them anyway.
    """
    producer = {p.name: b for b in body for p in b.flat_proxy_outs}
    chains = {p.name: _chain(p.name, producer) for p in end.flat_proxy_args}
    made_by = {(root, calls[0] if calls else None) for root, calls in chains.values()}
    roots = Counter(root for root, _ in made_by)
    held = {p.name for p in trace.args if is_proxy(p)} | {root for root, count in roots.items() if count > 1}
    found = {call for root, calls in chains.values() if root in held for call in calls}
    alone = {
        p.name: p
        for p in end.flat_proxy_args
        if isinstance(p, TensorProxy) and p.requires_grad and chains[p.name][1]
        if chains[p.name][0] not in held and len(chains[p.name][1][0].flat_proxy_outs) == 1
    }
    return [b for b in body if b in found], list(alone.values())


def _without_base(
    trace: TraceCtx, body: list[BoundSymbol], end: BoundSymbol, alone: Sequence[TensorProxy]
) -> tuple[TraceCtx, list[BoundSymbol], BoundSymbol]:
    """The program that returns these views as tensors of their own: torch would forbid the caller to write to
    a view that comes out of a function, and here no other tensor would change.
    """
    if not alone:
        return trace, body, end
    trace = _with_body(trace, [])
    with tracectx(trace):
        results = {Variable(p): TensorProxy(like=p) for p in alone}
        calls = [prims.untracked_alias.bind(p, output=results[Variable(p)]) for p in alone]
    return trace, [*body, *calls], end.from_bsym_swap_proxies(results)


def _chain(name: str, producer: Mapping[str, BoundSymbol]) -> tuple[str, list[BoundSymbol]]:
    """What a value is a view of, by calls that may make one, and those calls."""
    calls: list[BoundSymbol] = []
    while (call := producer.get(name)) is not None and may_be_view(call) and _keeps_grad(call):
        calls.append(call)
        (name,) = {p.name for p in call.flat_proxy_args}
    return name, calls


def may_be_view(bsym: BoundSymbol) -> bool:
    """Whether the result may be memory of the call's one argument; with some layouts of it, say."""
    if len({p.name for p in bsym.flat_proxy_args}) != 1:
        return False
    if not _VIEWS.isdisjoint(bsym.tags):
        return True
    return not bsym.sym.is_prim and bool(bsym.subsymbols) and all(map(may_be_view, bsym.subsymbols))


def _keeps_grad(call: BoundSymbol) -> bool:
    """Whether the call was made where gradients are on: its results require grad if an argument does. A call
    with a gradient of its own is no view to torch's autograd.
    """
    if call.sym.gradient is not None:
        return False
    needs = any(p.requires_grad for p in call.flat_proxy_args if isinstance(p, TensorProxy))
    return all(p.requires_grad == needs for p in call.flat_proxy_outs if isinstance(p, TensorProxy))


def _with_body(trace: TraceCtx, body: list[BoundSymbol]) -> TraceCtx:
    new = from_trace(trace)
    new.bound_symbols, new.provenance = body, trace.provenance
    return new


def _split(
    trace: TraceCtx, body: list[BoundSymbol], last: list[BoundSymbol], end: BoundSymbol
) -> tuple[TraceCtx, TraceCtx]:
    made = {p.name for b in last for p in b.flat_proxy_outs}
    inputs = {p.name for p in trace.args if is_proxy(p)}
    read: dict[str, Any] = {p.name: p for b in (*last, end) for p in b.flat_proxy_args if p.name not in made}
    handed_on = [p for name, p in read.items() if name not in inputs]
    core = _with_body(trace, body)
    with tracectx(core):
        prims.python_return(tuple(handed_on))
    tail = from_trace(trace)
    tail.name, tail.grad_enabled = "epilogue_of_computation", True
    tail.args = [*handed_on, *(p for p in trace.args if is_proxy(p) and p.name in read)]
    tail.bound_symbols = [*last, end]
    tail.set_provenance(TraceProvenance("Partition"))
    return core, tail


def written_inputs(tail: TraceCtx | None) -> frozenset[str]:
    """Return the names of the inputs to whose memory the tail writes."""
    if tail is None:
        return frozenset()
    targets = {b.args[1].name for b in tail.bound_symbols if b.sym is prims.copy_}
    overlapping = (names for g in tail.input_aliases if (names := {a.proxy.name for a in g}) & targets)
    return frozenset(targets.union(*overlapping))
