"""The joint trace: a program, and behind it the gradients of its inputs.

    def computation(x, w):              def joint(x, w, t2):
        y = ltorch.sin(x)                   y = ltorch.sin(x)
        t0 = ltorch.mul(y, w)      →        t0 = ltorch.mul(y, w)
        return t0                           t3 = ltorch.mul(t2, w)
                                            t4 = ltorch.mul(t2, y)
                                            t5 = ltorch.cos(x)
                                            t6 = ltorch.mul(t3, t5)
                                            return (t0,), (t6, t4)

Reverse mode over straight-line code: each call leaves a :class:`Step` that turns gradients of its results
into gradients of its arguments; the steps run in reverse order (Griewank and Walther, Evaluating
Derivatives, 2nd ed., 3.2). A step is recorded with ``get_grad`` and ``put_grad`` for the gradients that it
takes and gives, so the same steps serve every choice of results that have a cotangent.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from thunder.autograd.rule_lookup import Decompose, claimer_of, gradient_of, missing_gradient
from thunder.base.errors import PluginError
from thunder.base.extension_origin import module_of, origin_of
from thunder.base.langctx import TORCH, using_language
from thunder.base.pytree import tree_flatten, tree_unflatten
from thunder.base.structural_ids import COMMENT, RELEASES, RETURN
from thunder.executor_base.executor import Executor
from thunder.ir.effects import has_effect
from thunder.ir.gradient_declarations import Formulas, JointRule, NoGradient, Vjp
from thunder.ir.proxies import ProxyTag, TensorProxy, Variable, is_proxy
from thunder.ir.substitution import follow_replacements, rename_results, substitute
from thunder.ir.symbol import BoundSymbol, BoundSymbolTag
from thunder.ir.trace import TraceCtx, TraceProvenance, from_trace, get_tracectx, tracectx
from thunder.ops import prims
from thunder.ops.gradient_rules import VjpFunction, put_gradients, vjp_function
from thunder.ops.prims.gradient import get_grad_or_none
from thunder.passes.placement import location_of
from thunder.torch.namespace import ltorch

__all__ = ["Step", "Tape", "differentiable_outputs", "differentiate", "joint_trace", "recording"]

GET_GRAD, PUT_GRAD = prims.get_grad.id, prims.put_grad.id
#: what reads a gradient
_GETTERS = frozenset({GET_GRAD, get_grad_or_none.id})


@contextmanager
def recording(trace: TraceCtx) -> Iterator[list[BoundSymbol]]:
    """Within the context symbols record into the list that it gives, under the names of ``trace``, with
    gradients on.
    """
    scope: list[BoundSymbol] = []
    with tracectx(trace), using_language(TORCH), torch.enable_grad():
        trace.push_scope(scope)
        try:
            yield scope
        finally:
            trace.pop_scope()


@dataclass(frozen=True)
class Step:
    """What one call does in the backward: bound symbols with ``get_grad`` of results and ``put_grad`` of
    arguments.

    ``unasked`` are the names of results on which the program's result does not depend, so that their
    gradients are not asked for. They may be saved all the same, and have a cotangent in a second derivative;
    then ``complete`` records the step that asks for them too, and may give gradients to all ``arguments``.
    """

    bsyms: Sequence[BoundSymbol]
    unasked: frozenset[str] = frozenset()
    complete: Callable[[], Sequence[BoundSymbol]] | None = None
    arguments: tuple[TensorProxy, ...] = ()

    @property
    def takes(self) -> Iterator[str]:
        """The names of the values whose gradients the step reads."""
        return (b.args[0].name for b in self.bsyms if b.sym.id in _GETTERS)

    @property
    def gives(self) -> Iterator[TensorProxy]:
        """The values to whose gradients the step adds."""
        yield from (b.args[0] for b in self.bsyms if b.sym.id == PUT_GRAD)
        yield from self.arguments


@dataclass(frozen=True)
class Tape:
    """A differentiated program: its forward, and one step for each call that gradients pass, in order.

    ``values`` are the names of values into which gradients flow back: the program's own.
    """

    trace: TraceCtx
    forward: Sequence[BoundSymbol]
    steps: Sequence[Step]
    values: frozenset[str]

    def backward(
        self,
        trace: TraceCtx,
        cotangents: Mapping[str, TensorProxy],
        inputs: Iterable[Any],
        steps: Sequence[Step] | None = None,
    ) -> tuple[list[BoundSymbol], tuple[TensorProxy | None, ...]]:
        """The calls that compute the gradients of ``inputs`` from the cotangents of values, by name; of some
        of the ``steps`` only, if they are given.

        New values get names of ``trace``. The gradient of an input on which none of those values depends is
        None.
        """
        recorder = _Backward(cotangents)
        with recording(trace) as bsyms:
            for step in reversed(self.steps if steps is None else steps):
                recorder.run(step)
        return bsyms, tuple(
            recorder.grads.get(i.name) if isinstance(i, TensorProxy) and i.requires_grad else None
            for i in inputs
        )


class _Backward:
    """Runs steps: replaces ``get_grad`` by what was put so far, and ``put_grad`` by an addition."""

    def __init__(self, cotangents: Mapping[str, TensorProxy]) -> None:
        self.grads: dict[str, TensorProxy] = dict(cotangents)
        self.values: dict[Variable, TensorProxy | None] = {}

    def run(self, step: Step) -> None:
        """Records the calls of one step, unless no gradient reaches it."""
        bsyms = step.bsyms
        if step.complete is not None and not step.unasked.isdisjoint(self.grads):
            bsyms = step.complete()
        elif not any(name in self.grads for name in step.takes):
            return
        trace = get_tracectx()
        assert trace is not None, "steps run where something records"
        for bsym in bsyms:
            bsym = follow_replacements(bsym, self.values)
            if bsym.sym.id == GET_GRAD:
                self.values[Variable(bsym.output)] = self._gradient(bsym.args[0])
            elif bsym.sym.id == get_grad_or_none.id:
                self.values[Variable(bsym.output)] = self.grads.get(bsym.args[0].name)
            elif bsym.sym.id == PUT_GRAD:
                self._put(*bsym.args)
            else:
                trace.record(bsym)

    def _gradient(self, value: TensorProxy) -> TensorProxy:
        known = self.grads.get(value.name)
        if known is not None:
            return known
        # made of the shape alone, so that nothing is kept for it
        return prims.full(value.shape, 0.0, device=value.device, dtype=value.dtype)  # type: ignore[no-any-return]

    def _put(self, value: TensorProxy, grad: TensorProxy) -> None:
        known = self.grads.get(value.name)
        self.grads[value.name] = grad if known is None else ltorch.add(known, grad)


# -- the tape ------------------------------------------------------------------------------------------------


def differentiate(trace: TraceCtx, executors: Sequence[Executor] = (), *, keep_calls: bool = False) -> Tape:
    """The tape of a functional trace, for the gradients of its results with respect to its inputs.

    ``executors`` are asked for rules of their own. A call that no gradient passes stays as it is. With
    ``keep_calls`` so does one that is differentiated by its parts and that an executor runs whole: its parts,
    rounded each, would give other numbers. Raises MissingGradient for a primitive without a rule that a
    gradient passes.
    """
    writer = _Writer(from_trace(trace), executors, keep_calls)
    body = [b for b in trace.bound_symbols if b.sym.id not in RELEASES and b.sym.id != COMMENT]
    results = {p.name for p in differentiable_outputs(trace)}
    results.update(b.args[0].name for b in body if b.sym is prims.copy_)
    writer.write_all(body, results)
    return Tape(writer.trace, writer.forward, writer.steps, frozenset(trace.names - writer.ignored))


def differentiable_outputs(trace: TraceCtx) -> tuple[TensorProxy, ...]:
    """The results of a program that require grad and are no inputs, each once."""
    inputs = {a.name for a in trace.args if is_proxy(a)}
    found = {
        p.name: p
        for p in trace.bound_symbols[-1].flat_proxy_args
        if isinstance(p, TensorProxy) and p.requires_grad and p.name not in inputs
    }
    return tuple(found.values())


def _passed(bsyms: Sequence[BoundSymbol], results: set[str]) -> list[bool]:
    """For each call, whether a gradient of the results passes it: backwards, from results to arguments."""
    reached, passed = set(results), []
    for bsym in reversed(bsyms):
        passes = any(
            p.name in reached for p in bsym.flat_proxy_outs if isinstance(p, TensorProxy) and p.requires_grad
        )
        passed.append(passes)
        if passes:
            reached.update(
                p.name for p in bsym.flat_proxy_args if isinstance(p, TensorProxy) and p.requires_grad
            )
    passed.reverse()
    return passed


class _Writer:
    """Writes the forward and the steps of a tape, call by call."""

    def __init__(self, trace: TraceCtx, executors: Sequence[Executor], keep_calls: bool) -> None:
        self.trace, self.executors, self.keep_calls = trace, executors, keep_calls
        self.forward: list[BoundSymbol] = []
        self.steps: list[Step] = []
        #: results for which a rule returned another value: an input, a constant
        self.replaced: dict[Variable, Any] = {}
        #: results whose gradient a rule does not ask for
        self.ignored: set[str] = set()

    def write_all(self, bsyms: Sequence[BoundSymbol], results: set[str]) -> None:
        """Writes each call; of those that a gradient of the results passes, the step too."""
        passed = _passed(bsyms, results)
        reached = set(results).union(
            p.name for b, passes in zip(bsyms, passed, strict=True) if passes for p in b.flat_proxy_args
        )
        for bsym, passes in zip(bsyms, passed, strict=True):
            bsym = follow_replacements(bsym, self.replaced)
            if passes and _takes_grad(bsym):
                self._differentiate(bsym, reached)
            else:
                self.forward.append(bsym)

    def _differentiate(self, bsym: BoundSymbol, reached: set[str]) -> None:
        match gradient_of(bsym, self.executors):
            case JointRule(rule):
                with _named(bsym, rule):
                    self._run_rule(rule, bsym)
            case Formulas() | Vjp() as gradient:
                gradients = vjp_function(gradient)
                with _named(bsym, gradients):
                    self._apply(gradients, bsym, reached)
            case Decompose():
                names = reached.intersection(p.name for p in bsym.flat_proxy_outs)
                if self.keep_calls and claimer_of(bsym, self.executors) is not None:
                    self._keep(bsym, names)
                else:
                    self.write_all([_as_part(s, bsym) for s in bsym.subsymbols], names)
            case NoGradient():
                self.forward.append(bsym)
            case None if bsym.sym.is_prim:
                raise missing_gradient(bsym)
            case None:  # the call returns an input
                self.forward.append(bsym)

    def _keep(self, bsym: BoundSymbol, asked: Set[str]) -> None:
        """The call stays; gradients of its results go on to the results of a second call, which is computed
        as far as the gradients of its parts need it.
        """
        self.forward.append(bsym)
        given = {p.name for p in bsym.flat_proxy_args}
        with tracectx(self.trace):
            made = [o for o in bsym.flat_proxy_outs if isinstance(o, TensorProxy) and o.name not in given]
            second = {o.name: o.replace(name=self.trace.make_name()) for o in made}
        parts = substitute(bsym, second).subsymbols
        self.write_all(
            [_as_part(s, bsym) for s in parts],
            {second[name].name if name in second else name for name in asked},
        )
        with recording(self.trace) as step:
            for o in made:
                if o.name in asked:
                    prims.put_grad(second[o.name], prims.get_grad(o))
        self._add_step(step, bsym)

    def _apply(self, gradients: VjpFunction, bsym: BoundSymbol, reached: set[str]) -> None:
        """The call stays whole; the step puts what the row's formulas give."""
        self.forward.append(bsym)
        names = {o.name for o in bsym.flat_proxy_outs if isinstance(o, TensorProxy) and o.requires_grad}
        unasked = frozenset(names - reached)

        def complete() -> Sequence[BoundSymbol]:
            trace = get_tracectx()
            assert trace is not None, "a backward is being recorded"
            return _step_of(trace, gradients, bsym, names)

        step = _step_of(self.trace, gradients, bsym, names - unasked)
        self._add_step(step, bsym, unasked, complete if unasked else None)

    def _run_rule(self, rule: Callable[..., Any], bsym: BoundSymbol) -> None:
        """The call becomes what the rule computes for its result; the rest of the rule is the step."""
        with recording(self.trace) as recorded:
            result = rule(*bsym.args, **bsym.kwargs)
        recorded = rename_results(recorded, bsym, _paired_results(bsym, result), self.replaced)
        asked = {b.args[0].name for b in recorded if b.sym.id in _GETTERS}
        self.ignored.update(p.name for p in bsym.flat_proxy_outs if p.name not in asked)
        forward, step = _split(recorded, {p.name for p in bsym.flat_proxy_outs}, self.replaced)
        self.forward += [_as_part(b, bsym) for b in forward]
        self._add_step(step, bsym)

    def _add_step(
        self,
        bsyms: Sequence[BoundSymbol],
        of: BoundSymbol,
        unasked: frozenset[str] = frozenset(),
        complete: Callable[[], Sequence[BoundSymbol]] | None = None,
    ) -> None:
        if complete is not None or any(b.sym.id == PUT_GRAD for b in bsyms):
            arguments = [p for p in of.flat_proxy_args if isinstance(p, TensorProxy) and p.requires_grad]
            step = Step(
                [_located(b, of) for b in bsyms], unasked, complete, tuple(arguments if complete else ())
            )
            self.steps.append(step)


