"""The marks of the hook system: its name, its version, and the decorators of specs and implementations."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import wraps
from typing import Any, Final, TypeVar

import pluggy

from thunder.base.extension_origin import ENTRY_POINT_GROUP

__all__ = ["ENTRY_POINT_GROUP", "HOOK_API_VERSION", "PROJECT", "for_executor", "hookimpl", "hookspec"]

PROJECT: Final = "thunder"

HOOK_API_VERSION: Final = (1, 4)
"""The version of the hook specifications.

A new hook or argument raises the second number, any other change the first. A plugin declares the version
that it was written for with `THUNDER_PLUGIN_API = (1, 0)`, which is also the default.
"""

hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)
"""Mark a function of a plugin as the implementation of the hook of the same name."""

_F = TypeVar("_F", bound=Callable[..., Iterable[Any]])


def for_executor(*names: str) -> Callable[[_F], _F]:
    """Restrict a hook implementation with the argument `executor` to executors of these names.

    For example::

        @hookimpl
        @for_executor("acme")
        def thunder_checkers(executor):
            return [("torch.nn.functional.linear", linear_checker)]

    For any other executor the implementation returns `()`.
    """

    def decorate(implementation: _F) -> _F:
        @wraps(implementation)
        def only_for(*args: Any) -> Iterable[Any]:
            return implementation(*args) if args[-1].name in names else ()

        return only_for  # type: ignore[return-value]

    return decorate
