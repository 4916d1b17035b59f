"""Common subexpression elimination."""

from __future__ import annotations

from typing import Any

from thunder.ir.aliasing import escaping
from thunder.ir.effects import has_effect, is_barrier
from thunder.ir.evaluation import rewrite
from thunder.ir.proxies import TensorProxy
from thunder.ir.requires_grad import requires_grad
from thunder.ir.symbol import BoundSymbol
from thunder.ir.trace import TraceCtx


def cse(trace: TraceCtx) -> TraceCtx:
    """Compute equal expressions once.

        t0 = sin(x); t1 = sin(x); t2 = add(t0, t1)   →   t0 = sin(x); t2 = add(t0, t0)

    Never merged are random operators, effects, and expressions with a write or a change of mode between
    them. Nor are

    - two values that both leave the program: the caller may write to one of them (Note [Results stay
      separate]);
    - two values through which gradients of different results flow: the caller may free one of the two graphs;
    - casts to a lower precision that require grad (Note [Cotangents of casts]).

    Value numbering over straight-line code (Aho et al., Compilers, 2nd ed., 8.5.1).
    """
    held, results_of = set(escaping(trace.bound_symbols)), _results_with_gradients(trace)
    candidates: dict[Any, list[BoundSymbol]] = {}

    def equal_result(bsym: BoundSymbol) -> Any:
        """Return the result of an equal call that can replace this one, or None."""
        if is_barrier(bsym):
            candidates.clear()
        if is_barrier(bsym) or not bsym.flat_proxy_outs:
            return None
        # Few calls share symbol and operands with another: only their right-hand sides are compared.
        alike = candidates.setdefault((bsym.sym.id, *[p.name for p in bsym.flat_proxy_args]), [])
        for earlier in alike:
            if earlier.rhs == bsym.rhs and _reach_same_results(earlier, bsym, results_of):
                if (
                    has_effect(bsym)
                    or _sums_in_lower_precision(bsym)
                    or not _can_replace(earlier, bsym, held)
                ):
                    return None
                values = zip(earlier.flat_proxy_outs, bsym.flat_proxy_outs, strict=True)
                held.update([value.name for value, dropped in values if dropped.name in held])
                return earlier.output
        alike.append(bsym)
        return None

    return rewrite(trace, equal_result, "Common Subexpression Elimination")


# Note [Results stay separate]
#
#     def f(x):
#         a, b = x.sin(), x.sin()
#         return a, b.view(-1)
#
# Eager returns two tensors with separate memory; a caller that writes to the first does not change the
# second. If they were merged, it would. So two values that reach a result, directly or through views, are
# not merged; nor is a result with a view of an input, which `may_alias` of the first call decides.


# Note [Cotangents of casts]
#
#     y = x.bfloat16() @ v + x.bfloat16() @ w
#
# The gradient of ``x`` is the sum of two cotangents, which eager casts to float32 before it adds them. Were
# the casts merged, they would be added in bfloat16.


def _results_with_gradients(trace: TraceCtx) -> dict[str, frozenset[str]]:
    """Map each value that requires grad to the results whose backward may reach it.

    The mapping is empty if fewer than two results require grad.
    """
    results = [p for p in trace.bound_symbols[-1].flat_proxy_args if requires_grad(p)]
    results_of = {p.name: frozenset({p.name}) for p in results}
    if len(results_of) < 2 or not trace.grad_enabled:
        return {}
    nothing: frozenset[str] = frozenset()
    for bsym in reversed(trace.bound_symbols[:-1]):
        reached = nothing.union(*(results_of.get(p.name, nothing) for p in bsym.flat_proxy_outs))
        if reached:
            for p in bsym.flat_proxy_args:
                if requires_grad(p):
                    results_of[p.name] = results_of.get(p.name, nothing) | reached
    return results_of


def _reach_same_results(a: BoundSymbol, b: BoundSymbol, results_of: dict[str, frozenset[str]]) -> bool:
    return all(
        results_of.get(p.name) == results_of.get(q.name)
        for p, q in zip(a.flat_proxy_outs, b.flat_proxy_outs, strict=True)
    )


def _can_replace(earlier: BoundSymbol, later: BoundSymbol, held: set[str]) -> bool:
    """Return whether two calls return equal metadata, and the caller holds no value of both."""
    return all(
        _same_metadata(a, b) and not (a.name in held and b.name in held)
        for a, b in zip(earlier.flat_proxy_outs, later.flat_proxy_outs, strict=True)
    )


def _sums_in_lower_precision(bsym: BoundSymbol) -> bool:
    """Return whether an output that requires grad has a lower precision than an operand."""
    widest = max((p.dtype.torch_dtype.itemsize for p in bsym.flat_proxy_args if _is_floating(p)), default=0)
    return any(
        _is_floating(p) and p.requires_grad and p.dtype.torch_dtype.itemsize < widest
        for p in bsym.flat_proxy_outs
    )


def _is_floating(p: Any) -> bool:
    return isinstance(p, TensorProxy) and p.dtype.is_inexact


def _same_metadata(a: Any, b: Any) -> bool:
    if isinstance(a, TensorProxy) and isinstance(b, TensorProxy):
        return (a.requires_grad, a.dtype, a.shape, a.tags) == (b.requires_grad, b.dtype, b.shape, b.tags)
    return type(a) is type(b)
