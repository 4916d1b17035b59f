"""What runs when an object dies: ``__del__`` methods, and callbacks of weak references to it."""

from __future__ import annotations

import functools
import weakref
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from types import CellType, FunctionType, MemberDescriptorType, MethodType, ModuleType
from typing import Any, Final

import torch

from thunder.base.provenance import (
    ABSENT,
    cell_content,
    content_of,
    lookup_instance,
    lookup_item,
    lookup_type,
)

__all__ = ["Releases"]

#: classes whose objects die without an effect, and hold no other objects
SILENT: Final = frozenset(
    {int, float, complex, bool, str, bytes, type(None), torch.dtype, torch.device, torch.Size, torch.layout}
)

#: modules whose callbacks remove a dead object from a weak container
_OF_CONTAINERS: Final = frozenset({"weakref", "_weakrefset", "torch.utils.weak"})


@dataclass(frozen=True)
class Releases:
    """The places of an object or container that a program overwrites.

    ``keys`` are those of its parts; None is the whole content of a cell, set or deque. With
    ``has_weak_containers`` the program sees weak containers, from which a dead object is removed.
    """

    keys: tuple[Any, ...] | None
    has_weak_containers: bool

    def holds(self, owner: Any) -> bool:
        """Return whether what is at the places can die without running code of the user's."""
        return self.found(owner) is None

    def found(self, owner: Any) -> Any:
        """Return the class of an object that runs code when it dies, or None."""
        values = (owner,) if self.keys is None else [value_at(owner, key) for key in self.keys]
        seen = set() if self.keys is None else {id(owner)}
        pending = [v for v in values if type(v) not in SILENT]
        while pending:
            value = pending.pop()
            if type(value) in SILENT or id(value) in seen or isinstance(value, type | ModuleType):
                continue
            seen.add(id(value))
            if lookup_type(type(value), "__del__") is not ABSENT or self._has_callback(value):
                return type(value)
            pending += _held_by(value)
        return None

    def _has_callback(self, value: Any) -> bool:
        if not weakref.getweakrefcount(value):
            return False
        callbacks = [r.__callback__ for r in weakref.getweakrefs(value)]
        return any(c is not None and (self.has_weak_containers or not _is_of_container(c)) for c in callbacks)


def value_at(owner: Any, key: Any) -> Any:
    """Return an item of a container or an attribute of an object itself, or ABSENT; runs no user code."""
    if isinstance(owner, dict | list | tuple | deque):
        return lookup_item(owner, key)
    value = lookup_instance(owner, key)
    member = lookup_type(type(owner), key) if value is ABSENT else None
    if not isinstance(member, MemberDescriptorType):
        return value
    try:
        return member.__get__(owner)
    except AttributeError:
        return ABSENT


def _is_of_container(callback: Any) -> bool:
    return type(callback) is FunctionType and callback.__module__ in _OF_CONTAINERS


def _held_by(value: Any) -> Iterable[Any]:
    """Return what an object holds: items, attributes, cells and defaults."""
    if isinstance(value, dict):
        content = content_of(value)
        return [*content, *content.values()]
    if isinstance(value, tuple):
        return tuple.__iter__(value)
    if isinstance(value, list | set | deque):
        return content_of(value)  # type: ignore[no-any-return]
    if isinstance(value, MethodType):
        return value.__self__, value.__func__
    if isinstance(value, functools.partial):
        return value.func, *value.args, *value.keywords.values()
    if isinstance(value, CellType):
        return (cell_content(value),)
    held = list(getattr(value, "__closure__", None) or ()) if type(value) is FunctionType else []
    if type(value) is FunctionType:
        held += [*(value.__defaults__ or ()), *(value.__kwdefaults__ or {}).values()]
    slots = (n for base in type(value).__mro__ for n, m in base.__dict__.items() if _is_slot(m))
    return [*held, *_attributes(value), *(value_at(value, name) for name in slots)]


def _is_slot(member: Any) -> bool:
    return isinstance(member, MemberDescriptorType) and member.__objclass__.__module__ != "builtins"


def _attributes(value: Any) -> Iterable[Any]:
    try:
        attributes = object.__getattribute__(value, "__dict__")
    except AttributeError:
        return ()
    return list(dict.values(attributes)) if isinstance(attributes, dict) else ()
