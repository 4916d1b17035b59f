"""Calls whose gradient the program defines: functions of autograd, and custom operators.

Note [Custom gradients]
Forward and backward are interpreted at once, one after the other. What the forward reads is guarded; a
backward that reads more than the forward saved for it is not traced, but called as it is when it runs
(:mod:`~thunder.frontend.custom_gradients.backward_policy`). The call becomes one composite; its decomposition
is the forward, and its gradient rule both:

    class Cube(Function):                             def rule(x, c):              # c: captured
        def forward(ctx, x):                              with torch.no_grad():
            ctx.save_for_backward(x, c)                       y = x * x * c
            return x * x * c        # a closure's         g = get_grad(y)
        def backward(ctx, g):                             put_grad(x, g * (x + x) * c)
            x, c = ctx.saved_tensors                      return y
            return g * 2 * x * c

    y = Cube.apply(x)                          →      y = Cube(x, c)

As in eager, the forward itself is not differentiated: of its values only the results carry gradients. Values
that either of the two captures become arguments of the composite. Both are then functional programs
(:func:`~thunder.frontend.epilogue.subtrace.make_subtrace`). What the forward writes to an argument is
another result, written after the composite, and so is, without a gradient, a tensor that it keeps in an
object. A write of the backward to memory from outside is refused.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from thunder.base.autocast_state import AUTOCAST_DEVICES
from thunder.base.errors import ThunderError, UnsupportedProgram
from thunder.base.pytree import tree_map
from thunder.base.tags import OpTags
from thunder.frontend import ambient_state
from thunder.frontend.checkpoints.region_effects import note_one_call
from thunder.frontend.custom_gradients.backward_state import BackwardState
from thunder.frontend.custom_gradients.custom_results import Results
from thunder.frontend.custom_gradients.custom_rule import CustomRule
from thunder.frontend.custom_gradients.eager_backward import EagerBackward, begin_backward, run_backward
from thunder.frontend.custom_gradients.function_context import FunctionContext, NodeOfGraph
from thunder.frontend.custom_gradients.gradient_checks import Argument, checked
from thunder.frontend.custom_gradients.rebuilding import Rebuilding
from thunder.frontend.epilogue.subtrace import (
    make_subtrace,
    recorded,
    returning,
    uses_and_definitions,
    without_grad_modes,
    writes,
)
from thunder.frontend.epilogue.value_parts import proxies_of
from thunder.frontend.places import Place, ReadsState
from thunder.frontend.session import TracingSession
from thunder.frontend.torch_functions.override_state import TorchFunctions
from thunder.frontend.traced_replacements import ReplacedCalls
from thunder.ir.proxies import TensorProxy
from thunder.ir.proxy_leaves import proxies_in
from thunder.ir.recorder import PLAIN
from thunder.ir.requires_grad import requires_grad
from thunder.ir.substitution import substitute
from thunder.ir.symbol import BoundSymbol, has_tags
from thunder.ir.trace import TraceCtx
from thunder.ir.trace_context import get_tracectx
from thunder.ops import prims
from thunder.ops.gradient_rules import fitted
from thunder.torch.fallback.unknown_functions import may_fall_back
from thunder.torch.namespace import ltorch


def _as_it_is(fn: Callable[..., Any]) -> Callable[..., Any]:
    return fn


@dataclass(frozen=True, kw_only=True, eq=False)
class CustomGradient:
    """A call that is about to be traced.

    ``key`` is the same for all calls of one function. ``inputs`` are the arguments; each receives a gradient
    or None. ``forward`` interprets the forward and returns the results; ``backward`` interprets the backward
    on one cotangent per result, and returns what the program returns. ``function`` returns the user's
    backward itself, which ``adapt`` turns into a function of ``ctx`` and those cotangents. A backward that
    ``passes_gradients`` on, and does nothing else, may be traced where it receives None.
    """

    name: str
    id: str
    key: Any
    inputs: Sequence[Any]
    context: FunctionContext
    forward: Callable[[], tuple[Any, ...]]
    backward: Callable[[Sequence[Any]], Any]
    function: Callable[[], Any]
    adapt: Callable[[Callable[..., Any]], Callable[..., Any]] = _as_it_is
    tags: frozenset[OpTags] = frozenset()
    passes_gradients: bool = False


def call_with_custom_gradient(session: TracingSession, fn: CustomGradient) -> tuple[Any, ...]:
    """Trace the call and return its results.

    Without gradients, only the forward is traced.
    """
    needed = torch.is_grad_enabled() and any(map(requires_grad, fn.inputs))
    start = len(session.trace.peek_scope())
    calls, results = _forward(session, fn, needed)
    if any(map(requires_grad, results.values)):
        note_one_call(session, start)
        with session.state(TorchFunctions).without_modes():
            _differentiated(session, fn, calls, results)
    else:
        for bsym in calls:
            session.trace.record(bsym)
    return results.returned()


def _forward(session: TracingSession, fn: CustomGradient, needed: bool) -> tuple[list[BoundSymbol], Results]:
    """Return the calls of the forward, and its results."""
    with torch.set_grad_enabled(False):
        with session.place.entered(Place.FORWARD, fn), recorded(session.trace) as calls:
            returned = fn.forward()
        defined = set(uses_and_definitions(calls)[1])
        with recorded(session.trace) as copies, session.state(TorchFunctions).recording():
            results = Results(fn.context, fn.inputs, returned, needed, defined)
    return without_grad_modes([*calls, *copies]), results


#: how deep a function may call itself in its own backward and have a rule: a backward such as that of ``exp``
#: has no end
_DEEPEST = 2


def _differentiated(
    session: TracingSession, fn: CustomGradient, calls: list[BoundSymbol], returned: Results
) -> None:
    """Record the call as a composite with a gradient rule."""
    results = (*returned.unique, *_kept(session, fn, calls, returned.unique))
    cotangents = {r.name: _cotangent_of(r) for r in results if requires_grad(r)}
    back: list[BoundSymbol] = []
    gradients: tuple[Any, ...] | None = None
    begin: list[BoundSymbol] = []
    if sum(outer.key == fn.key for outer in session.place.parts(Place.BACKWARD)) < _DEEPEST:
        with recorded(session.trace) as forward_calls:
            session.trace.peek_scope().extend(calls)  # what the backward asks of their numbers follows them
            try:
                with _backward_environment(session, fn), recorded(session.trace) as back:
                    gradients = _gradients(session, fn, returned, cotangents)
                back = without_grad_modes(back)
                _refuse_draws(fn, back)
            except UnsupportedProgram as error:
                if not _may_run_later(session, error):
                    raise
                begin, back, gradients = _as_it_runs(session, fn, returned, cotangents)
        calls = [*forward_calls, *begin]
    uses, definitions = uses_and_definitions(calls, results)
    uses_back, definitions_back = uses_and_definitions(back, gradients)
    residuals = tuple(p for name, p in uses_back.items() if name in definitions)
    own = definitions.keys() | {c.name for c in cotangents.values()}
    arguments = (*(i for i in fn.inputs if isinstance(i, TensorProxy)), *uses.values(), *uses_back.values())
    tensors = {p.name: p for p in arguments if p.name not in own}
    with torch.no_grad():
        forward = make_subtrace(fn.name, tuple(tensors.values()), calls, (results, residuals))
    backward = make_subtrace(fn.name, (*tensors.values(), *residuals, *cotangents.values()), back, gradients)
    forward, written = _without_writes(fn, forward, backward)
    returned.set_written(fn.name, calls, results, {list(tensors)[i] for i in written})
    _note_attributes(session, fn, uses_back.values(), results)
    rule = CustomRule(
        fn.name,
        fn.id,
        forward=forward,
        backward=None if gradients is None else backward,
        differentiable=tuple(map(requires_grad, results)),
        written=written,
        dirty={i: k for i in written if (k := returned.index_of_dirty(list(tensors)[i])) is not None},
        targets=tuple(list(tensors).index(i.name) for i in fn.inputs if requires_grad(i)),
        with_none=returned.with_none,
        saves=any(t is not None for t in fn.context.to_save),
        runs_later=bool(begin),
        follows=_followed(returned, list(tensors)) if OpTags.HOOKED_ARGUMENTS in fn.tags else {},
        tags=fn.tags,
    )
    _mark_private(
        session, fn, results, (*definitions.values(), *definitions_back.values(), *cotangents.values())
    )
    _record(session.trace, rule, tuple(tensors.values()), results, returned)


def _followed(returned: Results, names: Sequence[str]) -> dict[int, int]:
    """Return the index, among ``names``, of the argument that a result is, by that of the result."""
    argument = {i: returned.views.get(result.name) for i, result in enumerate(returned.unique)}
    return {i: names.index(x.name) for i, x in argument.items() if x is not None}


def _kept(
    session: TracingSession, fn: CustomGradient, calls: Sequence[BoundSymbol], results: Sequence[Any]
) -> Iterator[TensorProxy]:
    """Yield the tensors that the forward computed and keeps elsewhere than in ``ctx``.

    It writes them to an object that outlives the program, or to a container among its arguments. They are
    further results, without gradients.
    """
    computed = uses_and_definitions(calls)[1].keys() - {r.name for r in proxies_in(results)}
    for value in proxies_of(session, [*session.writes.values(), *fn.inputs]):
        if isinstance(value, TensorProxy) and value.name in computed:
            computed -= {value.name}
            yield value


def _may_run_later(session: TracingSession, error: UnsupportedProgram) -> bool:
    """Return whether a backward that has no trace can be called as it is."""
    if isinstance(error, ReadsState):
        return True
    return not isinstance(error, NodeOfGraph) and may_fall_back(session.language)


def _as_it_runs(
    session: TracingSession, fn: CustomGradient, results: Results, cotangents: dict[str, TensorProxy]
) -> tuple[list[BoundSymbol], list[BoundSymbol], tuple[Any, ...]]:
    """Return the backward as a call of the function when it runs.

    These are the forward's part of it, the call, and its gradients.
    """
    rebuilding = Rebuilding(session, is_late=True)
    replacements = session.state(ReplacedCalls).table
    makers = rebuilding.makers((fn.function(), _attributes(fn.context), *fn.context.to_save))
    backward = EagerBackward(
        fn.name,
        function=makers[0],
        attributes=makers[1],
        saved=makers[2:],
        requires_grad=[t.requires_grad for t in rebuilding.tensors],
        arguments=tuple(map(Argument.of, fn.inputs)),
        adapt=replacements.applied_after(fn.adapt),
        held=rebuilding.held,
    )
    with recorded(session.trace) as begin:
        shapes = tuple(a and a.shape for a in backward.arguments)
        shared = (session.state(BackwardState).shared(),) if rebuilding.shares else ()
        call = begin_backward(backward, shapes, *shared)
    with recorded(session.trace) as back:
        arguments = tuple(results.cotangents(cotangents))
        gradients = run_backward(call, backward, tuple(rebuilding.tensors), arguments)
    read = [t.name for t in rebuilding.tensors]
    session.state(BackwardState).in_program[backward] = functools.partial(_interpreted, fn, read)
    return begin, back, gradients


def _interpreted(
    fn: CustomGradient, names: Sequence[str], tensors: Sequence[Any], cotangents: Sequence[Any]
) -> tuple[Any, ...]:
    """Return what a backward returns that the program itself runs, interpreted at this place of it.

    ``tensors`` are the values that it reads, which had ``names`` in the forward.
    """
    values, state = dict(zip(names, tensors, strict=True)), fn.context.__dict__
    inner = {k: v for k, v in state.items() if any(values.get(p.name, p) is not p for p in proxies_in(v))}

    def value(x: Any) -> Any:
        return values.get(x.name, x) if isinstance(x, TensorProxy) else x

    passed = {k: tree_map(value, v) for k, v in inner.items()}
    state.update(passed)
    try:
        gradients = checked(fn.name, tuple(map(Argument.of, fn.inputs)), fn.backward(cotangents))
    finally:
        state.update({k: v for k, v in inner.items() if state.get(k) is passed[k]})
    wanted = filter(requires_grad, fn.inputs)
    return tuple(
        ltorch.zeros_like(i) if g is None else fitted(g, i) for g, i in zip(gradients, wanted, strict=True)
    )


def _attributes(context: FunctionContext) -> dict[str, Any]:
    """Return what ``ctx`` has besides the saved tensors, and the results that it marks."""
    return {k: v for k, v in context.__dict__.items() if k not in ("to_save", "non_differentiable", "dirty")}


def _note_attributes(
    session: TracingSession, fn: CustomGradient, read: Iterable[Any], results: Sequence[Any]
) -> None:
    """Note the unsaved tensors that the backward reads, as they are when it runs."""
    saved = {t.name for t in fn.context.to_save if t is not None}
    names = {p.name for p in read} - saved
    unsaved = [p for p in proxies_in(_attributes(fn.context)) if p.name in names]
    if unsaved:
        result = next(r for r in results if requires_grad(r))
        session.state(BackwardState).unsaved_reads.append((fn.name, unsaved, result, session.locations()))


def _refuse_draws(fn: CustomGradient, backward: list[BoundSymbol]) -> None:
    """Refuse a backward that draws random numbers: it would draw them at another time."""
    if any(has_tags(bsym, {OpTags.RANDOM_OP}) for bsym in backward):
        raise ReadsState(f"the backward of {fn.name} draws random numbers")


def _without_writes(
    fn: CustomGradient,
    forward: TraceCtx,
    backward: TraceCtx,
) -> tuple[TraceCtx, tuple[int, ...]]:
    """Return the forward with its writes to arguments as results, and the indices of these arguments.

    Raises UnsupportedProgram for a write of the backward.
    """
    for index in writes(backward)[0]:
        raise UnsupportedProgram(
            f"the backward of {fn.name} writes in place to a tensor that it did not make",
            found={"tensor": f'"{backward.args[index].type_string()}"'},
            hint="Use the out-of-place operator, or write to a clone.",
        )
    written, rest = writes(forward)
    results, residuals = rest.output
    return returning(rest, ((*results, *written.values()), residuals)), tuple(written)


def _mark_private(
    session: TracingSession, fn: CustomGradient, results: tuple[Any, ...], values: Iterable[Any]
) -> None:
    """Note the values that no code outside of the function may use."""
    for p in values:
        if not any(p is r for r in results):
            session.state(BackwardState).private[id(p)] = (p, fn.name)


def _record(
    trace: TraceCtx, rule: CustomRule, tensors: tuple[Any, ...], results: tuple[Any, ...], returned: Results
) -> None:
    """Record the composite, and after it the writes to arguments.

    Its results are the values that the program has already received.
    """
    outputs = rule.whole(*tensors)
    scope = trace.peek_scope()
    pairs = zip(outputs, results, strict=False)  # the written values come after the results
    scope[-1] = substitute(scope[-1], {new.name: old for new, old in pairs if isinstance(old, TensorProxy)})
    held = {argument.name for argument in returned.views.values()} | returned.dirty.keys()
    for index, value in zip(rule.written, outputs[len(results) :], strict=True):
        if tensors[index].name not in held:  # else ``returned`` writes the result
            prims.copy_(value, tensors[index], grad_enabled=False)


# -- the backward --------------------------------------------------------------------------------------------


@contextmanager
def _backward_environment(session: TracingSession, fn: CustomGradient) -> Iterator[None]:
    """Set the ambient state of a differentiable backward: gradients on, autocast off."""
    with ambient_state.restored():
        torch._C._set_grad_enabled(True)
        for device in AUTOCAST_DEVICES:
            torch.set_autocast_enabled(device, False)
        trace = get_tracectx()
        assert trace is not None, "a backward is recorded into a trace"
        recorder = trace.recorder
        assert recorder is not PLAIN, "a backward is recorded while its program is acquired"
        outside, recorder.in_backward = recorder.in_backward, True
        try:
            with session.place.entered(Place.BACKWARD, fn):
                yield
        finally:
            recorder.in_backward = outside


def _gradients(
    session: TracingSession, fn: CustomGradient, results: Results, cotangents: dict[str, TensorProxy]
) -> tuple[Any, ...]:
    """Return the gradients of the inputs that require grad, in order; None for each without."""
    if results.with_none and not fn.passes_gradients:
        raise ReadsState(f"the backward of {fn.name} receives None for a result without gradient")
    before = session.writes.mark()
    cotangent_values = results.cotangents(cotangents)
    differentiable = [i for i in fn.inputs if requires_grad(i)]
    try:
        gradients = checked(fn.name, tuple(map(Argument.of, fn.inputs)), fn.backward(cotangent_values))
    except session.uncatchable:
        raise
    except Exception as error:  # the program's: eager raises it too, but only if the backward runs
        kind, arguments = _as_raised(error)
        after = next(iter(cotangents.values()))
        gradients = tuple(prims.raise_error(i, after, kind, arguments) for i in differentiable)
    if session.writes.mark() != before:
        raise UnsupportedProgram(
            f"the backward of {fn.name} writes to an object that outlives it",
            hint="Return the value as a gradient, or keep it in ctx.",
        )
    return gradients


def _cotangent_of(result: TensorProxy) -> TensorProxy:
    return TensorProxy(like=result, declared_leaf=False)


def _as_raised(error: Exception) -> tuple[type[Exception], tuple[Any, ...]]:
    """Return an exception as its type and plain arguments, without references to the trace."""
    if isinstance(error, ThunderError):
        return RuntimeError, (str(error),)
    return type(error), tuple(a if isinstance(a, str | int | float) else str(a) for a in error.args)
