"""Programs in which gradients are enabled, and nothing or not every result requires grad."""

from __future__ import annotations

from collections import Counter

from thunder.ir.aliasing import views_of
from thunder.ir.effects import may_alias
from thunder.ir.proxies import TensorProxy
from thunder.ir.requires_grad import any_requires_grad, requires_grad
from thunder.ir.substitution import substitute_operands, substitute_outputs
from thunder.ir.symbol import BoundSymbol
from thunder.ir.trace import TraceCtx, from_trace
from thunder.ir.trace_context import tracectx
from thunder.ops import prims
from thunder.passes.functionalisation.view_creation import GradModes

__all__ = ["depends_on_grad_mode", "detach_results_without_grad", "without_gradients"]


def depends_on_grad_mode(trace: TraceCtx) -> bool:
    """Return whether a value of a program requires grad, or a call sets the grad mode."""
    return any_requires_grad(trace.args) or any(
        bsym.sym is prims.set_grad_enabled or any(map(requires_grad, bsym.flat_proxy_outs))
        for bsym in trace.bound_symbols
    )


def without_gradients(trace: TraceCtx) -> TraceCtx:
    """Return a program that runs with gradients off, if its results are those with gradients on.

        set_grad_enabled(False)              t0 = mul(p, 0.9)
        t0 = mul(p, 0.9)                 →   t2 = sub(t0, g)
        t1 = replace_data(t0, p)
        t2 = sub(t1, g)
        set_grad_enabled(True)

    No result of ``trace`` requires grad. A program that does not set the grad mode stays as it is: to turn
    gradients off takes longer than a small program. So does one that leaves another mode behind, one with a
    write that torch's autograd tracks, and one with a result that may be a view, or is computed of one, where
    gradients are on: torch says when it runs whether that requires grad.
    """
    if all(b.sym is not prims.set_grad_enabled for b in trace.bound_symbols) or _needs_modes(trace):
        return trace
    new = from_trace(trace)
    new.provenance, new.grad_enabled = trace.provenance, False
    reads = Counter(p.name for b in trace.bound_symbols for p in b.flat_proxy_args)
    computed = {p.name for b in trace.bound_symbols if not views_of(b) for p in b.flat_proxy_outs}
    data: dict[str, TensorProxy] = {}
    for bsym in trace.bound_symbols:
        bsym = substitute_operands(bsym, data)
        if bsym.sym is prims.replace_data and bsym.args[0].name in computed and reads[bsym.args[0].name] == 1:
            data[bsym.output.name] = bsym.args[0]  # memory that nothing else has
        elif bsym.sym is not prims.set_grad_enabled:
            new.add_bound_symbol(bsym)
    return new


def _needs_modes(trace: TraceCtx) -> bool:
    """Return whether a program leaves another mode behind, or autograd may track a write or a result.

    It may track a view, and what is computed of one where gradients are on.
    """
    modes, views, tracked = GradModes(trace.grad_enabled, is_tracked=True), set[str](), set[str]()
    for bsym in trace.bound_symbols:
        modes.follow(bsym)
        if bsym.sym is prims.copy_ and bsym.kwargs["grad_enabled"]:
            return True
        is_of_view = modes.is_grad_on and not views.isdisjoint([p.name for p in bsym.flat_proxy_args])
        if is_of_view or may_alias(bsym):
            detached = {view.output.name for view in views_of(bsym) if view.is_detached}
            results = {p.name for p in bsym.flat_proxy_outs} - detached
            views |= results
            tracked |= results if modes.is_grad_on else set()
    returned = {p.name for p in trace.bound_symbols[-1].flat_proxy_args if isinstance(p, TensorProxy)}
    return modes.is_grad_on != trace.grad_enabled or not tracked.isdisjoint(returned)


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
