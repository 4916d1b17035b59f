"""The options of the compile that runs in this context."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from contextvars import ContextVar
from typing import Any

from thunder.base.context_variables import assigned

__all__ = ["current_options", "with_options"]

_options: ContextVar[Mapping[str, Any] | None] = ContextVar("thunder_current_options", default=None)


def current_options() -> Mapping[str, Any] | None:
    """Return the options of the compile that is running by name, or None."""
    return _options.get()


def with_options(options: Mapping[str, Any] | None) -> AbstractContextManager[None]:
    """Within the context, a compile with these options runs."""
    return assigned(_options, options)
