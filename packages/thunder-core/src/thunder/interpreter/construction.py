"""Instances and classes: ``type.__call__``, ``type.__new__``, the ``class`` statement."""

from __future__ import annotations

import types
from collections import OrderedDict
from typing import TYPE_CHECKING, Any

from thunder.interpreter.binding import bind
from thunder.interpreter.decode import decode
from thunder.interpreter.frame import Frame, run
from thunder.interpreter.lookup import (
    NATIVE_ATTRIBUTES,
    call_special,
    is_a,
    optional_attribute,
    python_special,
)
from thunder.interpreter.policy import MISSING

if TYPE_CHECKING:
    from thunder.interpreter.machine import Machine


def call_class(machine: Machine, cls: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """``cls(*args, **kwargs)``, the ``__call__`` of its metaclass first."""
    entry = machine.native_table.get(id(cls))
    if entry is not None:
        return entry(machine, args, kwargs)
    meta = type(cls)
    if meta is not type:
        method = machine.policy.type_attr(meta, "__call__")
        if type(method) not in NATIVE_ATTRIBUTES:
            return machine.policy.call(machine.bind_attribute(method, cls, meta), args, kwargs)
    return instantiate(machine, cls, args, kwargs)


def instantiate(machine: Machine, cls: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """``type.__call__(cls, …)``: ``__new__``, then ``__init__`` of an instance of ``cls``."""
    policy = machine.policy
    new = policy.type_attr(cls, "__new__")
    init = policy.type_attr(cls, "__init__")
    is_native = type(new) in NATIVE_ATTRIBUTES and type(init) in NATIVE_ATTRIBUTES
    calls_class = init is OrderedDict.__init__ and cls is not OrderedDict  # for its ``__setitem__``
    if is_native and not calls_class and not issubclass(cls, type):
        return call_native_constructor(machine, cls, new, args, kwargs)
    if type(new) in NATIVE_ATTRIBUTES:
        obj = machine.call_native(new, (cls, *args), kwargs)
    else:
        obj = policy.call(machine.bind_attribute(new, None, cls), (cls, *args), kwargs)
    seen = policy.class_of(obj)
    if cls not in seen.__mro__:
        return obj
    init = policy.type_attr(seen, "__init__")
    if type(init) in NATIVE_ATTRIBUTES:
        if init is not object.__init__ and seen is type(obj):
            machine.call_native(init, (obj, *args), kwargs)
    else:
        result = policy.call(machine.bind_attribute(init, obj, seen), args, kwargs)
        if result is not None:
            raise TypeError(f"__init__() should return None, not '{type(result).__name__}'")
    return obj


def call_native_constructor(
    machine: Machine, cls: Any, new: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Instantiate a class whose construction is native; a base may be in the native table."""
    for base in cls.__mro__:
        entry = machine.constructor_table.get(base)
        if entry is not None:
            args, kwargs = entry(machine, args, kwargs)
            break
    return machine.policy.call_native(cls, args, kwargs)


def type_new(machine: Machine, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """``type.__new__(meta, name, bases, namespace, …)``, with ``__set_name__`` interpreted.

    ``type.__new__`` calls the ``__set_name__`` of each attribute natively. So attributes whose
    ``__set_name__`` is written in Python are left out (a placeholder keeps their place), put in afterwards,
    and get their names from the interpreter.
    """
    if len(args) != 4 or not is_a(args[3], dict):
        return machine.policy.call_native(type.__new__, args, kwargs)
    meta, name, bases, namespace = args
    named: dict[str, Any] = {}
    for key, value in namespace.items():
        if python_special(machine, type(value), "__set_name__") is not MISSING and not is_a(value, type):
            named[key] = value
    if not named:
        return machine.policy.call_native(type.__new__, args, kwargs)
    held = {key: (None if key in named else value) for key, value in namespace.items()}
    cls = machine.policy.call_native(type.__new__, (meta, name, bases, held), kwargs)
    for key, value in named.items():
        machine.policy.set_type_attr(cls, key, value)
    for key, value in named.items():
        method = python_special(machine, type(value), "__set_name__")
        call_special(machine, method, value, cls, key)
    return cls


def build_class(machine: Machine, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """``__build_class__(body, name, *bases, …)``, which a ``class`` statement calls."""
    body, name, *written_bases = args
    keywords = dict(kwargs)
    bases = _resolve_bases(machine, tuple(written_bases))
    meta = keywords.pop("metaclass", None)
    if meta is None:
        meta = type(bases[0]) if bases else type
    if is_a(meta, type):
        meta = _most_derived(meta, bases)
    namespace = _prepare(machine, meta, name, bases, keywords)
    cell = run_class_body(machine, body, namespace)
    if bases != tuple(written_bases):
        machine.store_item(namespace, "__orig_bases__", tuple(written_bases))
    cls = machine.policy.call(meta, (name, bases, namespace), keywords)
    if is_a(cls, type) and is_a(cell, types.CellType):
        _check_class_cell(machine, cell, cls)
    return cls


def _resolve_bases(machine: Machine, bases: tuple[Any, ...]) -> tuple[Any, ...]:
    """Resolve a base that is not a class to the classes that it represents (PEP 560)."""
    resolved: list[Any] = []
    for base in bases:
        if is_a(base, type):
            resolved.append(base)
            continue
        method = optional_attribute(machine, base, "__mro_entries__")
        if method is MISSING:
            resolved.append(base)
            continue
        entries = machine.policy.call(method, (bases,), {})
        if not is_a(entries, tuple):
            raise TypeError("__mro_entries__ must return a tuple")
        resolved += entries
    return tuple(resolved)


def _most_derived(meta: type, bases: tuple[Any, ...]) -> type:
    winner = meta
    for base in bases:
        candidate = type(base)
        if candidate in winner.__mro__:
            continue
        if winner not in candidate.__mro__:
            raise TypeError(
                "metaclass conflict: the metaclass of a derived class must be a (non-strict) subclass of the "
                "metaclasses of all its bases"
            )
        winner = candidate
    return winner


def _prepare(machine: Machine, meta: Any, name: str, bases: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
    if meta is type:
        return {}
    prepare = optional_attribute(machine, meta, "__prepare__")
    if prepare is MISSING:
        return {}
    namespace = machine.policy.call(prepare, (name, bases), keywords)
    if not is_a(namespace, dict) and machine.policy.type_attr(type(namespace), "__getitem__") is MISSING:
        of = meta.__name__ if is_a(meta, type) else "<metaclass>"
        raise TypeError(f"{of}.__prepare__() must return a mapping, not {type(namespace).__name__}")
    return namespace


def run_class_body(machine: Machine, body: types.FunctionType, namespace: Any) -> Any:
    """Interprets the body of a ``class`` statement; returns its ``__class__`` cell or None."""
    parts = machine.policy.function_parts(body)
    decoded = decode(parts.code)
    fast = bind(decoded, parts, body.__qualname__, (), {})
    frame = Frame(machine, decoded, fast, parts.globals, body, namespace)
    run(frame)
    return frame.result


def _check_class_cell(machine: Machine, cell: types.CellType, cls: Any) -> None:
    content = machine.policy.load_cell(cell)
    if content is MISSING:
        raise RuntimeError(
            f"__class__ not set defining {cls.__name__!r} as {cls!r}. "
            "Was __classcell__ propagated to type.__new__?"
        )
    if content is not cls:
        raise TypeError(f"__class__ set to {content!r} defining {cls.__name__!r} as {cls!r}")
