"""The marks of the hook system: its name, its version, and the decorators of specifications and
implementations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import wraps
from typing import Any, Final, TypeVar

import pluggy

from thunder.base.extension_origin import ENTRY_POINT_GROUP

__all__ = ["ENTRY_POINT_GROUP", "HOOK_API_VERSION", "PROJECT", "for_executor", "hookimpl", "hookspec"]

PROJECT: Final = "thunder"

HOOK_API_VERSION: Final = (1, 0)
"""The version of the hook specifications: a new hook or argument raises the second number, anything else the
first.

A plugin says which it was written for with `THUNDER_PLUGIN_API = (1, 0)`; that is also the default.
"""

hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)
"""Marks a function of a plugin as the implementation of the hook whose name it has."""

_F = TypeVar("_F", bound=Callable[..., Iterable[Any]])


def for_executor(*names: str) -> Callable[[_F], _F]:
    """Decorates an implementation of a hook with the single argument `executor`: for other executors it
    returns `()`.

    @hookimpl
    @for_executor("acme")
    def thunder_checkers(executor):
        return [("torch.nn.functional.linear", linear_checker)]
    """

    def decorate(implementation: _F) -> _F:
        @wraps(implementation)
        def only_for(*args: Any) -> Iterable[Any]:
            return implementation(*args) if args[-1].name in names else ()

        return only_for  # type: ignore[return-value]

    return decorate
