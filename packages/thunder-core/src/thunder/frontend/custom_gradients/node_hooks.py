"""Hooks of nodes of torch's graph: ``y.grad_fn.register_prehook(fn)``, and those of leaves.

A hook before the node of ``y`` gets the gradients of the results of its call as a tuple, after the hooks of
``y``. Where ``y`` is the only result, it is a hook on ``y`` of another form (Note [Tensor hooks]).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from thunder.base.errors import UnsupportedProgram
from thunder.frontend.custom_gradients.leaf_hooks import AFTER_NODE, BEFORE_NODE, HookHandle, LeafHooks
from thunder.frontend.custom_gradients.leaf_nodes import LeafNode
from thunder.frontend.custom_gradients.tensor_hooks import add_hook, replaced_by_node
from thunder.frontend.lookasides.lookaside_registry import LookasideTable
from thunder.frontend.places import HOOKS_TENSOR
from thunder.frontend.session import TracingSession
from thunder.frontend.types.gradient_nodes import GradientNode, call_of

TABLE = LookasideTable(HOOKS_TENSOR)


@TABLE.lookaside(LeafNode.register_prehook)
def _register_prehook(session: TracingSession, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    def register_prehook(self: GradientNode | LeafNode, fn: Any) -> HookHandle:
        if isinstance(self, LeafNode):
            return session.state(LeafHooks).add(session, self.tensor, BEFORE_NODE, fn)
        if len(call_of(session, self).node._input_metadata) != 1:
            raise _refusal(self, "a hook before the grad_fn of one of several results")
        return add_hook(session, self.tensor, fn, _before_node)

    return register_prehook(*args, **kwargs)


@TABLE.lookaside(LeafNode.register_hook)
def _register_hook(session: TracingSession, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    def register_hook(self: GradientNode | LeafNode, fn: Any) -> HookHandle:
        if isinstance(self, LeafNode):
            return session.state(LeafHooks).add(session, self.tensor, AFTER_NODE, fn)
        raise _refusal(self, "a hook after the grad_fn of a tensor")

    return register_hook(*args, **kwargs)


def _before_node(hook: Any, call: Callable[..., Any], gradient: Any) -> Any:
    return replaced_by_node(hook, call((gradient,)), (gradient,))[0]


def _refusal(node: GradientNode, what: str) -> UnsupportedProgram:
    return UnsupportedProgram(
        f"the program registers {what}",
        found={node.tensor.name: f'"{node.tensor.type_string()}"'},
        hint="Register hooks on the tensors: y.register_hook(fn).",
    )
