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
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
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
from thunder.frontend.session import Ending, SessionState, TracingSession
from thunder.ir.aliasing import views_of
from thunder.ir.object_names import identifier
from thunder.ir.proxies import TensorProxy, Variable
from thunder.ir.symbol import BoundSymbol
from thunder.ops import prims

TABLE = LookasideTable(HOOKS_TENSOR)
Calls = list[BoundSymbol]
#: from a hook, a function that calls it, and a gradient, to the gradient that it passes on
Convention: TypeAlias = Callable[[Any, Callable[..., Any], Any], Any]


@dataclass(eq=False)
class HookedValue:
    """The hooks of one value.

    ``hooked`` is the tensor of the program, ``first`` the one that is computed, below the identities.
    ``last_write`` is the call that wrote it before it had hooks, after which the identities are writes.
    ``calls`` are the statements of each hook.
    """

    hooked: TensorProxy
    first: TensorProxy
    last_write: BoundSymbol | None = None
    calls: dict[HookHandle, list[BoundSymbol]] = field(default_factory=dict)
    has_node_hooks: bool = False


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
            start = next((i for i, b in enumerate(calls) if _has_view(b, value.first)), None)
            if start is None or not value.calls:
                continue
            memory = names_of_memory(calls, {value.first.name})
            for bsym in calls[start:]:
                if not memory.isdisjoint(written_names(bsym)):
                    error = _refusal(value.first, "writes in place to the memory of a view that has a hook")
                    raise error.add_locations(bsym.locations)


