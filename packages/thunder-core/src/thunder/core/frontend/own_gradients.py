"""Calls whose gradient the program itself defines: ``torch.autograd.Function``, and custom operators.

Note [Own gradients]
Forward and backward are interpreted at once, one after the other, so that everything that either reads is
guarded. The call becomes one composite; its decomposition is the forward, and its gradient rule both:

    class Cube(Function):                             def rule(x, c):              # c: captured
        def forward(ctx, x):                              with torch.no_grad():
            ctx.save_for_backward(x)                          y = x * x * c
            return x * x * c        # a closure's         g = get_grad(y)
        def backward(ctx, g):                             put_grad(x, g * (x + x) * c)
            x, = ctx.saved_tensors                        return y
            return g * 2 * x * c

    y = Cube.apply(x)                          →      y = Cube(x, c)

As in eager the forward is no part of what is differentiated: of its values only the results carry gradients.
What either of the two reads without being given it becomes an argument of the composite. Both are programs
of their own by then (:func:`~thunder.core.frontend.recordings.procedure`), functional ones. What the forward
writes to a buffer is a further result, written behind the composite; any other write to memory that the two
were given is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from thunder.core import prims
from thunder.core.autocast import KINDS
from thunder.core.errors import ThunderError, UnsupportedProgram
from thunder.core.frontend import ambient
from thunder.core.frontend.delayed_errors import raise_error
from thunder.core.frontend.function_context import FunctionContext
from thunder.core.frontend.own_rules import OwnRule, requires_grad
from thunder.core.frontend.recordings import (
    procedure,
    read_and_made,
    recorded,
    returning,
    without_grad_modes,
    writes,
)
from thunder.core.proxies import TensorProxy, Variable
from thunder.core.symbol import BoundSymbol, has_tags
from thunder.core.tags import OpTags
from thunder.core.trace import TraceCtx
from thunder.core.tracectx import get_tracectx
from thunder.torch.namespace import ltorch

if TYPE_CHECKING:
    from thunder.core.frontend.tracer import Tracer


@dataclass(frozen=True, kw_only=True, eq=False)
class OwnGradient:
    """A call that is about to be traced.

    ``key`` is the same for all calls of one function. ``inputs`` are the arguments, each of which gets a
    gradient or None. ``forward`` interprets the forward and gives the results; ``backward`` interprets the
    backward on one cotangent a result, and gives what the program returns.
    """

    name: str
    id: str
    key: Any
    inputs: Sequence[Any]
    context: FunctionContext
    forward: Callable[[], tuple[Any, ...]]
    backward: Callable[[Sequence[Any]], Any]


def call_with_own_gradient(tracer: Tracer, fn: OwnGradient) -> tuple[Any, ...]:
    """Traces the call and returns its results. Where no gradient is needed, the forward alone counts."""
    needed = torch.is_grad_enabled() and any(map(requires_grad, fn.inputs))
    calls, results = _forward(tracer, fn, needed)
    if any(map(requires_grad, results)):
        return _differentiated(tracer, fn, calls, results)
    for bsym in calls:
        tracer.trace.record(bsym)
    return results


def _forward(tracer: Tracer, fn: OwnGradient, needed: bool) -> tuple[list[BoundSymbol], tuple[Any, ...]]:
    """The calls of the forward, and its results as the caller sees them."""
    with torch.set_grad_enabled(False):
        with recorded(tracer.trace) as calls:
            results = fn.forward()
        made = set(read_and_made(calls)[1])
        with recorded(tracer.trace) as copies:
            seen = []
            for result in results:
                seen.append(_result(fn, result, needed, made))
                made.discard(getattr(result, "name", ""))  # where it comes again, it is another view
    return without_grad_modes([*calls, *copies]), tuple(seen)


def _result(fn: OwnGradient, result: Any, needed: bool, own: set[str]) -> Any:
    """A result as the caller sees it: of a tensor that is not the forward's ``own``, another view of it, as
    in eager.
    """
    if not isinstance(result, TensorProxy):
        return result
    excepted = any(result is t for t in fn.context.non_differentiable)
    differentiable = needed and result.dtype.is_inexact and not excepted
    made = result.name in own
    if differentiable and not made:
        result = prims.shallow_copy(result)
    elif result.requires_grad and not made:
        return prims.detach(result)
    if made or differentiable:
        result.requires_grad = differentiable
    return result


#: how deep a function may call itself in its own backward and have a rule: a backward like that of ``exp``
#: has no end
_DEEPEST = 2


def _differentiated(
    tracer: Tracer, fn: OwnGradient, calls: list[BoundSymbol], results: tuple[Any, ...]
) -> tuple[Any, ...]:
    """Records the call as a composite with a gradient rule of its own."""
    cotangents = {r.name: _cotangent_of(r) for r in results if requires_grad(r)}
    back: list[BoundSymbol] = []
    gradients: tuple[Any, ...] | None = None
    if tracer.backwards.count(fn.key) < _DEEPEST:
        with _as_in_backward(tracer, fn), recorded(tracer.trace) as back:
            gradients = _gradients(tracer, fn, results, cotangents)
        back = without_grad_modes(back)
        _refuse_draws(fn, back)
    read, made = read_and_made(calls, results)
    read_back, made_back = read_and_made(back, gradients)
    residuals = tuple(p for name, p in read_back.items() if name in made)
    own = made.keys() | {c.name for c in cotangents.values()}
    given = (*(i for i in fn.inputs if isinstance(i, TensorProxy)), *read.values(), *read_back.values())
    tensors = {p.name: p for p in given if p.name not in own}
    with torch.no_grad():
        forward = procedure(fn.name, tuple(tensors.values()), calls, (results, residuals))
    backward = procedure(fn.name, (*tensors.values(), *residuals, *cotangents.values()), back, gradients)
    forward, written = _without_writes(fn, forward, backward, tuple(tensors.values()))
    rule = OwnRule(
        fn.name,
        fn.id,
        forward=forward,
        backward=None if gradients is None else backward,
        differentiable=tuple(map(requires_grad, results)),
        written=written,
        targets=tuple(list(tensors).index(i.name) for i in fn.inputs if requires_grad(i)),
    )
    _hide(tracer, fn, results, (*made.values(), *made_back.values(), *cotangents.values()))
    _record(tracer.trace, rule, tuple(tensors.values()), results)
    return results


def _refuse_draws(fn: OwnGradient, backward: list[BoundSymbol]) -> None:
    """The backward stands with its forward in the trace, where eager draws its numbers when it runs."""
    if any(has_tags(bsym, {OpTags.RANDOM_OP}) for bsym in backward):
        raise UnsupportedProgram(
            f"the backward of {fn.name} draws random numbers",
            hint="Draw them in the forward, and hand them on with ctx.save_for_backward.",
        )


def _without_writes(
    fn: OwnGradient, forward: TraceCtx, backward: TraceCtx, tensors: tuple[Any, ...]
) -> tuple[TraceCtx, tuple[int, ...]]:
    """The forward with what it writes to buffers as further results, and the indices of those buffers.

    Raises UnsupportedProgram for any other write to a tensor that is not the function's own.
    """
    written, rest = writes(forward)
    refused = [("forward", tensors[i]) for i in written if tensors[i].requires_grad]
    refused += [("backward", backward.args[i]) for i in writes(backward)[0]]
    for part, tensor in refused:
        raise UnsupportedProgram(
            f"the {part} of {fn.name} writes in place to a tensor that it did not make",
            found={"tensor": f'"{tensor.type_string()}"'},
            hint="Use the out-of-place operator, or write to a clone.",
        )
    results, residuals = rest.output
    return returning(rest, ((*results, *written.values()), residuals)), tuple(written)


def _hide(tracer: Tracer, fn: OwnGradient, results: tuple[Any, ...], made: Iterable[Any]) -> None:
    """Notes the values that nobody outside may use."""
    for p in made:
        if not any(p is r for r in results):
            tracer.hidden[id(p)] = (p, fn.name)


def _record(trace: TraceCtx, rule: OwnRule, tensors: tuple[Any, ...], results: tuple[Any, ...]) -> None:
    """Records the composite, with the values that the program has in hand already as its results, and behind
    it the writes to buffers.
    """
    made = rule.whole(*tensors)
    scope = trace.peek_scope()
    pairs = zip(made, results, strict=False)  # what is written comes behind the results
    swap = {Variable(new): old for new, old in pairs if isinstance(old, TensorProxy)}
    scope[-1] = scope[-1].from_bsym_swap_proxies(swap)
    for index, value in zip(rule.written, made[len(results) :], strict=True):
        prims.copy_(value, tensors[index], grad_enabled=False)


# -- the backward --------------------------------------------------------------------------------------------


@contextmanager
def _as_in_backward(tracer: Tracer, fn: OwnGradient) -> Iterator[None]:
    """The ambient state of a backward that can itself be differentiated: gradients on, autocast off."""
    with ambient.restored():
        torch._C._set_grad_enabled(True)
        for device in KINDS:
            torch.set_autocast_enabled(device, False)
        tracer.backwards.append(fn.key)
        trace = get_tracectx()
        assert trace is not None, "a backward is recorded into a trace"
        outside, trace.in_backward = trace.in_backward, True
        try:
            yield
        finally:
            trace.in_backward = outside
            tracer.backwards.pop()


def _gradients(
    tracer: Tracer, fn: OwnGradient, results: tuple[Any, ...], cotangents: dict[str, TensorProxy]
) -> tuple[Any, ...]:
    """The gradients of the inputs that require grad, in order; None of those that have none."""
    before = _writes(tracer)
    given = [_cotangent(fn, r, cotangents) for r in results]
    wanted = [i for i in fn.inputs if requires_grad(i)]
    try:
        gradients = _checked(fn, fn.backward(given))
    except tracer.uncatchable:
        raise
    except Exception as error:  # the program's: eager raises it too, but only if the backward runs
        kind, arguments = _as_raised(error)
        after = next(iter(cotangents.values()))
        gradients = tuple(raise_error(i, after, kind, arguments) for i in wanted)
    if _writes(tracer) != before:
        raise UnsupportedProgram(
            f"the backward of {fn.name} writes to an object that outlives it",
            hint="Return the value as a gradient, or keep it in ctx.",
        )
    return gradients


def _cotangent_of(result: TensorProxy) -> TensorProxy:
    cotangent = TensorProxy(like=result)
    cotangent.__dict__["is_leaf"] = False
    return cotangent


def _cotangent(fn: OwnGradient, result: Any, cotangents: dict[str, TensorProxy]) -> Any:
    if not isinstance(result, TensorProxy):
        return None
    if result.name in cotangents:
        return cotangents[result.name]
    return ltorch.zeros_like(result) if fn.context.materialize_grads else None


def _as_raised(error: Exception) -> tuple[type[Exception], tuple[Any, ...]]:
    """An exception as its type and plain arguments, so that it holds nothing of this trace."""
    if isinstance(error, ThunderError):
        return RuntimeError, (str(error),)
    return type(error), tuple(a if isinstance(a, str | int | float) else str(a) for a in error.args)


def _checked(fn: OwnGradient, given: Any) -> tuple[Any, ...]:
    """The gradients that are wanted, of what the backward returned. Raises torch's errors for what torch
    refuses.
    """
    gradients = given if isinstance(given, tuple) else (given,)
    count = len(fn.inputs)
    if len(gradients) < count or any(g is not None for g in gradients[count:]):
        raise RuntimeError(
            f"function {fn.name}Backward returned an incorrect number of gradients "
            f"(expected {count}, got {len(gradients)})"
        )
    for i, (value, gradient) in enumerate(zip(fn.inputs, gradients, strict=False)):
        _check(fn, i, value, gradient)
    return tuple(g for i, g in zip(fn.inputs, gradients, strict=False) if requires_grad(i))


def _check(fn: OwnGradient, index: int, value: Any, gradient: Any) -> None:
    if gradient is None:
        return
    if not isinstance(value, TensorProxy):
        raise RuntimeError(
            f"function {fn.name}Backward returned a gradient different than None at position {index + 1}, "
            "but the corresponding forward input was not a Variable"
        )
    if not isinstance(gradient, TensorProxy):
        raise RuntimeError(f"expected Variable or None (got {type(gradient).__name__})")
    leading = gradient.ndim - value.ndim
    stretched = leading >= 0 and all(
        a in (1, b) for a, b in zip(value.shape, gradient.shape[leading:], strict=True)
    )
    if value.requires_grad and not stretched:
        raise RuntimeError(
            f"Function {fn.name}Backward returned an invalid gradient at index {index} - got "
            f"{list(gradient.shape)} but expected shape compatible with {list(value.shape)}"
        )


def _writes(tracer: Tracer) -> Any:
    """What the program has written so far of objects that outlive it, to be compared."""
    tracker = tracer.tracker
    records = {
        (id(r), name): id(value) for r in tracker.written_records() for name, value in r.writes.items()
    }
    shadows = {
        id(s): [*map(id, s.copy), *(map(id, s.copy.values()) if isinstance(s.copy, dict) else ())]
        for s in tracker.written_shadows()
    }
    variables = {key: id(value) for key, (_, value) in tracer.global_writes.items()}
    cells = {key: id(value) for key, (_, value) in tracer.cell_writes.items()}
    return records, shadows, variables, cells
