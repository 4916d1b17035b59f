"""Callables that are marked to run as they are, at their place, in each call of a compiled program."""

from __future__ import annotations

import sys
import types
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from thunder.base.errors import InvalidArgument

__all__ = ["OpaqueSet", "is_marked", "opaque"]

_F = TypeVar("_F", bound=Callable[..., Any])

#: marked callables by id, held, so that the ids stay theirs
_marked: dict[int, Any] = {}


def opaque(fn: _F) -> _F:
    """Mark a callable to run as it is wherever a compiled program calls it, and return it.

    Use it as a decorator, ``@thunder.opaque``, or as a call, ``thunder.opaque(package.function)``. In each
    call of the compiled program it runs once, at its place, on the tensors that the program has computed.
    Its tensor results, in tuples, lists and dicts, are new inputs of the rest of the program, and torch
    differentiates it. See ``docs/programs.md``.

    Functions, bound methods (whose function is marked), builtin functions, modules and other callable objects
    can be marked; a class cannot. Raises InvalidArgument for one, and for what cannot be called.
    """
    target = _target(fn)
    _marked[id(target)] = target
    return fn


def _target(fn: Any) -> Any:
    if isinstance(fn, type) or not callable(fn):
        raise InvalidArgument(
            f"{fn!r} cannot be opaque",
            found={"type": type(fn).__qualname__},
            hint="Mark a function, a method or a module.",
        )
    return fn.__func__ if isinstance(fn, types.MethodType) else fn


def is_marked(fn: Any) -> bool:
    """Return whether :func:`opaque` marked this callable."""
    return id(fn) in _marked


class OpaqueSet:
    """The callables that an option of a compile names, beside those that are marked.

    Args:
        entries: callables, and dotted paths of functions, methods, classes' methods and Python modules. A
            module stands for all functions that it defines.
    """

    def __init__(self, entries: Iterable[Any] = ()) -> None:
        self._callables: dict[int, Any] = {}
        self._namespaces: dict[int, Any] = {}
        for entry in entries:
            value = resolved(entry) if isinstance(entry, str) else entry
            if isinstance(value, types.ModuleType):
                self._namespaces[id(vars(value))] = vars(value)
            else:
                target = _target(value)
                self._callables[id(target)] = target

    def __contains__(self, fn: Any) -> bool:
        if id(fn) in _marked or id(fn) in self._callables:
            return True
        return bool(self._namespaces) and id(getattr(fn, "__globals__", None)) in self._namespaces


def resolved(path: str) -> Any:
    """Return what a dotted path names: a module that is imported, or a member of one.

    Raises InvalidArgument where there is none.
    """
    parts = path.split(".")
    for count in range(len(parts), 0, -1):
        value: Any = sys.modules.get(".".join(parts[:count]))
        if value is None:
            continue
        for name in parts[count:]:
            value = getattr(value, name, None)
        if value is not None:
            return value
    raise InvalidArgument(
        f"opaque= names {path!r}, which is not there",
        hint="Name a function or a module of Python by its full path, and import the module before.",
    )