@TABLE.lookaside(torch.Tensor.register_hook)
def _register_hook(session: TracingSession, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    def register_hook(self: TensorProxy, hook: Any) -> HookHandle:
        return add_hook(session, self, hook)

    return register_hook(*args, **kwargs)


def add_hook(
    session: TracingSession, x: TensorProxy, hook: Any, convention: Convention | None = None
) -> HookHandle:
    """Do ``x.register_hook(hook)`` for a tensor that the program computes, or a leaf among its inputs.

    With a ``convention`` the hook is one of the tensor's node, which comes after those of the tensor.

    Raises RuntimeError, as torch does, if it does not require grad, and UnsupportedProgram for another input,
    and where the gradient of the whole value cannot be passed to the hook.
    """
    if not x.requires_grad:
        raise RuntimeError("cannot register a hook on a tensor that doesn't require gradient")
    entry = session.entry_of(x)
    if entry is not None:
        return session.state(LeafHooks).add(session, x, ON_GRADIENTS, hook)
    found = {x.name: f'"{x.type_string()}"'}
    session.place.check(HOOKS_TENSOR, "the program registers a hook", found=found)
    values, handle = session.state(TensorHooks).values, HookHandle()
    scope = session.trace.peek_scope()
    producer = next((i for i, b in enumerate(scope) if any(p is x for p in b.flat_proxy_outs)), None)
    if producer is None:
        raise _refusal(x, "registers a hook on a tensor that it has not computed here")
    value = values.get(x.name) or _new_value(session, scope, x, producer)
    if convention is None and value.has_node_hooks:
        raise _refusal(x, "registers a hook on a tensor whose grad_fn has a hook")
    value.has_node_hooks |= convention is not None
    with torch.set_grad_enabled(True), recorded(session.trace) as calls:
        (result,) = _identity(session, value.first, hook, convention)
        if value.last_write is not None:
            prims.copy_(result, x, grad_enabled=True)
    start = _start(session, scope, x, value, calls)
    if value.last_write is None:
        calls = [_below(session, scope, value, result, calls)]
    scope[start:start] = calls
    value.calls[handle] = calls
    values[x.name] = value
    return handle


def _refusal(x: TensorProxy, what: str) -> UnsupportedProgram:
    return UnsupportedProgram(
        f"the program {what}",
        found={x.name: f'"{x.type_string()}"'},
        hint="Register it right after the tensor is computed, or outside of the compiled function.",
    )


def _new_value(session: TracingSession, scope: Calls, x: TensorProxy, producer: int) -> HookedValue:
    """Return a value without hooks; raises UnsupportedProgram for a written view."""
    memory = names_of_memory(scope, {x.name})
    writes = [b for b in scope[producer:] if not memory.isdisjoint(written_names(b))]
    if not writes:
        return HookedValue(x, x)
    is_view = _has_view(scope[producer], x)
    if is_view or any(p is x for p in scope[producer].flat_proxy_args):
        raise _refusal(x, "registers a hook on a view of a tensor that it has written in place")
    return HookedValue(x, x, last_write=writes[-1])


def _start(
    session: TracingSession,
    scope: list[BoundSymbol],
    x: TensorProxy,
    value: HookedValue,
    calls: list[BoundSymbol],
) -> int:
    """Return where in the program the identity is: after the value, and after what the hook reads.

    Raises UnsupportedProgram if a use of the value comes before what the hook reads.
    """
    first = value.first
    after = value.last_write or next(b for b in scope if any(p is first for p in b.flat_proxy_outs))
    start = 1 + next(i for i, b in enumerate(scope) if b is after)
    read = uses_and_definitions(calls)[0].keys()
    defined = [i for i, b in enumerate(scope) if not read.isdisjoint(p.name for p in b.flat_proxy_outs)]
    needed = max(defined) + 1
    memory = names_of_memory(scope, {x.name})
    if any(not memory.isdisjoint(p.name for p in b.flat_proxy_args) for b in scope[start:needed]):
        raise _refusal(x, "registers a hook that reads what is computed after a use of the tensor")
    return max(start, needed)


def _below(
    session: TracingSession,
    scope: list[BoundSymbol],
    value: HookedValue,
    result: Any,
    calls: list[BoundSymbol],
) -> BoundSymbol:
    """Return the identity between a new tensor, which the program computes instead, and ``value.first``."""
    (call,), first = calls, value.first
    computed = first.replace(name=session.trace.make_name(prefix="t"))
    _rename_result(scope, first, computed)
    if session.speculation is not None:
        session.speculation.note_copy(first, computed)
    value.first = computed
    call = call.from_bsym_swap_proxies({Variable(first): computed})
    return call.from_bsym_swap_proxies({Variable(result): first})


def _rename_result(scope: Calls, old: TensorProxy, new: TensorProxy) -> None:
    """Let the call that computes ``old`` compute ``new``."""
    index = next(i for i, b in enumerate(scope) if any(p is old for p in b.flat_proxy_outs))
    scope[index] = scope[index].from_bsym_swap_proxies({Variable(old): new})


def _of_tensor(hook: Any, call: Callable[..., Any], gradient: Any) -> Any:
    return replaced(hook, call(gradient), gradient)


def _identity(
    session: TracingSession, x: TensorProxy, hook: Any, convention: Convention | None
) -> tuple[Any, ...]:
    """Record an identity whose backward is a hook, and return its result."""
    pass_gradient = convention or _of_tensor

    def backward(cotangents: Sequence[Any]) -> Any:
        is_traced_early = not session.place.allows(OTHER)
        if is_traced_early and isinstance(hook, types.BuiltinMethodType):  # such as ``gradients.append``
            raise ReadsState("a hook is a method of an object that outlives the call")
        if is_traced_early:
            check_hook(session, hook)
        return pass_gradient(hook, lambda *values: session.call(hook, values, {}), *cotangents)

    name = identifier(f"hook_{getattr(hook, '__name__', type(hook).__name__)}")
    return call_with_custom_gradient(
        session,
        CustomGradient(
            name=name,
            id=session.unique_id(f"tensor_hook.{name}"),
            key=(TensorHooks, id(hook)),
            inputs=(x,),
            context=context_class(name)((True,)),
            forward=lambda: (x,),
            backward=backward,
            function=lambda: hook,
            adapt=lambda hook: lambda ctx, gradient: pass_gradient(hook, hook, gradient),
            tags=frozenset({OpTags.HOOKED}),
        ),
    )


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


@TABLE.lookaside(HookHandle.remove, HookHandle.__exit__)
def _remove(session: TracingSession, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    handle = args[0]
    if session.state(LeafHooks).registered.pop(handle, None) is not None:
        return
    scope = session.trace.peek_scope()
    for value in session.state(TensorHooks).values.values():
        calls = value.calls.pop(handle, None)
        if calls is None:
            continue
        position = next((i for i, b in enumerate(scope) if b is calls[0]), None)
        if position is None:
            raise UnsupportedProgram("the program removes a hook elsewhere than where it registered it")
        del scope[position : position + len(calls)]
        if value.last_write is None:
            before, after = calls[0].flat_proxy_args[0], calls[0].flat_proxy_outs[0]
            _rename_result(scope, before, after)
            value.first = after if value.first is before else value.first
