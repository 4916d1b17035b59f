"""Hooks on the gradients of intermediate tensors: ``y.register_hook(fn)`` in the traced program.

Note [Tensor hooks]
A hook gets the whole gradient of a value, and returns None or another gradient in its place. So it is an
identity with a gradient of its own (Note [Custom gradients]) between the value and all its uses, also those
before the line that registers it:

    y = x * 2                                t1 = x * 2
    z = y.exp()                     →        y = hook(t1)             # its gradient: fn(g), or g
    y.register_hook(fn)                      z = y.exp()

A second hook gets what the first returns, so its identity is between the value and the first's. A hook that
is registered after the value was written in place (``relu_``) sees the gradient of the written value: there
the identity is a further write.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeAlias

import torch

from thunder.base.errors import UnsupportedProgram
from thunder.base.tags import OpTags
from thunder.frontend.custom_gradients.backward_reads import check_hook
from thunder.frontend.custom_gradients.custom_call import CustomGradient, call_with_custom_gradient
from thunder.frontend.custom_gradients.function_context import context_class
from thunder.frontend.custom_gradients.leaf_hooks import ON_GRADIENTS, HookHandle, LeafHooks
from thunder.frontend.custom_gradients.recorded_memory import names_of_memory, written_names
from thunder.frontend.epilogue.subtrace import recorded, uses_and_definitions
from thunder.frontend.lookasides.lookaside_registry import LookasideTable
from thunder.frontend.places import HOOKS_TENSOR, OTHER, ReadsState
from thunder.frontend.raised_errors import tensor_refusal
from thunder.frontend.session import Ending, SessionState, TracingSession
from thunder.ir.aliasing import views_of
from thunder.ir.object_names import identifier
from thunder.ir.proxies import TensorProxy
from thunder.ir.substitution import substitute
from thunder.ir.symbol import BoundSymbol
from thunder.ops import prims

TABLE = LookasideTable(HOOKS_TENSOR)
Calls = list[BoundSymbol]
#: from a hook, a function that calls it, and a gradient, to the gradient that it passes on
Convention: TypeAlias = Callable[[Any, Callable[..., Any], Any], Any]


@dataclass(eq=False)
class HookedValue:
    """The hooks of one value.

    ``hooked`` is the tensor of the program. ``below`` has, for each kind of hooks, the value below their
    identities: those on the tensor are above those before its node, and these above that of the hooks after
    it. ``last_write`` is the call that wrote it before it had hooks, after which the identities are writes.
    ``calls`` are the statements of each hook on the tensor, ``of_node`` those of each before its node, and,
    under None, of those after it.
    """

    hooked: TensorProxy
    below: list[TensorProxy]
    last_write: BoundSymbol | None = None
    calls: dict[HookHandle | None, list[BoundSymbol]] = field(default_factory=dict)
    of_node: dict[HookHandle | None, list[BoundSymbol]] = field(default_factory=dict)

    def move(self, old: TensorProxy, new: TensorProxy, kinds: int = 3) -> None:
        """Let hooks of the lowest kinds that are added on ``old`` be added on ``new``."""
        self.below[:kinds] = [new if p.name == old.name else p for p in self.below[:kinds]]


#: the kinds of hooks, from the lowest on
AFTER, BEFORE, ON_TENSOR = range(3)


class TensorHooks(SessionState):
    """The hooked values by the name of the tensor."""

    def __init__(self, session: TracingSession) -> None:
        self.values: dict[str, HookedValue] = {}

    def check(self, ending: Ending) -> None:
        """Refuse a program that writes in place to the memory of a view after it was given a hook.

        Torch's graph then has another node of the view, and which gradients pass the hook depends on the
        order.
        """
        calls = self._session.trace.bound_symbols
        for value in self.values.values():
            start = next((i for i, b in enumerate(calls) if _has_view(b, value.below[AFTER])), None)
            if start is None or not (value.calls or value.of_node):
                continue
            memory = names_of_memory(calls, {value.below[AFTER].name})
            for bsym in calls[start:]:
                if not memory.isdisjoint(written_names(bsym)):
                    error = _refusal(value.hooked, "writes in place to the memory of a view that has a hook")
                    raise error.add_locations(bsym.locations)


@TABLE.lookaside(torch.Tensor.register_hook)
def _register_hook(session: TracingSession, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    def register_hook(self: TensorProxy, hook: Any) -> HookHandle:
        return add_hook(session, self, hook)

    return register_hook(*args, **kwargs)


def add_hook(session: TracingSession, x: TensorProxy, hook: Any) -> HookHandle:
    """Do ``x.register_hook(hook)`` for a tensor that the program computes, or a leaf among its inputs.

    Raises RuntimeError, as torch does, if it does not require grad, and UnsupportedProgram for another input,
    and where the gradient of the whole value cannot be passed to the hook.
    """
    if not x.requires_grad:
        raise RuntimeError("cannot register a hook on a tensor that doesn't require gradient")
    if session.entry_of(x) is not None:
        return session.state(LeafHooks).add(session, x, ON_GRADIENTS, hook)
    value, handle = hooked_value(session, x), HookHandle()
    if value.of_node and value.last_write is not None:
        raise _refusal(x, "registers a hook on a tensor that it has written, and whose grad_fn has a hook")

    def identity(values: Sequence[TensorProxy]) -> tuple[Any, ...]:
        return hook_identity(session, values, hook, lambda hook, call, g: replaced(hook, call(hook, g), g))

    value.calls[handle] = add_below(session, [value], ON_TENSOR, identity)
    return handle


def hooked_value(session: TracingSession, x: TensorProxy) -> HookedValue:
    """Return the hooks of a tensor; raises UnsupportedProgram for one that cannot have some here."""
    found = {x.name: f'"{x.type_string()}"'}
    session.place.check(HOOKS_TENSOR, "the program registers a hook", found=found)
    values, scope = session.state(TensorHooks).values, session.trace.peek_scope()
    producer = next((i for i, b in enumerate(scope) if any(p is x for p in b.flat_proxy_outs)), None)
    if producer is None:
        raise _refusal(x, "registers a hook on a tensor that it has not computed here")
    if x.name not in values:
        values[x.name] = _new_value(scope, x, producer)
    return values[x.name]


def add_below(
    session: TracingSession,
    values: Sequence[HookedValue],
    kind: int,
    identity: Callable[[Sequence[TensorProxy]], tuple[Any, ...]],
) -> list[BoundSymbol]:
    """Record an identity of values below those of a kind of hooks, and return its statements.

    The values are results of one call.
    """
    scope, below = session.trace.peek_scope(), [value.below[kind] for value in values]
    with torch.set_grad_enabled(True), recorded(session.trace) as calls:
        results = identity(below)
        for value, result in zip(values, results, strict=True):
            if value.last_write is not None:
                prims.copy_(result, value.hooked, grad_enabled=True)
    start = max(_start(scope, v, p, calls) for v, p in zip(values, below, strict=True))
    for value, passed, result in zip(values, below, results, strict=True):
        if value.last_write is None:
            computed = _computed_below(session, scope, passed)
            value.move(passed, computed, kind + 1)
            calls = [substitute(call, {passed.name: computed, result.name: passed}) for call in calls]
    scope[start:start] = calls
    return calls


_refusal = partial(
    tensor_refusal,
    hint="Register it right after the tensor is computed, or outside the compiled function.",
)


def _new_value(scope: Calls, x: TensorProxy, producer: int) -> HookedValue:
    """Return a value without hooks; raises UnsupportedProgram for a written view."""
    memory = names_of_memory(scope, {x.name})
    writes = [b for b in scope[producer:] if not memory.isdisjoint(written_names(b))]
    if not writes:
        return HookedValue(x, [x, x, x])
    is_view = _has_view(scope[producer], x)
    if is_view or any(p is x for p in scope[producer].flat_proxy_args):
        raise _refusal(x, "registers a hook on a view of a tensor that it has written in place")
    return HookedValue(x, [x, x, x], last_write=writes[-1])


def _start(scope: Calls, value: HookedValue, below: TensorProxy, calls: Calls) -> int:
    """Return where in the program the identity is: after the value, and after what the hook reads.

    Raises UnsupportedProgram if a use of the value comes before what the hook reads.
    """
    after = value.last_write or next(b for b in scope if any(p is below for p in b.flat_proxy_outs))
    start = 1 + next(i for i, b in enumerate(scope) if b is after)
    needed = 1 + last_read(scope, calls)
    memory = names_of_memory(scope, {value.hooked.name})
    if any(not memory.isdisjoint(p.name for p in b.flat_proxy_args) for b in scope[start:needed]):
        raise _refusal(value.hooked, "registers a hook that reads what is computed after a use of the tensor")
    return max(start, needed)


def last_read(scope: Calls, calls: Calls) -> int:
    """Return the index of the last statement of the program that computes what ``calls`` read, or -1."""
    read = uses_and_definitions(calls)[0].keys()
    defined = [i for i, b in enumerate(scope) if not read.isdisjoint(p.name for p in b.flat_proxy_outs)]
    return max(defined, default=-1)


def _computed_below(session: TracingSession, scope: Calls, value: TensorProxy) -> TensorProxy:
    """Return a new tensor, which the program computes in the place of a value."""
    computed = value.replace(name=session.trace.make_name(prefix="t"))
    _rename_result(scope, value, computed)
    if session.speculation is not None:
        session.speculation.note_copy(value, computed)
    return computed


def _rename_result(scope: Calls, old: TensorProxy, new: TensorProxy) -> None:
    """Let the call that computes ``old`` compute ``new``."""
    index = next(i for i, b in enumerate(scope) if any(p.name == old.name for p in b.flat_proxy_outs))
    scope[index] = substitute(scope[index], {old.name: new})


def hook_identity(
    session: TracingSession,
    values: Sequence[TensorProxy],
    hook: Any,
    pass_gradients: Callable[..., Any],
    forward: Callable[[], tuple[Any, ...]] | None = None,
) -> tuple[Any, ...]:
    """Record an identity of values whose backward is a hook, and return its results.

    ``pass_gradients(hook, call, *gradients)`` returns what is passed on, where ``call(fn, …)`` calls a
    function. ``forward`` returns the results, if they are more than the values: then ``hook`` is a tuple of
    hooks, which are called as they are when the backward runs.
    """

    def backward(gradients: Sequence[Any]) -> Any:
        is_traced_early = not session.place.allows(OTHER)
        if is_traced_early and isinstance(hook, types.BuiltinMethodType | tuple):  # such as ``log.append``
            raise ReadsState("a hook is a method of an object that outlives the call")
        if is_traced_early:
            check_hook(session, hook)
        return pass_gradients(hook, lambda fn, *given: session.call(fn, given, {}), *gradients)

    first = hook[0] if isinstance(hook, tuple) else hook
    name = identifier(f"hook_{getattr(first, '__name__', type(first).__name__)}")
    context = context_class(name)((True,) * len(values))
    context.materialize_grads = len(values) == 1 and forward is None
    return call_with_custom_gradient(
        session,
        CustomGradient(
            name=name,
            id=session.unique_id(f"tensor_hook.{name}"),
            key=(TensorHooks, id(hook)),
            inputs=tuple(values),
            context=context,
            forward=forward or (lambda: tuple(values)),
            backward=backward,
            function=lambda: hook,
            adapt=lambda hook: lambda ctx, *gradients: pass_gradients(hook, called, *gradients),
            tags=frozenset({OpTags.HOOKED if forward is None else OpTags.HOOKED_ARGUMENTS}),
        ),
    )


def called(fn: Callable[..., Any], *given: Any) -> Any:
    """Call a hook, when the backward runs."""
    return fn(*given)


def replaced(hook: Any, gradient: Any, before: Any) -> Any:
    """Return what a hook replaces a gradient by; raises torch's errors for another shape or dtype."""
    if gradient is None:
        return before
    name = getattr(hook, "__name__", type(hook).__name__)
    if not isinstance(gradient, torch.Tensor):
        raise TypeError(f"expected Variable, but hook returned '{type(gradient).__name__}'")
    if tuple(gradient.shape) != tuple(before.shape):
        raise RuntimeError(f"hook '{name}' has changed the size of value")
    if gradient.dtype != before.dtype:
        raise RuntimeError(f"hook '{name}' has changed the type of value")
    return gradient