def _step_of(
    trace: TraceCtx, gradients: VjpFunction, bsym: BoundSymbol, asked: Set[str]
) -> list[BoundSymbol]:
    """What a row's formulas record for a call, of whose results these have a gradient."""
    out = bsym.output
    with recording(trace) as step:
        if isinstance(out, TensorProxy):
            g: Any = prims.get_grad(out)
        else:
            g = tuple(
                prims.get_grad(o) if isinstance(o, TensorProxy) and o.name in asked else None for o in out
            )
        put_gradients(gradients, bsym.sym, bsym.args, bsym.kwargs, out, g)
    return step


def _as_part(part: BoundSymbol, of: BoundSymbol) -> BoundSymbol:
    """A call that stands where another stood: with its line, its header, and its tags."""
    if BoundSymbolTag.RECOMPUTE_IN_BACKWARD in of.tags:
        results = {p.name for p in of.flat_proxy_outs}
        for p in part.flat_proxy_outs:
            if p.name not in results:
                p.tags.add(ProxyTag.RECOMPUTE_IN_BACKWARD)
    return part.from_bsym(source=part.source or of.source, header=part.header or of.header, tags=of.own_tags)


def _located(bsym: BoundSymbol, of: BoundSymbol) -> BoundSymbol:
    bsym.source = of.source
    return bsym


