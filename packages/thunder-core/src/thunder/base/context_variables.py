"""Values of context variables within a block of code."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

__all__ = ["assigned"]

T = TypeVar("T")


@contextmanager
def assigned(variable: ContextVar[T], value: T) -> Iterator[None]:
    """Within the context, a context variable has a value; after it, the value that it had before."""
    token = variable.set(value)
    try:
        yield
    finally:
        variable.reset(token)
