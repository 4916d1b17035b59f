"""The joint trace: a program, followed by the gradients of its inputs.

def computation(x, w):              def joint(x, w, t2):
    y = ltorch.sin(x)                   y = ltorch.sin(x)
    t0 = ltorch.mul(y, w)      →        t0 = ltorch.mul(y, w)
    return t0                           t3 = ltorch.mul(t2, w)
                                        t4 = ltorch.mul(t2, y)
                                        t5 = ltorch.cos(x)
                                        t6 = ltorch.mul(t3, t5)
                                        return (t0,), (t6, t4)
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence, Set
from dataclasses import replace
from typing import Any

from thunder.autograd.formula_steps import FormulaSteps, step_of_formulas
from thunder.autograd.kept_calls import package_claimer, why_not_again, why_not_kept
from thunder.autograd.rule_checks import (
    check_gradients_are_moved,
    check_nothing_is_written,
    is_complete_by_contract,
    named_rule,
    paired_results,
)
from thunder.autograd.rule_lookup import Decompose, claimer_of, gradient_of, missing_gradient, own_gradient_of
from thunder.autograd.step_copies import StepCopy
from thunder.autograd.tape import BackwardStep, PackageRule, Tape, recording
from thunder.base.pytree import tree_flatten, tree_unflatten
from thunder.base.structural_ids import COMMENT, RELEASES, RETURN
from thunder.base.tags import OpTags
from thunder.executor_base.executor import Executor
from thunder.executor_base.refusal import Refusal
from thunder.ir.aliasing import views_of
from thunder.ir.decomposition import with_decomposition
from thunder.ir.gradient_declarations import Formulas, JointRule, NoGradient, OperatorGradient, Vjp
from thunder.ir.proxies import ProxyTag, TensorProxy, is_proxy
from thunder.ir.requires_grad import requires_grad
from thunder.ir.substitution import in_place_of, rename_results, substitute, substitute_operands
from thunder.ir.symbol import BoundSymbol, BoundSymbolTag, with_parts
from thunder.ir.trace import AGAIN, TraceCtx, TraceProvenance, from_trace
from thunder.ir.trace_context import get_tracectx, tracectx
from thunder.ops import prims
from thunder.ops.extension_code import call_extension
from thunder.ops.rule_parts import GETTERS, PUT_GRAD, split_rule

__all__ = ["differentiable_outputs", "differentiate", "joint_trace", "tape_of_call"]


def joint_trace(tape: Tape, outputs: Sequence[TensorProxy]) -> TraceCtx:
    """Return the trace ``(inputs, cotangents of outputs) → (results, gradients of inputs)``."""
    start = time.perf_counter_ns()
    joint = from_trace(tape.trace)
    joint.name = "joint"
    with tracectx(joint):
        cotangents = [TensorProxy(like=o, requires_grad=True) for o in outputs]
    body = [b for b in tape.forward if b.sym.id != RETURN]
    (end,) = (b for b in tape.forward if b.sym.id == RETURN)
    inputs = list(joint.args)
    joint.args = [*inputs, *cotangents]
    backward, gradients = tape.backward(
        joint, {o.name: c for o, c in zip(outputs, cotangents, strict=True)}, inputs
    )
    joint.bound_symbols = [*body, *backward]
    with tracectx(joint):
        prims.python_return(end.args[0] if len(end.args) == 1 else end.args, gradients)
    joint.set_provenance(TraceProvenance("Grad transform", time.perf_counter_ns() - start))
    return joint


def differentiate(trace: TraceCtx, executors: Sequence[Executor] = (), *, keep_calls: bool = False) -> Tape:
    """Return the tape of a functional trace: gradients of its results by its inputs.

    ``executors`` may have gradient rules (:func:`~thunder.autograd.rule_lookup.gradient_of`). A call that no
    gradient passes stays as it is. So does one for which a package's executor has code
    (Note [Kernels without a gradient]), and with ``keep_calls`` one that any executor claims whole and that
    is differentiated by its subsymbols: these, rounded each, would give other numbers. Raises MissingGradient
    for a primitive without a gradient that a gradient passes.
    """
    writer = _TapeWriter(from_trace(trace), executors, keep_calls)
    body = [b for b in trace.bound_symbols if b.sym.id not in RELEASES and b.sym.id != COMMENT]
    results = {p.name for p in differentiable_outputs(trace)}
    results.update(b.args[0].name for b in body if b.sym is prims.copy_)
    writer.write_all(body, results)
    differentiable = frozenset(trace.names - writer.ignored)
    steps = _read_above_hooks(writer.forward, writer.steps)
    return Tape(writer.trace, writer.forward, steps, differentiable, writer.unclaimed)


def _read_above_hooks(forward: Sequence[BoundSymbol], steps: Sequence[BackwardStep]) -> list[BackwardStep]:
    """Let steps read the results of hooks, and not what these get.

    The call that computes a value may have saved it: in a second derivative, its gradient passes the hooks.
    That of what it has saved of its arguments passes no hook after its node.
    """
    read: dict[str, Any] = {}
    for bsym in reversed(forward):
        if OpTags.HOOKED in bsym.sym.tags:
            for passed, value in zip(bsym.args, bsym.flat_proxy_outs, strict=False):
                read[passed.name] = read.get(value.name, value)
    for bsym in forward:
        if OpTags.HOOKED_ARGUMENTS in bsym.sym.tags:
            for view in views_of(bsym):
                read[view.output.name] = read.get(view.source.name, view.source)
    if not read:
        return list(steps)

    def reading(bsym: BoundSymbol) -> BoundSymbol:
        if bsym.sym.id == PUT_GRAD or bsym.sym.id in GETTERS:
            return bsym
        return substitute_operands(bsym, read)

    return [replace(step, bsyms=tuple(map(reading, step.bsyms))) for step in steps]


def tape_of_call(trace: TraceCtx, bsym: BoundSymbol) -> tuple[list[BoundSymbol], list[BackwardStep]]:
    """Return calls that compute a call again, and the steps of its gradient by the operator's own rule.

    New values get names of ``trace``.
    """
    writer = _TapeWriter(trace, (), keep_calls=False)
    writer.differentiate(bsym, {p.name for p in bsym.flat_proxy_outs}, own_gradient_of(bsym))
    return writer.forward, writer.steps


def differentiable_outputs(trace: TraceCtx) -> tuple[TensorProxy, ...]:
    """Return the results of a program that require grad and are not inputs, each once."""
    inputs = {a.name for a in trace.args if is_proxy(a)}
    outputs = {
        p.name: p
        for p in trace.bound_symbols[-1].flat_proxy_args
        if requires_grad(p) and p.name not in inputs
    }
    return tuple(outputs.values())


def _on_gradient_path(bsyms: Sequence[BoundSymbol], results: set[str]) -> list[bool]:
    """Return, for each call, whether a gradient of one of the results passes it."""
    reached, on_path = set(results), []
    for bsym in reversed(bsyms):
        is_passed = any(p.name in reached for p in bsym.flat_proxy_outs if requires_grad(p))
        on_path.append(is_passed)
        if is_passed:
            reached.update(p.name for p in bsym.flat_proxy_args if requires_grad(p))
    on_path.reverse()
    return on_path


class _TapeWriter:
    """Writes the forward and the steps of a tape, call by call."""

    def __init__(self, trace: TraceCtx, executors: Sequence[Executor], keep_calls: bool) -> None:
        self.trace, self.executors, self.keep_calls = trace, executors, keep_calls
        self.formula_steps = FormulaSteps(trace)
        self.forward: list[BoundSymbol] = []
        self.steps: list[BackwardStep] = []
        #: results for which a rule returned another value: an input, a constant
        self.replaced: dict[str, Any] = {}
        #: results whose gradient a rule does not read
        self.ignored: set[str] = set()
        #: calls that other calls take the place of, with the executors that could run them, and the reasons
        self.unclaimed: list[tuple[BoundSymbol, tuple[tuple[str, Refusal], ...]]] = []

    def write_all(self, bsyms: Sequence[BoundSymbol], results: set[str], *, are_parts: bool = False) -> None:
        """Write each call, and a step for those that a gradient of the results passes.

        ``are_parts`` of another call.
        """
        on_path = _on_gradient_path(bsyms, results)
        reached = set(results).union(
            p.name
            for b, is_passed in zip(bsyms, on_path, strict=True)
            if is_passed
            for p in b.flat_proxy_args
        )
        for bsym, is_passed in zip(bsyms, on_path, strict=True):
            bsym = substitute_operands(bsym, self.replaced)
            if is_passed and any(map(requires_grad, bsym.flat_proxy_args)):
                gradient = gradient_of(bsym, self.executors, is_part=are_parts)
                self.differentiate(bsym, reached, gradient)
            else:
                self.forward.append(bsym)

    def differentiate(
        self, bsym: BoundSymbol, reached: set[str], gradient: OperatorGradient | Decompose | None
    ) -> None:
        """Write a call, and the step of its gradient."""
        if gradient is None:
            bsym = with_decomposition(bsym, self.trace)
            gradient = gradient_of(bsym, self.executors)
        match gradient:
            case JointRule() | Decompose():
                self._replace(bsym, gradient, reached.intersection(p.name for p in bsym.flat_proxy_outs))
            case Formulas() | Vjp():
                with named_rule(bsym, gradient):
                    self._apply(gradient, bsym, reached)
            case NoGradient():
                self.forward.append(bsym)
            case None if bsym.sym.is_prim or _computes(bsym, reached):
                raise missing_gradient(bsym)
            case None:  # the call returns an input
                self.forward.append(bsym)

    def _replace(self, bsym: BoundSymbol, gradient: JointRule | Decompose, with_gradient: Set[str]) -> None:
        """Write the calls that a rule records for a call, or that it decomposes into; or keep the call."""
        claimer, refusals = package_claimer(bsym, self.executors, gradient)
        if claimer is None and self.keep_calls and isinstance(gradient, Decompose):
            claimer = claimer_of(bsym, self.executors)
        refusal = why_not_kept(bsym, gradient) if claimer is not None else None
        start, steps = len(self.forward), len(self.steps)
        if claimer is not None and refusal is None:
            self._keep(bsym, with_gradient, gradient)
            refusal = why_not_again(bsym, self.forward[start + 1 :])
            if refusal is None:
                return
            del self.forward[start:], self.steps[steps:]
        self._write(bsym, gradient, with_gradient)
        if claimer is not None and refusal is not None:
            refusals = (*refusals, (claimer.name, refusal))
        if refusals and all(b.sym.id != bsym.sym.id for b in self.forward[start:]):
            self.unclaimed.append((bsym, refusals))

    def _write(self, bsym: BoundSymbol, gradient: JointRule | Decompose, with_gradient: Set[str]) -> None:
        if isinstance(gradient, JointRule):
            with named_rule(bsym, gradient):
                self._run_rule(gradient.fn, bsym)
        else:
            self.write_all(_in_place_of(bsym, bsym.subsymbols), set(with_gradient), are_parts=True)

    def _keep(self, bsym: BoundSymbol, with_gradient: Set[str], gradient: JointRule | Decompose) -> None:
        """Write a call whole, and again as its gradient computes it, whose results get its gradients.

        Of the second call only what the gradients read is computed, in the backward.
        """
        self.forward.append(bsym)
        with tracectx(self.trace):
            second = {
                p.name: p.replace(name=self.trace.make_derived_name(f"{AGAIN}{p.name}"))
                for p in _computed(bsym)
            }
        start = len(self.forward)
        self._write(substitute(bsym, second), gradient, {second[name].name for name in with_gradient})
        for b in self.forward[start:]:
            for p in b.flat_proxy_outs:
                p.tags.add(ProxyTag.RECOMPUTE_IN_BACKWARD)
        outputs = {p.name: p for p in bsym.flat_proxy_outs}
        with recording(self.trace, bsym, "p") as step:
            for name, value in second.items():
                if name in with_gradient:
                    prims.put_grad(value, prims.get_grad(outputs[name]))
        self._add_step(step, bsym)

    def _apply(self, gradient: Formulas | Vjp, bsym: BoundSymbol, reached: set[str]) -> None:
        """Write a call whole, and the step that puts the gradients of its formulas."""
        self.forward.append(bsym)
        names = {o.name for o in bsym.flat_proxy_outs if requires_grad(o)}
        without_cotangent = frozenset(names - reached)

        def record_all() -> Sequence[BoundSymbol]:
            trace = get_tracectx()
            assert trace is not None, "a backward is being recorded"
            return step_of_formulas(trace, gradient, bsym, names)

        step = self.formula_steps.recorded(gradient, bsym, names - without_cotangent)
        self._add_step(step, bsym, without_cotangent, record_all if without_cotangent else None)

    def _run_rule(self, rule: Callable[..., Any], bsym: BoundSymbol) -> None:
        """Write what a rule computes for the call's result, and the rest of the rule as the step."""
        is_complete = is_complete_by_contract(rule)
        self.formula_steps.note_rule(rule)
        with recording(self.trace, bsym, "p" if is_complete else "") as recorded:
            if is_complete:
                result = call_extension(rule, bsym.args, bsym.kwargs)
                result = _with_distinct_results(bsym, recorded, result)
            else:
                result = rule(*bsym.args, **bsym.kwargs)
        results = paired_results(bsym, result)
        check_gradients_are_moved(bsym, recorded, result, is_complete)
        if is_complete:
            check_nothing_is_written(bsym, recorded)
        recorded = [b for b in recorded if b.sym.id != PUT_GRAD or b.args[1] is not None]
        recorded = rename_results(recorded, bsym, results, self.replaced)
        read = {b.args[0].name for b in recorded if b.sym.id in GETTERS}
        self.ignored.update(p.name for p in bsym.flat_proxy_outs if p.name not in read)
        needed = {p.name for p in (*bsym.flat_proxy_outs, *filter(is_proxy, self.replaced.values()))}
        forward, step = split_rule(recorded, needed)
        self.forward += _in_place_of(bsym, forward)
        package_rule = PackageRule(rule, bsym, forward) if is_complete else None
        self._add_step(step, bsym, package_rule=package_rule)

    def _add_step(
        self,
        bsyms: Sequence[BoundSymbol],
        call: BoundSymbol,
        without_cotangent: frozenset[str] = frozenset(),
        record_all: Callable[[], Sequence[BoundSymbol]] | None = None,
        package_rule: PackageRule | None = None,
    ) -> None:
        arguments = tuple(p for p in call.flat_proxy_args if requires_grad(p)) if record_all else ()
        step = BackwardStep(bsyms, without_cotangent, record_all, arguments, package_rule)
        if record_all is None and next(step.adds_to, None) is None:
            return
        if not isinstance(bsyms, StepCopy):
            for b in bsyms:
                b.source = call.source
        self.steps.append(step)