def _takes_grad(bsym: BoundSymbol) -> bool:
    return any(isinstance(p, TensorProxy) and p.requires_grad for p in bsym.flat_proxy_args)


def _split(
    recorded: Sequence[BoundSymbol], results: set[str], replaced: Mapping[Variable, Any]
) -> tuple[list[BoundSymbol], list[BoundSymbol]]:
    """What a rule recorded: what computes its result (or has an effect), and what the backward needs."""
    late: set[str] = set()
    early = []
    for bsym in recorded:
        if (
            bsym.sym.id in _GETTERS
            or bsym.sym.id == PUT_GRAD
            or any(p.name in late for p in bsym.flat_proxy_args)
        ):
            late.update(p.name for p in bsym.flat_proxy_outs)
            early.append(False)
        else:
            early.append(True)
    needed = set(results) | {v.name for v in replaced.values() if is_proxy(v)}
    forward: set[BoundSymbol] = set()
    for bsym, is_early in zip(reversed(recorded), reversed(early), strict=True):
        if is_early and (has_effect(bsym) or any(p.name in needed for p in bsym.flat_proxy_outs)):
            forward.add(bsym)
            needed.update(p.name for p in bsym.flat_proxy_args)
    return [b for b in recorded if b in forward], [b for b in recorded if b not in forward]