def replaced_by_node(hook: Any, returned: Any, before: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return what a hook of a node replaces gradients by; raises torch's errors for other values."""
    if returned is None:
        return before
    name = getattr(hook, "__name__", type(hook).__name__)
    if not isinstance(returned, tuple):
        raise TypeError(f"expected tuple, but hook returned '{type(returned).__name__}'")
    if len(returned) != len(before):
        raise RuntimeError(
            f"hook '{name}' has returned an incorrect number of values (got {len(returned)}, but expected "
            f"{len(before)})"
        )
    for gradient, old in zip(returned, before, strict=True):
        if (gradient is None) != (old is None):
            raise UnsupportedProgram(
                f"the hook {name} of a node returns None for a gradient, or a gradient for None",
                hint="Return zeros, or the gradient as it is.",
            )
    pairs = zip(returned, before, strict=True)
    return tuple(old if old is None else replaced(hook, gradient, old) for gradient, old in pairs)


def has_hooks(session: TracingSession, x: TensorProxy) -> bool:
    """Return whether a tensor of the program has a hook."""
    values = session.state(TensorHooks).values.values()
    return any(value.hooked is x and value.calls for value in values)


def _has_view(bsym: BoundSymbol, x: TensorProxy) -> bool:
    return any(view.output is x for view in views_of(bsym))


def remove_hook(session: TracingSession, handle: HookHandle | None, values: Iterable[HookedValue]) -> None:
    """Remove the statements that a hook has for some values."""
    found = [(v, c) for v in values if (c := v.calls.pop(handle, None) or v.of_node.pop(handle, None))]
    if found:
        _remove_identity(session.trace.peek_scope(), [value for value, _ in found], found[0][1])


def _remove_identity(scope: Calls, values: Sequence[HookedValue], calls: Calls) -> None:
    """Remove the statements of a hook on values."""
    position = position_of(scope, calls[0])
    call = scope[position]
    del scope[position : position + len(calls)]
    for before, after in zip(call.args, call.flat_proxy_outs, strict=False):
        for value in values:
            if value.last_write is None:
                value.move(before, after)
        if values[0].last_write is None:
            _rename_result(scope, before, after)


def position_of(scope: Calls, call: BoundSymbol) -> int:
    """Return where the statement of a hook is; another hook may have renamed its values."""
    position = next((i for i, b in enumerate(scope) if b.sym is call.sym), None)
    if position is None:
        raise UnsupportedProgram("the program removes a hook elsewhere than where it registered it")
    return position
