"""The settings of the compile that runs in this context, for code of packages that receives no arguments.

The compiler itself passes settings as arguments and does not read this.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, TypeVar

from thunder.base.context_variables import assigned
from thunder.base.current_options import with_options

if TYPE_CHECKING:
    from thunder.compiler.stats import CompileData

__all__ = ["compiling", "during_compile", "running_compile"]

_running: ContextVar[CompileData | None] = ContextVar("thunder_running_compile", default=None)
_Method = TypeVar("_Method", bound=Callable[..., Any])


def running_compile() -> CompileData | None:
    """Return the settings of the compile that is running, or None."""
    return _running.get()


@contextmanager
def compiling(data: CompileData | None) -> Iterator[None]:
    """Within the context, a compile with these settings runs."""
    with assigned(_running, data), with_options(None if data is None else data.compile_options):
        yield


def during_compile(method: _Method) -> _Method:
    """Let a method of an object with the attribute `data` run as the compile with these settings."""

    @functools.wraps(method)
    def run(self: Any, *args: Any, **kwargs: Any) -> Any:
        with compiling(self.data):
            return method(self, *args, **kwargs)

    return run  # type: ignore[return-value]
