"""The torch function modes that are active around a compiled call.

A mode of the user's would receive thunder's own calls of torch, of guards and of the compiled program. So it
is taken from torch's stack for the call; the program is traced under it, and its state is guarded.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import torch
from torch.utils._device import DeviceContext

from thunder.base.provenance import Path, object_root

__all__ = [
    "HELD",
    "HeldModes",
    "ModeStack",
    "has_active_modes",
    "mode_below",
    "modes_held",
    "modes_path",
    "modes_released",
]

_push, _pop = torch._C._push_on_torch_function_stack, torch._C._pop_torch_function_stack
_count, _mode_at = torch._C._len_torch_function_stack, torch._C._get_function_stack_at


class HeldModes:
    """The mode in place of those that are held: it changes nothing, and guards see it."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


class _Held(threading.local):
    """The modes that are held in a thread, the innermost last."""

    modes: tuple[Any, ...] = ()


HELD: Final = _Held()
_MARK: Final = HeldModes()


class ModeStack:
    """The modes of this thread when it is made: those of torch's stack, and those that are held."""

    def __init__(self) -> None:
        self._stack, self._held = _stack(), HELD.modes

    def restore(self) -> None:
        """Make them the modes again, whatever an interrupt has left; a new default device stays."""
        HELD.modes = self._held
        now = _stack()
        devices, _ = _divided(now)
        before, others = _divided(self._stack)
        if [*map(id, now)] != [*map(id, [*(devices or before), *others])]:
            _exchange(len(now), [*(devices or before), *others])


def _stack() -> list[Any]:
    return [_mode_at(i) for i in range(_count())]


def _divided(modes: list[Any]) -> tuple[list[Any], list[Any]]:
    """Return the default devices among modes, which are below all others, and the others."""
    devices = [mode for mode in modes if isinstance(mode, DeviceContext)]
    return devices, [mode for mode in modes if not isinstance(mode, DeviceContext)]


def modes_path() -> Path:
    """Return the path of the tuple of modes."""
    return object_root("torch's function modes", HELD).step("attribute", "modes")


def has_active_modes() -> bool:
    """Return whether torch's stack has a mode of the user's."""
    return any(not isinstance(_mode_at(i), DeviceContext | HeldModes) for i in range(_count()))


@contextmanager
def modes_held() -> Iterator[None]:
    """Within the context, the modes of the user are in :data:`HELD` and not on torch's stack.

    A default device below them stays.
    """
    outer = HELD.modes
    stack = [_mode_at(i) for i in range(_count())]
    below = next(i for i, mode in enumerate(stack) if not isinstance(mode, DeviceContext | HeldModes))
    held = stack[below:]
    _exchange(len(held), [_MARK])
    HELD.modes = (*outer, *held)
    try:
        yield
    finally:
        HELD.modes = outer
        _exchange(1, held)


@contextmanager
def modes_released() -> Iterator[None]:
    """Within the context, the modes that are held are active: the user's code runs as it is."""
    held = HELD.modes
    if not held:
        yield
        return
    HELD.modes = ()
    _exchange(1, held)
    try:
        yield
    finally:
        _exchange(len(held), [_MARK])
        HELD.modes = held


@contextmanager
def mode_below(mode: Any) -> Iterator[None]:
    """Within the context, calls reach a mode after all others of torch's stack."""
    stack = [_mode_at(i) for i in range(_count())]
    _exchange(len(stack), [mode, *stack])
    try:
        yield
    finally:
        _exchange(_count(), stack)


def _exchange(count: int, modes: Any) -> None:
    """Replace the innermost modes of torch's stack."""
    for _ in range(count):
        _pop()
    for mode in modes:
        _push(mode)
