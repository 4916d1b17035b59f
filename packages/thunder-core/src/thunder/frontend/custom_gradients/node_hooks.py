"""Hooks of nodes of torch's graph, ``y.grad_fn.register_prehook(fn)`` and ``register_hook``; those of leaves.

Note [Hooks of nodes]
A hook before the node of ``y`` gets the gradients of the results of its call as a tuple, after the hooks of
these: it is an identity of all the results (Note [Tensor hooks]), below those of hooks on each. One after the
node gets the gradients of the call's arguments, and those of its results. It is an identity of the arguments,
for this call alone, which has further results of the shapes of the call's, whose values are not read: the
gradients of the results go through them.

    y = torch.mul(x, w)                         x1, w1, link = hook(x, w)     # fn((g_x1, g_w1), (g_link,))
    y.grad_fn.register_hook(fn)       →         t = torch.mul(x1, w1)
                                                y = node_results(t, link)     # gradients: g_y, and g_y again

Several hooks after one node are one identity, in the order of their registration.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import torch

from thunder.base.errors import UnsupportedProgram
from thunder.base.tags import OpTags
from thunder.frontend.custom_gradients.custom_call import CustomGradient, call_with_custom_gradient
from thunder.frontend.custom_gradients.function_context import context_class
from thunder.frontend.custom_gradients.leaf_hooks import AFTER_NODE, BEFORE_NODE, HookHandle, LeafHooks
from thunder.frontend.custom_gradients.leaf_nodes import LeafNode
from thunder.frontend.custom_gradients.module_backward_hooks import link
from thunder.frontend.custom_gradients.tensor_hooks import (
    AFTER,
    BEFORE,
    HookedValue,
    TensorHooks,
    add_below,
    hook_identity,
    hooked_value,
    last_read,
    position_of,
    remove_hook,
    replaced_by_node,
)
from thunder.frontend.epilogue.subtrace import recorded
from thunder.frontend.lookasides.lookaside_registry import LookasideTable
from thunder.frontend.output.node_names import Edge, NodeOfCall
from thunder.frontend.places import HOOKS_TENSOR
from thunder.frontend.raised_errors import tensor_refusal
from thunder.frontend.session import SessionState, TracingSession
from thunder.frontend.types.gradient_nodes import GradientNode, call_of
from thunder.ir.aliasing import views_of
from thunder.ir.decomposition import with_decomposition
from thunder.ir.proxies import TensorProxy
from thunder.ir.proxy_leaves import map_leaves
from thunder.ir.substitution import substitute_operands
from thunder.ir.symbol import BoundSymbol

TABLE = LookasideTable(HOOKS_TENSOR)


@TABLE.lookaside(LeafNode.register_prehook)
def _register_prehook(session: TracingSession, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    def register_prehook(self: GradientNode | LeafNode, fn: Any) -> HookHandle:
        if isinstance(self, LeafNode):
            return session.state(LeafHooks).add(session, self.tensor, BEFORE_NODE, fn)
        return _add_before(session, _values(session, call_of(session, self)), fn)

    return register_prehook(*args, **kwargs)


@TABLE.lookaside(LeafNode.register_hook)
def _register_hook(session: TracingSession, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    def register_hook(self: GradientNode | LeafNode, fn: Any) -> HookHandle:
        if isinstance(self, LeafNode):
            return session.state(LeafHooks).add(session, self.tensor, AFTER_NODE, fn)
        return _add_after(session, self, fn)

    return register_hook(*args, **kwargs)


def _values(session: TracingSession, found: NodeOfCall) -> list[HookedValue]:
    """Return the results of the call of a node, with their hooks."""
    known = {value.below[AFTER].name: value for value in session.state(TensorHooks).values.values()}
    return [known.get(p.name) or hooked_value(session, p) for p in found.results]


# -- before a node -------------------------------------------------------------------------------------------


def _add_before(session: TracingSession, values: list[HookedValue], hook: Any) -> HookHandle:
    def passed(hook: Any, call: Callable[..., Any], *gradients: Any) -> Any:
        replaced = replaced_by_node(hook, call(hook, gradients), gradients)
        return replaced if len(replaced) > 1 else replaced[0]

    handle = HookHandle()
    calls = add_below(session, values, BEFORE, lambda below: hook_identity(session, below, hook, passed))
    for value in values:
        value.of_node[handle] = calls
    return handle


# -- after a node --------------------------------------------------------------------------------------------


@dataclass(eq=False)
class _NodeWithHooks:
    """The hooks after a node, which are one identity: a later one gets what an earlier one has returned.

    ``values`` are the results of its call, ``edges`` those of its node.
    ``of_arguments`` is the statement before the call, if there are hooks.
    """

    values: list[HookedValue]
    edges: list[Edge | None]
    hooks: dict[HookHandle, Any] = field(default_factory=dict)
    of_arguments: BoundSymbol | None = None


class _NodeHooks(SessionState):
    """The nodes with hooks after them, by the name of the first result of their call."""

    def __init__(self, session: TracingSession) -> None:
        self.nodes: dict[str, _NodeWithHooks] = {}


def _add_after(session: TracingSession, node: GradientNode, hook: Any) -> HookHandle:
    found = call_of(session, node)
    values, edges, handle = _values(session, found), found.edges(), HookHandle()
    if edges is None:
        raise _refusal(node.tensor, "of which the call has several nodes")
    if any(value.last_write is not None for value in values):
        raise _refusal(node.tensor, "which it has written in place")
    nodes = session.state(_NodeHooks).nodes
    hooked = nodes.setdefault(values[0].hooked.name, _NodeWithHooks(values, edges))
    _set_hooks(session, hooked, {**hooked.hooks, handle: hook})
    return handle


def _set_hooks(session: TracingSession, node: _NodeWithHooks, hooks: dict[HookHandle, Any]) -> None:
    """Record the identities of a node with other hooks in the place of those that it has."""
    scope, node.hooks = session.trace.peek_scope(), hooks
    if node.of_arguments is not None:
        call, node.of_arguments = scope.pop(position_of(scope, node.of_arguments)), None
        arguments = {view.output.name: view.source for view in views_of(call)}
        scope[:] = [substitute_operands(b, arguments) for b in scope]
        remove_hook(session, None, node.values)
    if hooks:
        _record_hooks(session, node)


def _record_hooks(session: TracingSession, node: _NodeWithHooks) -> None:
    """Record the identities around the call of a node."""
    scope, results = session.trace.peek_scope(), [value.below[AFTER] for value in node.values]
    position = next(i for i, b in enumerate(scope) if any(p is results[0] for p in b.flat_proxy_outs))
    call, chosen = scope[position], [edge.place for edge in node.edges if edge is not None]
    tensors = [p for p in call.flat_proxy_args if isinstance(p, TensorProxy)]
    arguments = [tensors[place] for place in chosen]
    hooks, pass_gradients = tuple(node.hooks.values()), functools.partial(_after_node, node.edges)
    with torch.set_grad_enabled(True), recorded(session.trace) as before:
        hooked = hook_identity(
            session,
            arguments,
            hooks,
            pass_gradients,
            forward=lambda: (*arguments, *map(link, results)),
        )
    if last_read(scope, before) >= position:
        raise _refusal(node.values[0].hooked, "and that reads what is computed after it")
    if session.speculation is not None:
        for argument, copy in zip(arguments, hooked, strict=False):
            session.speculation.note_copy(argument, copy)
    by_place = dict(zip(chosen, hooked, strict=False))
    (node.of_arguments,) = before
    scope[position : position + 1] = [*before, _with_tensors(session, call, by_place)]
    links = hooked[len(arguments) :]
    below = add_below(session, node.values, AFTER, lambda below: _linked(session, below, links))
    for value in node.values:
        value.of_node[None] = below


def _with_tensors(session: TracingSession, call: BoundSymbol, by_place: dict[int, Any]) -> BoundSymbol:
    """Return a call with other tensors at some places among its tensors."""
    places = count()

    def replaced(leaf: Any) -> Any:
        return by_place.get(next(places), leaf) if isinstance(leaf, TensorProxy) else leaf

    args, kwargs = map_leaves(replaced, (call.args, call.kwargs))
    return with_decomposition(call.from_bsym(args=args, kwargs=kwargs, subsymbols=()), session.trace)


def _after_node(
    edges: Sequence[Edge | None], hooks: Sequence[Any], call: Callable[..., Any], *gradients: Any
) -> tuple[Any, ...]:
    """Return the gradients of a call's arguments as hooks replace them, and none for the results.

    ``gradients`` are those of the arguments that have an edge, and of the results; without one of a result,
    the node does not run.
    """
    size = sum(edge is not None for edge in edges)
    own, of_results = iter(gradients[:size]), gradients[size:]
    given = tuple(None if edge is None else edge.turned(next(own)) for edge in edges)
    if any(g is not None for g in of_results):
        for hook in hooks:
            given = replaced_by_node(hook, call(hook, given, of_results), given)
    passed = (edge.turned(g) for g, edge in zip(given, edges, strict=True) if edge is not None)
    return (*passed, *(None for _ in of_results))


def _linked(session: TracingSession, below: Sequence[TensorProxy], links: Sequence[Any]) -> tuple[Any, ...]:
    """Record the identity of the results of a call, whose gradients are those of ``links`` too."""
    context = context_class("node_results")((True,) * 2 * len(below))
    context.materialize_grads = False
    return call_with_custom_gradient(
        session,
        CustomGradient(
            name="node_results",
            id=session.unique_id("node_results"),
            key=_linked,
            inputs=(*below, *links),
            context=context,
            forward=lambda: tuple(below),
            backward=lambda gradients: (*gradients, *gradients),
            function=lambda: None,
            tags=frozenset({OpTags.HOOKED}),
            passes_gradients=True,
        ),
    )


def _refusal(x: TensorProxy, what: str) -> UnsupportedProgram:
    what = f"registers a hook after the grad_fn of a tensor, {what}"
    return tensor_refusal(x, what, "Register hooks on the tensors: y.register_hook(fn).")


@TABLE.lookaside(HookHandle.remove, HookHandle.__exit__)
def _remove(session: TracingSession, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    handle = args[0]
    if session.state(LeafHooks).registered.pop(handle, None) is not None:
        return
    remove_hook(session, handle, session.state(TensorHooks).values.values())
    for node in session.state(_NodeHooks).nodes.values():
        if handle in node.hooks:
            _set_hooks(session, node, {k: v for k, v in node.hooks.items() if k is not handle})
