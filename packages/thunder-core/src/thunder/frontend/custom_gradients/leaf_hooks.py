"""Hooks on the gradients of leaves: those that inputs of the program have, and those that it registers.

A gradient that the program computes passes them where it arrives at its leaf, see
:mod:`~thunder.frontend.inner_gradients.arrivals`. One that is computed after the call passes those that torch
knows; so what the program registers on an input, the program removes.
"""

from __future__ import annotations

from typing import Any, Final

import torch

from thunder.base.errors import Location, UnsupportedProgram
from thunder.frontend.lookasides.lookaside_registry import LookasideTable
from thunder.frontend.session import SessionState, TracingSession
from thunder.ir.proxies import TensorProxy
from thunder.torch.inplace import is_leaf

__all__ = ["ON_GRADIENTS", "POST_ACCUMULATE", "HookHandle", "LeafHooks", "hooks_of", "refuse_left_hooks"]

TABLE = LookasideTable()

#: the attributes of a tensor with its hooks
ON_GRADIENTS: Final = "_backward_hooks"
POST_ACCUMULATE: Final = "_post_accumulate_grad_hooks"


class HookHandle:
    """The handle of a hook in a compiled program, which the program alone can remove."""

    def remove(self) -> None:
        """Remove the hook; raises UnsupportedProgram outside of the program."""
        raise UnsupportedProgram(
            "a hook on a tensor of a compiled program is removed after the call",
            hint="Remove it in the program, or let the hook return None when it is not needed.",
        )

    def __enter__(self) -> HookHandle:
        return self

    def __exit__(self, kind: Any, error: Any, traceback: Any) -> None:
        self.remove()


class LeafHooks(SessionState):
    """The hooks on leaves that the program has registered and not removed.

    By handle: the leaf, the attribute to which torch adds the hook, the hook, and where it was registered.
    """

    def __init__(self, session: TracingSession) -> None:
        self.registered: dict[HookHandle, tuple[TensorProxy, str, Any, list[Location]]] = {}

    def add(self, session: TracingSession, x: TensorProxy, attribute: str, hook: Any) -> HookHandle:
        """Register a hook on a leaf; raises UnsupportedProgram in a part of the program."""
        if len(session.trace.scopes) > 1:
            raise UnsupportedProgram(
                "the program registers a hook on a leaf in a function that is recorded apart",
                found={x.name: f'"{x.type_string()}"'},
                hint="Register it outside of the checkpointed or transformed function.",
            )
        entry = session.entry_of(x)
        if entry is not None:
            session.note("is", entry.path.step("attribute", "is_leaf"), True)
        handle = HookHandle()
        self.registered[handle] = x, attribute, hook, session.locations()
        return handle


@TABLE.lookaside(torch.Tensor.register_post_accumulate_grad_hook)
def _register(session: TracingSession, args: tuple[Any, ...], kwargs: dict[str, Any]) -> HookHandle:
    def register_post_accumulate_grad_hook(self: TensorProxy, hook: Any) -> HookHandle:
        if not self.requires_grad:
            raise RuntimeError("cannot register a hook on a tensor that doesn't require gradient")
        entry = session.entry_of(self)
        if not (is_leaf(self) if entry is None else entry.obj.is_leaf):
            raise RuntimeError("post accumulate grad hooks cannot be registered on non-leaf tensors")
        return session.state(LeafHooks).add(session, self, POST_ACCUMULATE, hook)

    return register_post_accumulate_grad_hook(*args, **kwargs)


def _in_order(hooks: dict[int, Any] | None) -> list[Any]:
    return [] if hooks is None else list(hooks.values())


def hooks_of(session: TracingSession, x: TensorProxy, attribute: str) -> list[Any]:
    """Return the hooks of a leaf in the order of their registration; those of an input are guarded."""
    entry, hooks = session.entry_of(x), []
    if entry is not None:
        with torch._C.DisableTorchFunction():
            raw = getattr(entry.obj, attribute)
        value = session.adopt(raw, entry.path.step("attribute", attribute))
        hooks += session.call(_in_order, (value,), {})
    registered = session.state(LeafHooks).registered.values()
    return hooks + [hook for leaf, name, hook, _ in registered if leaf is x and name == attribute]


def refuse_left_hooks(session: TracingSession) -> None:
    """Refuse a program that leaves a hook on a leaf, which later gradients of the caller would pass."""
    for x, _, _, where in session.state(LeafHooks).registered.values():
        raise UnsupportedProgram(
            "the program registers a hook on a leaf, and does not remove it",
            found={x.name: f'"{x.type_string()}"'},
            where=where,
            hint="Remove it in the program (handle.remove()), or register it before the call.",
        )