@contextmanager
def _named(bsym: BoundSymbol, rule: Callable[..., Any]) -> Iterator[None]:
    """Errors of a gradient rule name the operator, and the line of the forward (A18)."""
    try:
        yield
    except PluginError as error:
        raise _told_of_rule(error, bsym, rule) from error.__cause__
    except Exception as error:
        if not _is_rule_of_symbol(bsym, rule) and not module_of(rule).startswith("thunder."):
            fault = PluginError(
                f"a gradient rule raised {type(error).__name__}: {error}",
                found={"call": bsym.line},
                hint="A rule has the operator's signature. It computes and returns the result, takes "
                "gradients with get_grad, and gives them with put_grad.",
            )
            raise _told_of_rule(fault, bsym, rule) from error
        at = f", called at {bsym.source.file}:{bsym.source.line}" if bsym.source is not None else ""
        error.add_note(f"in the gradient rule of {bsym.sym.id}{at}")
        raise


def _paired_results(bsym: BoundSymbol, result: Any) -> list[tuple[Any, Any]]:
    """Return each proxy among the outputs of a call with what a gradient rule returned for it."""
    old, old_spec = tree_flatten(bsym.output)
    new, new_spec = tree_flatten(result)
    if len(old) != len(new) or any(is_proxy(a) != is_proxy(b) for a, b in zip(old, new, strict=True)):
        raise PluginError(
            "a gradient rule returned something else than its operator gives",
            found={"operator": _described(old, old_spec), "rule returned": _described(new, new_spec)},
            hint="A rule computes and returns the result, and moves gradients on the way.",
        )
    return [(a, b) for a, b in zip(old, new, strict=True) if is_proxy(a)]


def _is_rule_of_symbol(bsym: BoundSymbol, rule: Callable[..., Any]) -> bool:
    gradient = bsym.sym.gradient
    return isinstance(gradient, JointRule) and gradient.fn == rule


def _told_of_rule(error: PluginError, bsym: BoundSymbol, rule: Callable[..., Any]) -> PluginError:
    """An error of a rule that a plugin gives, with its name and the line of the forward."""
    name = f"{getattr(rule, '__qualname__', rule)}, of {bsym.sym.id}"
    error.found = {**(error.found if isinstance(error.found, dict) else {}), "rule": name}
    where = location_of(bsym)
    return error.of(origin_of(rule)).at([where] if where is not None else [])


def _described(leaves: Sequence[Any], spec: Any) -> str:
    return str(tree_unflatten([x.type_string() if is_proxy(x) else x for x in leaves], spec))


# -- the joint trace -----------------------------------------------------------------------------------------


def joint_trace(tape: Tape, outputs: Sequence[TensorProxy]) -> TraceCtx:
    """The trace ``(inputs, cotangents of outputs) → (what the program returns, gradients of inputs)``."""
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
