"""Iteration: ``iter``, ``next``, unpacking, and iterables for native code."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from thunder.interpreter.lookup import NATIVE_TYPES, call_special, python_special
from thunder.interpreter.policy import MISSING
from thunder.interpreter.version_differences import CONTAINER_NOUN, COUNT_OF_UNPACKED

if TYPE_CHECKING:
    from thunder.interpreter.machine import Machine


def get_iterator(machine: Machine, obj: Any) -> Any:
    """``iter(obj)``."""
    cls = type(obj)
    if cls in NATIVE_TYPES:
        return machine.policy.call_native(iter, (obj,), {})
    method = machine.policy.type_attr(cls, "__iter__")
    if method is MISSING:
        if python_special(machine, cls, "__getitem__") is not MISSING and not issubclass(cls, dict):
            return _iterate_by_index(machine, obj)
    elif python_special(machine, cls, "__iter__") is not MISSING:
        iterator = call_special(machine, method, obj)
        if machine.policy.type_attr(type(iterator), "__next__") is MISSING:
            raise TypeError(f"iter() returned non-iterator of type '{type(iterator).__name__}'")
        return iterator
    return machine.policy.call_native(iter, (obj,), {})


def _iterate_by_index(machine: Machine, obj: Any) -> Iterator[Any]:
    """The old protocol: ``obj[0]``, ``obj[1]``, … until IndexError or StopIteration."""
    index = 0
    while True:
        try:
            value = machine.load_item(obj, index)
        except (IndexError, StopIteration):
            return
        yield value
        index += 1


def next_or_missing(machine: Machine, iterator: Any) -> Any:
    """``next(iterator)``, or MISSING at its end."""
    cls = type(iterator)
    if cls not in NATIVE_TYPES:
        method = python_special(machine, cls, "__next__")
        if method is not MISSING:
            try:
                return call_special(machine, method, iterator)
            except StopIteration:
                return MISSING
    return machine.policy.next(iterator)


def is_python_iterable(machine: Machine, obj: Any) -> bool:
    """Return whether iterating ``obj`` runs functions of the program."""
    cls = type(obj)
    if cls in NATIVE_TYPES:
        return False
    for name in ("__iter__", "__next__"):
        if python_special(machine, cls, name) is not MISSING:
            return True
    return (
        machine.policy.type_attr(cls, "__iter__") is MISSING
        and python_special(machine, cls, "__getitem__") is not MISSING
    )


def native_iterable(machine: Machine, obj: Any, asked: str = "iter") -> Any:
    """Return ``obj`` in a form whose native iteration runs no function of the program."""
    if is_python_iterable(machine, obj):
        return drive_iterator(machine, get_iterator(machine, obj))
    if asked == "in" and machine.policy.type_attr(type(obj), "__iter__") in (MISSING, None):
        raise TypeError(f"argument of type '{type(obj).__name__}' is not {CONTAINER_NOUN}")
    machine.policy.read_items(obj)
    return obj


def drive_iterator(machine: Machine, iterator: Any) -> Any:
    """An iterator of the program as one that native code can advance."""
    if not is_python_iterable(machine, iterator):
        return iterator
    return _drive(machine, iterator)


def _drive(machine: Machine, iterator: Any) -> Iterator[Any]:
    while (value := next_or_missing(machine, iterator)) is not MISSING:
        yield value


def iterate(machine: Machine, obj: Any) -> Iterator[Any]:
    """The elements of ``obj``, for use within the interpreter."""
    cls = type(obj)
    if cls is list or cls is tuple:
        if cls is list:
            machine.policy.read_items(obj)
        return iter(obj)
    return _drive(machine, get_iterator(machine, obj))


def unpack(machine: Machine, obj: Any, count: int) -> list[Any]:
    """The ``count`` elements of ``obj``."""
    cls = type(obj)
    if cls is tuple or cls is list:
        if cls is list:
            machine.policy.read_items(obj)
        items = list(obj)
        if len(items) > count:
            raise _too_many(obj, count)
    else:
        iterator = _unpack_iterator(machine, obj)
        items = []
        while len(items) < count and (value := next_or_missing(machine, iterator)) is not MISSING:
            items.append(value)
        if len(items) == count and next_or_missing(machine, iterator) is not MISSING:
            raise _too_many(obj, count)
    if len(items) < count:
        raise ValueError(f"not enough values to unpack (expected {count}, got {len(items)})")
    return items


def _too_many(obj: Any, count: int) -> ValueError:
    got = COUNT_OF_UNPACKED.format(len(obj)) if type(obj) in (list, tuple, dict) else ""
    return ValueError(f"too many values to unpack (expected {count}{got})")


def unpack_starred(
    machine: Machine, obj: Any, before: int, after: int
) -> tuple[list[Any], list[Any], list[Any]]:
    """The elements of ``obj`` before, in and after a starred target."""
    items = list(_drive(machine, _unpack_iterator(machine, obj)))
    if len(items) < before + after:
        raise ValueError(
            f"not enough values to unpack (expected at least {before + after}, got {len(items)})"
        )
    end = len(items) - after
    return items[:before], items[before:end], items[end:]


def _unpack_iterator(machine: Machine, obj: Any) -> Any:
    cls = type(obj)
    if (
        machine.policy.type_attr(cls, "__iter__") is MISSING
        and machine.policy.type_attr(cls, "__getitem__") is MISSING
    ):
        raise TypeError(f"cannot unpack non-iterable {cls.__name__} object")
    return get_iterator(machine, obj)
