"""The functions of regions that a process has compiled, by what they depend on."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping
from typing import Any

from thunder.base.current_options import current_options, note_read
from thunder.base.equal_values import same_leaf

__all__ = ["CompiledRegions"]


class CompiledRegions:
    """The functions that were compiled for regions, as long as a compiled program uses them.

    A function serves a region of equal structure in a compile whose options have the values that were read
    when the function was compiled.
    """

    def __init__(self) -> None:
        #: by structural key: the values of the options that were read, with a weak reference to the function
        self._entries: dict[str, list[tuple[Mapping[str, Any], Callable[[], Any]]]] = {}

    def get(self, key: str) -> Callable[..., Any] | None:
        """Return the function for a structural key in the compile that is running, or None."""
        options = current_options() or {}
        for read, function in self._entries.get(key, ()):
            if all(name in options and _same(options[name], value) for name, value in read.items()):
                found: Callable[..., Any] | None = function()
                if found is not None:
                    for name, value in read.items():
                        note_read(name, value)
                    return found
        return None

    def add(self, key: str, function: Callable[..., Any], read: Mapping[str, Any]) -> None:
        """Keep a function that was compiled for a structural key and for these values of options."""
        alive = [entry for entry in self._entries.get(key, ()) if entry[1]() is not None]
        self._entries[key] = [*alive, (dict(read), weakref.ref(function))]


def _same(value: Any, other: Any) -> bool:
    """Return whether two values of an option are the same object, or equal in type and value."""
    if value is other:
        return True
    if type(value) not in (bool, int, float, str, tuple) or type(value) is not type(other):
        return False
    return same_leaf(value, other)
