"""Objects of the caller that a program overwrites: whether their death runs code that the program may see.

    self.o = None          →   fact: what self.o has been dies without running code
    n = len(self.log)

In eager an object dies at the write, and then its ``__del__`` and the callbacks of weak references to it run.
A compiled program writes in the epilogue, when it has read what they may have changed.
"""

from __future__ import annotations

import dis
import functools
import gc
import logging
import weakref
from collections import deque
from collections.abc import Iterable
from contextvars import ContextVar
from dataclasses import dataclass
from types import (
    CellType,
    CodeType,
    FrameType,
    FunctionType,
    GeneratorType,
    MemberDescriptorType,
    MethodType,
    ModuleType,
)
from typing import Any, Final

import torch

from thunder.base.cache_queries import CACHED
from thunder.base.provenance import (
    ABSENT,
    cell_content,
    lookup_instance,
    lookup_slot,
    lookup_type,
)

__all__ = ["SILENT", "WEAK_CONTAINERS", "Releases", "values_at"]

#: classes whose objects die without an effect, and hold no other objects
SILENT: Final = frozenset(
    {
        *(int, float, complex, bool, str, bytes, type(None), type(ABSENT)),
        *(torch.dtype, torch.device, torch.Size, torch.layout),
    }
)
#: classes of tensors that only weak references and attributes can make run code
_TENSORS: Final = frozenset({torch.Tensor, torch.nn.Parameter, torch.nn.Buffer})
WEAK_CONTAINERS: Final = (weakref.WeakKeyDictionary, weakref.WeakValueDictionary, weakref.WeakSet)

#: what other objects keep alive: classes, modules, code, running calls, the loggers of the process
_KEPT: Final = (type, ModuleType, CodeType, FrameType, logging.Logger)


@dataclass(frozen=True)
class Releases:
    """The parts of an object or container that a program overwrites.

    ``keys`` are those of the parts; None is the whole content. With ``has_weak_containers`` the program sees
    weak containers, from which a dead object is removed.
    """

    keys: tuple[Any, ...] | None
    has_weak_containers: bool

    def holds(self, owner: Any) -> bool:
        """Return whether what is in the places can die without running code of the user's."""
        return self.found(owner) is None

    def found(self, owner: Any) -> type | None:
        """Return the class of an object that runs code when it dies, or None."""
        if self.keys is None:
            return self.found_in(_content(owner), owner)
        return self.found_in([v for key in self.keys for v in values_at(owner, key)], owner)

    def found_in(self, values: Iterable[Any], owner: Any) -> type | None:
        """Return the class of an object among the values, and what they hold, that runs code, or None."""
        pending, seen = [v for v in values if not _is_silent(v)], {id(owner)}
        while pending:
            value = pending.pop()
            if id(value) in seen or isinstance(value, _KEPT):
                continue
            seen.add(id(value))
            if _runs_code(value) or self._has_callback(value):
                return type(value)
            pending += (v for v in _held_by(value) if not _is_silent(v))
        return None

    def _has_callback(self, value: Any) -> bool:
        if not weakref.getweakrefcount(value):
            return False
        callbacks = (r.__callback__ for r in weakref.getweakrefs(value))
        return any(
            c is not None and not (_is_of_container(c) and not self.has_weak_containers) for c in callbacks
        )


def _is_silent(value: Any) -> bool:
    """Return whether an object runs nothing when it dies, and holds no others, where that is soon found."""
    cls = type(value)
    if cls in _TENSORS:
        return not (weakref.getweakrefcount(value) or object.__getattribute__(value, "__dict__"))
    return cls in SILENT


def values_at(owner: Any, key: Any) -> list[Any]:
    """Return the item of a container and the attribute of an object under a key; runs no user code."""
    if type(owner) is dict:
        return [owner.get(key)]
    found = [lookup_instance(owner, key)] if type(key) is str else []
    if isinstance(owner, dict):
        found.append(dict.get(owner, key, ABSENT))
    elif isinstance(owner, (list, deque)) and type(key) is int:
        base: Any = list if isinstance(owner, list) else deque
        found.append(base.__getitem__(owner, key) if key < base.__len__(owner) else ABSENT)
    elif isinstance(owner, torch.Tensor) and key == "grad":
        found.append(lookup_slot(owner, "grad"))
    elif found and found[0] is ABSENT and isinstance(lookup_type(type(owner), key), MemberDescriptorType):
        found.append(lookup_slot(owner, key))
    return found


def _content(owner: Any) -> Iterable[Any]:
    """Return the whole content of a place."""
    if isinstance(owner, CellType):
        return (cell_content(owner),)
    if isinstance(owner, ContextVar):
        return (owner.get(ABSENT),)
    if type(owner) is CACHED:
        return [v for v in gc.get_referents(owner) if v is not owner.__wrapped__ and v is not vars(owner)]
    return gc.get_referents(owner)


def _runs_code(value: Any) -> bool:
    if type(value) is GeneratorType:  # closing it runs its ``finally`` and ``with`` blocks
        return value.gi_suspended and any(
            i.opname == "PUSH_EXC_INFO" for i in dis.get_instructions(value.gi_code)
        )
    return lookup_type(type(value), "__del__") is not ABSENT


def _is_of_container(callback: Any) -> bool:
    """Return whether a callback removes the dead object from a weak container, or from a table of torch's."""
    if type(callback) is weakref.finalize:
        alive = callback.peek()
        if alive is None:
            return True
        callback = alive[1]
    function = callback.func if type(callback) is functools.partial else callback
    function = function.__func__ if type(function) is MethodType else function
    if type(function) is not FunctionType:
        return False
    return function.__module__.partition(".")[0] == "torch" or (
        function.__qualname__.startswith("Weak")
        and (function.__module__, function.__name__) in {("weakref", "remove"), ("_weakrefset", "_remove")}
    )


def _held_by(value: Any) -> Iterable[Any]:
    """Return what an object holds that may die with it: of a tensor, what a program has added to it."""
    if isinstance(value, torch.Tensor):
        return lookup_slot(value, "__dict__").values()  # type: ignore[no-any-return]
    if type(value) is FunctionType:  # its module has its variables
        cells, keywords = value.__closure__ or (), value.__kwdefaults__ or {}
        return [*cells, *(value.__defaults__ or ()), *keywords.values(), *vars(value).values()]
    return gc.get_referents(value)
