"""The descriptors by which the tables of natives know a callable in C."""

from __future__ import annotations

import types
from collections.abc import Iterator
from typing import Any

__all__ = ["defining_class", "descriptor_of", "is_of_module"]


def descriptor_of(fn: Any) -> Any:
    """Return the object by which the tables know a native callable.

    For a method bound to an object or class, which is a new object at each read, this is the descriptor in
    the class that defines it, such as ``vars(list)["append"]`` for ``[].append``. A callable of any other
    kind is returned as it is.
    """
    if isinstance(fn, types.MethodWrapperType):
        return vars(fn.__objclass__).get(fn.__name__, fn)
    if not isinstance(fn, types.BuiltinFunctionType):
        return fn
    if is_of_module(fn):
        return fn
    owner = fn.__self__
    for descriptor in _candidates(owner, fn.__name__):
        if descriptor is fn or _is_read_from(descriptor, owner, fn):
            return descriptor
    return fn


def is_of_module(fn: types.BuiltinFunctionType) -> bool:
    """Return whether a function in C is one of a module, and not a method that is bound at each read."""
    owner: Any = fn.__self__
    return owner is None or isinstance(owner, types.ModuleType)


def _candidates(owner: Any, name: str) -> Iterator[Any]:
    kind: type = type(owner)
    bases: tuple[type, ...] = owner.__mro__ if isinstance(owner, type) else ()
    for cls in (*bases, *kind.__mro__):
        if name in vars(cls):
            yield vars(cls)[name]


def _is_read_from(descriptor: Any, owner: Any, fn: Any) -> bool:
    """Return whether a descriptor binds to this method: one C function, on one object."""
    if isinstance(descriptor, types.ClassMethodDescriptorType):
        return bool(descriptor.__get__(None, owner if isinstance(owner, type) else type(owner)) == fn)
    if not isinstance(descriptor, types.MethodDescriptorType):
        return False
    return isinstance(owner, descriptor.__objclass__) and bool(descriptor.__get__(owner, type(owner)) == fn)


def defining_class(fn: Any, descriptor: Any) -> type | None:
    """Return the class that defines a native method, or None for a function of a module."""
    cls = getattr(descriptor, "__objclass__", None)
    if cls is None and isinstance(fn, types.BuiltinFunctionType) and isinstance(fn.__self__, type):
        return fn.__self__  # of ``__new__``, which a class has for itself
    return cls if isinstance(cls, type) else None
