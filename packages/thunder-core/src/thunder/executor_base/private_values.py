"""The values of the program whose regions are compiled that nobody but the program has."""

from __future__ import annotations

from collections.abc import Callable, Set
from contextlib import AbstractContextManager
from contextvars import ContextVar

from thunder.base.context_variables import assigned

__all__ = ["private_values", "private_values_are"]

_find: ContextVar[Callable[[], Set[str]] | None] = ContextVar("thunder_private_values", default=None)


def private_values_are(find: Callable[[], Set[str]]) -> AbstractContextManager[None]:
    """Within the context, a program is fused of whose private large values ``find`` returns the names."""
    return assigned(_find, find)


def private_values() -> Set[str]:
    """Return the names of the large values in private memory of the program that is fused; else none."""
    find = _find.get()
    return frozenset() if find is None else find()
