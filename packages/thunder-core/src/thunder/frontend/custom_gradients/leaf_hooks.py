"""Hooks on the gradients of leaves: those that inputs of the program have, and those that it registers.

A gradient that the program computes passes them where it arrives at its leaf, see
:mod:`~thunder.frontend.inner_gradients.arrivals`. One that is computed after the call passes those that torch
knows; so the epilogue registers what the program has registered on an input and not removed.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import torch

from thunder.base.errors import UnsupportedProgram
from thunder.frontend.custom_gradients.leaf_nodes import leaf_node
from thunder.frontend.custom_gradients.recorded_memory import names_of_memory, written_names
from thunder.frontend.lookasides.lookaside_registry import LookasideTable
from thunder.frontend.objects.writes import Write, WrittenNames
from thunder.frontend.places import HOOKS_LEAF
from thunder.frontend.session import Ending, SessionState, TracingSession
from thunder.ir.proxies import TensorProxy
from thunder.ops import prims
from thunder.torch.inplace import is_leaf

if TYPE_CHECKING:
    from thunder.frontend.epilogue.epilogue_builder import EpilogueBuilder

__all__ = [
    "AFTER_NODE",
    "BEFORE_NODE",
    "ON_GRADIENTS",
    "POST_ACCUMULATE",
    "HookHandle",
    "LeafHooks",
    "hooks_of",
    "register_again",
]

TABLE = LookasideTable(HOOKS_LEAF)

#: the attributes of a tensor with its hooks
ON_GRADIENTS: Final = "_backward_hooks"
POST_ACCUMULATE: Final = "_post_accumulate_grad_hooks"
#: hooks of the node that accumulates its gradient, which no attribute has
BEFORE_NODE: Final = "register_prehook"
AFTER_NODE: Final = "register_hook"


class HookHandle:
    """The handle of a hook in a compiled program.

    The program alone can remove it, unless it is a ``hook`` of an ``attribute`` of an input, ``leaf``: the
    epilogue makes torch's handle of that.
    """

    leaf: TensorProxy | None = None

    def __init__(self, leaf: TensorProxy | None = None, attribute: str = "", hook: Any = None) -> None:
        if leaf is not None:
            self.leaf, self.attribute, self.hook = leaf, attribute, hook

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
        self.registered = WrittenNames()

    def writes(self) -> Iterator[Write]:
        for handle, (x, attribute, hook, _) in self.registered.items():
            entry = self._session.entry_of(x)
            if entry is not None:
                yield Write(
                    name=f"{entry.path.source}.{attribute}",
                    emit=partial(_emit, handle=handle),
                    owner=entry.obj,
                    content=(hook,),
                    values=(hook,),
                    moment=self.registered.moments[handle],
                )

    def add(self, session: TracingSession, x: TensorProxy, attribute: str, hook: Any) -> HookHandle:
        """Register a hook on a leaf or an input; raises UnsupportedProgram in a part of the program."""
        found = {x.name: f'"{x.type_string()}"'}
        session.place.check(HOOKS_LEAF, "the program registers a hook on a leaf", found=found)
        entry = session.entry_of(x)
        if entry is not None:
            session.note_write()
            session.note(prims.check_same_object, entry.path.step("attribute", "is_leaf"), entry.obj.is_leaf)
        handle = HookHandle(x, attribute, hook)
        self.registered[handle] = x, attribute, hook, session.locations()
        return handle

    def check(self, ending: Ending) -> None:
        """Refuse a program that leaves a hook where the epilogue cannot register it as eager has it.

        Such is one on a leaf of the program, on an input that is not a leaf and that the program has written,
        and on a tensor that a transform replaces.
        """
        calls = self._session.trace.bound_symbols
        for x, _, _, where in self.registered.values():
            entry = self._session.entry_of(x)
            memory = (
                names_of_memory(calls, {x.name}) if entry is not None and not entry.obj.is_leaf else set()
            )
            is_written = any(not memory.isdisjoint(written_names(b)) for b in calls) if memory else False
            if entry is None or is_written or self._session.objects.keeps_original_metadata:
                raise UnsupportedProgram(
                    "the program registers a hook on a leaf, and does not remove it",
                    found={x.name: f'"{x.type_string()}"'},
                    where=where,
                    hint="Remove it in the program (handle.remove()), or register it before the call.",
                )


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
    if entry is not None and attribute in (ON_GRADIENTS, POST_ACCUMULATE):
        with torch._C.DisableTorchFunction():
            raw = getattr(entry.obj, attribute)
        value = session.adopt(raw, entry.path.step("attribute", attribute))
        hooks += session.call(_in_order, (value,), {})
    registered = session.state(LeafHooks).registered.values()
    return hooks + [hook for leaf, name, hook, _ in registered if leaf is x and name == attribute]


#: the method that registers a hook of an attribute
_METHODS: Final = {
    ON_GRADIENTS: "register_hook",
    POST_ACCUMULATE: "register_post_accumulate_grad_hook",
}


def _emit(builder: EpilogueBuilder, handle: HookHandle) -> None:
    register_again(builder, handle)


def register_again(builder: EpilogueBuilder, handle: HookHandle) -> str:
    """Add the registration of a hook to the epilogue, once; return the name of its handle."""
    if id(handle) in builder.built:
        return builder.built[id(handle)][0]
    entry = None if handle.leaf is None else builder.session.entry_of(handle.leaf)
    if entry is None or handle not in builder.session.state(LeafHooks).registered:
        return builder.assigned("handle", handle, f"{builder.refer(HookHandle)}()")
    hook = builder.expression(handle.hook)
    if handle.attribute in (BEFORE_NODE, AFTER_NODE):
        node = builder.expression(leaf_node(builder.session, entry.value))
        return builder.assigned("handle", handle, f"{node}.{handle.attribute}({hook})")
    tensor = builder.fetched(entry.path, entry.obj)
    return builder.assigned("handle", handle, f"{tensor}.{_METHODS[handle.attribute]}({hook})")