def _with_distinct_results(bsym: BoundSymbol, recorded: list[BoundSymbol], result: Any) -> Any:
    """Return the result of a rule with a copy of each tensor that is an argument, or occurs before.

    Their gradients would be those of one value. The gradient that the rule reads of an argument that it
    returns becomes the gradient of the copy.
    """
    arguments = {p.name for p in bsym.flat_proxy_args}
    leaves, spec = tree_flatten(result)
    taken = set(arguments)
    copies: dict[str, TensorProxy] = {}
    for i, leaf in enumerate(leaves):
        if not isinstance(leaf, TensorProxy):
            continue
        if leaf.name in taken:
            leaves[i] = prims.clone(leaf)
            if leaf.name in arguments:
                copies.setdefault(leaf.name, leaves[i])
        taken.add(leaf.name)
    for i, b in enumerate(recorded):
        if b.sym.id in GETTERS and b.args[0].name in copies:
            recorded[i] = b.from_bsym(args=(copies[b.args[0].name],))
    return tree_unflatten(leaves, spec)


def _computed(bsym: BoundSymbol) -> Iterator[Any]:
    """Yield the values that a call computes, with those of the calls that it decomposes into, each once."""
    seen = {p.name for p in bsym.flat_proxy_args}
    for b in with_parts((bsym,)):
        for p in b.flat_proxy_outs:
            if p.name not in seen:
                seen.add(p.name)
                yield p


def _computes(bsym: BoundSymbol, reached: Set[str]) -> bool:
    """Return whether a call has a result that a gradient reaches and that is not one of its arguments."""
    arguments = {p.name for p in bsym.flat_proxy_args}
    return any(requires_grad(p) and p.name in reached - arguments for p in bsym.flat_proxy_outs)


def _in_place_of(call: BoundSymbol, parts: Sequence[BoundSymbol]) -> list[BoundSymbol]:
    """Return the calls that replace one; the new values of a call that runs again are computed again."""
    if BoundSymbolTag.RECOMPUTE_IN_BACKWARD in call.tags:
        results = {p.name for p in call.flat_proxy_outs}
        for p in (p for part in parts for p in part.flat_proxy_outs):
            if p.name not in results:
                p.tags.add(ProxyTag.RECOMPUTE_IN_BACKWARD)
    return in_place_of(call, parts)
