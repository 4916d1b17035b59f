"""The settings of the compile that runs in this context, for code of packages that receives no arguments.

The compiler itself passes settings as arguments and does not read this.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import AbstractContextManager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, TypeVar

from thunder.base.context_variables import assigned

if TYPE_CHECKING:
    from thunder.compiler.stats import CompileData

__all__ = ["compiling", "during_compile", "running_compile"]

_running: ContextVar[CompileData | None] = ContextVar("thunder_running_compile", default=None)
_Method = TypeVar("_Method", bound=Callable[..., Any])


def running_compile() -> CompileData | None:
    """Return the settings of the compile that is running, or None."""
    return _running.get()


def compiling(data: CompileData | None) -> AbstractContextManager[None]:
    """Within the context, a compile with these settings runs."""
    return assigned(_running, data)


def during_compile(method: _Method) -> _Method:
    """Let a method of an object with the attribute `data` run as the compile with these settings."""

    @functools.wraps(method)
    def run(self: Any, *args: Any, **kwargs: Any) -> Any:
        with compiling(self.data):
            return method(self, *args, **kwargs)

    return run  # type: ignore[return-value]
