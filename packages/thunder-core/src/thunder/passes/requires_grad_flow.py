"""The flow of ``requires_grad`` through a program whose inputs or calls a transform has changed."""

from __future__ import annotations

import time
from typing import Any

import torch

from thunder.ir.gradient_declarations import NoGradient
from thunder.ir.proxies import TensorProxy
from thunder.ir.requires_grad import any_requires_grad
from thunder.ir.substitution import substitute_operands, substitute_outputs
from thunder.ir.symbol import BoundSymbol
from thunder.ir.trace import TraceCtx, from_trace
from thunder.ops.prims.modes import set_grad_enabled


def propagate_requires_grad(trace: TraceCtx, before: TraceCtx) -> TraceCtx:
    """Return a changed program in which results require grad as its inputs and calls imply.

        t0 = linear(x, w); t1 = lora(x, a); t2 = add(t0, t1); t3 = relu(t2)

    Where only ``a`` requires grad and was added to the program, ``t2`` and ``t3`` require grad now. Calls
    that are as they were before, on values that are as they were, keep their results. A result requires grad
    as torch decides it: if an operand does, the operator has a gradient, and grad mode is on.
    """
    if not trace.grad_enabled:
        return trace
    start = time.perf_counter_ns()
    flow = _Flow(trace, before)
    calls = [flow.updated(bsym) for bsym in trace.bound_symbols]
    if all(a is b for a, b in zip(calls, trace.bound_symbols, strict=True)):
        return trace
    new = from_trace(trace)
    new.bound_symbols = calls
    if trace.provenance is not None:
        took = (trace.provenance.took_ns or 0) + time.perf_counter_ns() - start
        new.set_provenance(type(trace.provenance)(trace.provenance.pss, took))
    return new


class _Flow:
    """The values that a transform added or changed, as far as the calls have been visited."""

    def __init__(self, trace: TraceCtx, before: TraceCtx) -> None:
        self.unchanged = {_key(bsym) for bsym in before.bound_symbols}
        old = {p.name: p.requires_grad for p in before.args if isinstance(p, TensorProxy)}
        #: values with another `requires_grad` than their uses may have, by name
        self.touched: dict[str, Any] = {
            p.name: p for p in trace.args if isinstance(p, TensorProxy) and old.get(p.name) != p.requires_grad
        }
        self.grad_mode = torch.is_grad_enabled()

    def updated(self, bsym: BoundSymbol) -> BoundSymbol:
        """Return a call of the program with results that require grad as its operands imply."""
        if bsym.sym is set_grad_enabled:
            self.grad_mode = bool(bsym.args[0])
        is_new = _key(bsym) not in self.unchanged
        if is_new:
            self.touched.update({p.name: p for p in _tensors(bsym.flat_proxy_outs)})
        return self._updated(bsym, is_new)

    def _updated(self, bsym: BoundSymbol, is_new: bool) -> BoundSymbol:
        stale = {
            p.name: self.touched[p.name]
            for p in _tensors(bsym.flat_proxy_args)
            if p.name in self.touched and self.touched[p.name].requires_grad != p.requires_grad
        }
        if not stale and not is_new:
            return bsym
        if stale:
            bsym = substitute_operands(bsym, stale)
        if isinstance(bsym.sym.declared_gradient, NoGradient):
            return bsym
        if bsym.subsymbols and not bsym.sym.is_prim:
            # the operands of the parts have been substituted with the call's
            parts = tuple(self._updated(sub, is_new or bool(stale)) for sub in bsym.subsymbols)
            bsym = bsym.from_bsym(subsymbols=parts)
            computed = {p.name: p for sub in parts for p in _tensors(sub.flat_proxy_outs)}
            results = {
                p.name: computed[p.name]
                for p in _tensors(bsym.flat_proxy_outs)
                if p.name in computed and computed[p.name].requires_grad != p.requires_grad
            }
        else:
            results = self._results(bsym)
        self.touched.update(results)
        return substitute_outputs(bsym, results) if results else bsym

    def _results(self, bsym: BoundSymbol) -> dict[str, TensorProxy]:
        """Return the results of a primitive whose `requires_grad` changes, by name."""
        requires = self.grad_mode and any_requires_grad((*bsym.args, *bsym.kwargs.values()))
        operands = {p.name for p in bsym.flat_proxy_args}
        return {
            p.name: p.replace(requires_grad=requires)
            for p in _tensors(bsym.flat_proxy_outs)
            if p.name not in operands
            and p.dtype.is_inexact
            and p.requires_grad != requires
            and not (p.requires_grad and p.declared_leaf)
        }


def _tensors(proxies: tuple[Any, ...]) -> list[TensorProxy]:
    return [p for p in proxies if isinstance(p, TensorProxy)]


def _key(bsym: BoundSymbol) -> tuple[Any, ...]:
    """Return what tells whether a call is one of the earlier program."""
    return bsym.sym.id, _flags(bsym.flat_proxy_args), _flags(bsym.flat_proxy_outs)


def _flags(proxies: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple((p.name, getattr(p, "requires_grad", None)) for p in proxies)
