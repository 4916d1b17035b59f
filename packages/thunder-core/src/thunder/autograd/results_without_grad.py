"""Programs in which gradients are enabled, and nothing or not every result requires grad."""

from __future__ import annotations

from thunder.ir.proxies import TensorProxy
from thunder.ir.requires_grad import any_requires_grad, requires_grad
from thunder.ir.substitution import substitute_outputs
from thunder.ir.symbol import BoundSymbol
from thunder.ir.trace import TraceCtx, from_trace
from thunder.ir.trace_context import tracectx
from thunder.ops import prims

__all__ = ["depends_on_grad_mode", "detach_results_without_grad"]


def depends_on_grad_mode(trace: TraceCtx) -> bool:
    """Return whether a value of a program requires grad, or a call sets the grad mode."""
    return any_requires_grad(trace.args) or any(
        bsym.sym is prims.set_grad_enabled or any(map(requires_grad, bsym.flat_proxy_outs))
        for bsym in trace.bound_symbols
    )


def detach_results_without_grad(trace: TraceCtx) -> TraceCtx:
    """Return a program that runs with gradients on, with declared results detached.

        t0 = mask(x)   →   t1 = mask(x); t0 = detach(t1)      # mask is an executor's operator

    The operator's function may consist of differentiable operators of torch. Where thunder differentiates a
    program, its functions run without gradients, and nothing has to be detached.
    """
    if not any(_declared(bsym) for bsym in trace.bound_symbols):
        return trace
    new = from_trace(trace)
    new.provenance = trace.provenance
    with tracectx(new):
        for bsym in trace.bound_symbols:
            declared = _declared(bsym)
            with new.naming_after(bsym.flat_proxy_outs, "e"):
                results = {p.name: p.replace(name=new.make_name()) for p in declared}
            new.add_bound_symbol(substitute_outputs(bsym, results))
            for p in declared:
                new.add_bound_symbol(prims.detach.bind(results[p.name], output=p))
    return new


def _declared(bsym: BoundSymbol) -> list[TensorProxy]:
    if bsym.sym.executor is None or not any_requires_grad(bsym.flat_proxy_args):
        return []
    arguments = {p.name for p in bsym.flat_proxy_args}
    return [
        p
        for p in bsym.flat_proxy_outs
        if isinstance(p, TensorProxy) and p.dtype.is_inexact and not p.requires_grad
        if p.name not in arguments
    ]
