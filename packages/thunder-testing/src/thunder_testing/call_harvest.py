"""Sample calls of an operator from programs in which it occurs: decompositions and gradients of others."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch

from thunder.core import prims
from thunder.core.langctxs import TORCH, using_language
from thunder.core.prims import PrimIDs
from thunder.core.proxies import TensorProxy, is_proxy
from thunder.core.pytree import tree_flatten, tree_iter, tree_map
from thunder.core.symbol import BoundSymbol
from thunder.core.trace import TraceCtx, from_trace, tracectx
from thunder.core.vjp_utils import differentiable_outputs, differentiate, joint_trace
from thunder.extend import Operator, get_always_executors, row_of, symbol_of

__all__ = ["Call", "harvested"]

#: statements that compute nothing
_STRUCTURAL = frozenset({PrimIDs.RETURN, PrimIDs.DEL, PrimIDs.CLEAR_MUTABLE_COLLECTION, PrimIDs.COMMENT})

Call = tuple[tuple[Any, ...], dict[str, Any]]


def harvested(operator_id: str, source: Operator, calls: Iterator[Call], gradient: bool) -> Iterator[Call]:
    """Yield the arguments of the calls of an operator in programs of one call of another.

    With `gradient` these are the calls' joint traces, with random cotangents.
    """
    for args, kwargs in calls:
        yield from _calls_in(operator_id, source, (args, kwargs), gradient)


def _calls_in(operator_id: str, source: Operator, call: Call, gradient: bool) -> list[Call]:
    """Return the calls of an operator in one program; none if it cannot be traced or run."""
    run = _Run(operator_id)
    try:
        run.run_all(*_program(source, *call, gradient))
    except Exception:
        return []
    return run.calls


def _program(source: Operator, args: Any, kwargs: Any, gradient: bool) -> tuple[TraceCtx, list[torch.Tensor]]:
    tensors = list({id(x): x for x in tree_iter((args, kwargs)) if isinstance(x, torch.Tensor)}.values())
    trace = TraceCtx()
    with tracectx(trace), using_language(TORCH), torch.set_grad_enabled(gradient):
        proxies = {
            id(x): TensorProxy(like=x, requires_grad=gradient and x.is_floating_point()) for x in tensors
        }
        trace.args = list(proxies.values())
        new = tree_map(lambda x: proxies.get(id(x), x), (tuple(args), dict(kwargs)))
        out = symbol_of(source.id)(*new[0], **new[1])
        results = tuple(x for x in tree_iter(out) if isinstance(x, TensorProxy))
        prims.python_return(results)
    if not gradient:
        return trace, tensors
    outputs = differentiable_outputs(trace)
    joint = joint_trace(differentiate(_returning(trace, outputs), get_always_executors()), outputs)
    generator = torch.Generator().manual_seed(0)
    cotangents = [torch.randn(tuple(o.shape), generator=generator) for o in outputs]
    return joint, [*tensors, *cotangents]


def _returning(trace: TraceCtx, outputs: tuple[TensorProxy, ...]) -> TraceCtx:
    new = from_trace(trace)
    new.bound_symbols = [b for b in trace.bound_symbols if b.sym.id != PrimIDs.RETURN]
    with tracectx(new):
        prims.python_return(outputs)
    return new


@dataclass
class _Run:
    """A run of a trace statement by statement, in which the calls of one operator are noted."""

    operator_id: str
    values: dict[str, Any] = field(default_factory=dict)
    calls: list[Call] = field(default_factory=list)

    def run_all(self, trace: TraceCtx, inputs: list[torch.Tensor]) -> None:
        self.values.update(zip((p.name for p in trace.args), inputs, strict=True))
        for bsym in trace.bound_symbols:
            if bsym.sym.id not in _STRUCTURAL:
                self.run(bsym)

    def run(self, bsym: BoundSymbol) -> None:
        row = row_of(bsym.sym.id)
        if row is None or row.eager is None or (bsym.sym.id != self.operator_id and self.contains(bsym)):
            if bsym.sym.id == self.operator_id:
                self.calls.append(self.arguments(bsym))
            for part in bsym.subsymbols:
                self.run(part)
            return
        args, kwargs = self.arguments(bsym)
        if bsym.sym.id == self.operator_id:
            self.calls.append((args, kwargs))
        args, kwargs = bsym.sym.normalize(*args, **kwargs)
        self.bind(bsym.output, row.eager(*args, **kwargs))

    def contains(self, bsym: BoundSymbol) -> bool:
        return any(b.sym.id == self.operator_id or self.contains(b) for b in bsym.subsymbols)

    def arguments(self, bsym: BoundSymbol) -> Call:
        args, kwargs = tree_map(lambda x: self.values[x.name] if is_proxy(x) else x, (bsym.args, bsym.kwargs))
        return tuple(args), dict(kwargs)

    def bind(self, proxies: Any, results: Any) -> None:
        names, values = tree_flatten(proxies)[0], tree_flatten(_plain(results))[0]
        for proxy, value in zip(names, values, strict=True):
            if is_proxy(proxy):
                self.values[proxy.name] = value


def _plain(tree: Any) -> Any:
    return tuple(_plain(x) for x in tree) if isinstance(tree, tuple | list) else tree
