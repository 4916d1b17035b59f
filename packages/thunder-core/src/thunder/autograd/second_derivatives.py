"""Second derivatives through the gradient rules of packages.

A package's rule may compute its gradient with a kernel that has no derivative:

    def rule(x):
        out, scale = forward_kernel(x)
        put_grad(x, backward_kernel(get_grad(out), x, scale))
        return out

The first derivative is that of the rule. Where a second one is needed, the gradient is computed by the
operator's own rule instead, which is differentiable, from the arguments of the call.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from typing import Any

from thunder.autograd.joint_trace import tape_of_call
from thunder.autograd.residuals import ForwardGraph
from thunder.autograd.rule_lookup import Decompose, gradient_of, own_gradient_of
from thunder.autograd.tape import BackwardStep, PackageRule
from thunder.base.errors import MissingGradient
from thunder.base.extension_origin import origin_of
from thunder.executor_base.executor import Executor
from thunder.ir.effects import has_effect
from thunder.ir.gradient_declarations import NoGradient
from thunder.ir.proxies import TensorProxy
from thunder.ir.requires_grad import any_requires_grad
from thunder.ir.symbol import BoundSymbol
from thunder.ir.trace import TraceCtx
from thunder.ops.rule_parts import GETTERS, PUT_GRAD

__all__ = ["check_values_are_saved", "differentiable_steps"]


def differentiable_steps(
    trace: TraceCtx, steps: Sequence[BackwardStep], executors: Sequence[Executor]
) -> tuple[list[BackwardStep], list[BoundSymbol]]:
    """Return steps that can be differentiated, and the calls whose values they read besides the forward's.

    A step of a package's rule that cannot be differentiated is replaced by that of the operator's own
    gradient. New values have names of ``trace``. Raises MissingGradient, with the package, where the operator
    has none.
    """
    result: list[BackwardStep] = []
    calls: list[BoundSymbol] = []
    for step in steps:
        rule = step.package_rule
        obstacle = None if rule is None else _obstacle(step, rule, executors)
        if rule is None or obstacle is None:
            result.append(step)
            continue
        if isinstance(own_gradient_of(rule.call), NoGradient | None):
            raise _missing(rule, f"{obstacle.sym.id}, which it calls, has no gradient")
        forward, own_steps = tape_of_call(trace, rule.call)
        if any(map(has_effect, forward)):
            raise _missing(rule, f"{obstacle.sym.id}, which it calls, has no gradient")
        calls += forward
        result += own_steps
    return result, calls


def check_values_are_saved(
    steps: Sequence[BackwardStep], graph: ForwardGraph, read: Sequence[Any], residuals: Set[str]
) -> None:
    """Raise MissingGradient if a value that is read can be computed from no residual."""
    for name in graph.needed(read, graph.values.keys(), residuals):
        producer = graph.producer.get(name)
        if name not in residuals and (producer is None or has_effect(producer)):
            rule = next(s.package_rule for s in steps if s.package_rule is not None)
            raise _missing(rule, f"the operator's own gradient reads {name}, which the rule does not save")


def _obstacle(step: BackwardStep, rule: PackageRule, executors: Sequence[Executor]) -> BoundSymbol | None:
    """Return a call in a step through which no derivative flows although it should, or None."""
    results = {p.name for p in rule.call.flat_proxy_outs}
    constants = {p.name: b for b in rule.forward for p in _constant_results(b, results, executors)}
    for bsym in step.bsyms:
        if bsym.sym.id in GETTERS or bsym.sym.id == PUT_GRAD:
            continue
        if bsym.sym.executor is None:
            for p in bsym.flat_proxy_args:
                if p.name in constants:
                    return constants[p.name]
        for part in _without_derivative(bsym, executors):
            return part
    return None


def _constant_results(
    bsym: BoundSymbol, results: Set[str], executors: Sequence[Executor]
) -> list[TensorProxy]:
    """Return the values of an executor's operator through which no gradient flows to its arguments.

    ``results`` are the names of the results of the rule; the operator's gradient is that of the rule there.
    """
    if bsym.sym.executor is None or not any_requires_grad(bsym.flat_proxy_args):
        return []
    return [
        p
        for p in bsym.flat_proxy_outs
        if isinstance(p, TensorProxy) and p.dtype.is_inexact
        if not p.requires_grad or (p.name not in results and gradient_of(bsym, executors) is None)
    ]


def _without_derivative(bsym: BoundSymbol, executors: Sequence[Executor]) -> Iterator[BoundSymbol]:
    """Yield the calls in one that a derivative has to pass, and that have no gradient rule."""
    if not any_requires_grad(bsym.flat_proxy_args):
        return
    gradient = gradient_of(bsym, executors)
    if isinstance(gradient, Decompose):
        for part in bsym.subsymbols:
            yield from _without_derivative(part, executors)
    elif (bsym.sym.executor is not None and isinstance(gradient, NoGradient)) or (
        gradient is None and bsym.sym.is_prim
    ):
        yield bsym


def _missing(rule: PackageRule, why: str) -> MissingGradient:
    name = f"{getattr(rule.fn, '__qualname__', rule.fn)}, of {rule.call.sym.id}"
    return MissingGradient(
        f"a second derivative of {rule.call.sym.id} is needed, and its gradient rule has none: {why}",
        found={"rule": name, "call": rule.call.line},
        where=rule.call.locations,
        hint="Give the operators of the backward gradient rules, or write it with operators of torch.",
    ).blame(origin_of(rule.fn))
