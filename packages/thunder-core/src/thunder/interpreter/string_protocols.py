"""Texts and hashes: ``repr``, ``str``, ``format``, arguments of native formatting."""

from __future__ import annotations

import _locale
import datetime
import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from thunder.interpreter.lookup import (
    LEAF_TYPES,
    NATIVE_TYPES,
    READING_METHODS,
    StandIn,
    all_leaves,
    call_special,
    has_python_special,
    is_a,
    python_special,
)
from thunder.interpreter.policy import MISSING

if TYPE_CHECKING:
    from thunder.interpreter.machine import Machine


def checked(method: str, expected: type, message: str) -> Callable[[Machine, Any], Any]:
    """A protocol of one special method that must return an ``expected``."""

    def convert(machine: Machine, value: Any) -> Any:
        result = call_special(machine, python_special(machine, type(value), method), value)
        if not is_a(result, expected):
            raise TypeError(message.format(type(result).__name__))
        return result

    return convert


_repr_of = checked("__repr__", str, "__repr__ returned non-string (type {})")
_str_of = checked("__str__", str, "__str__ returned non-string (type {})")
_hash_of = checked("__hash__", int, "__hash__ method should return an integer")


def to_repr(machine: Machine, value: Any) -> str:
    """``repr(value)``."""
    if has_python_special(machine, value, "__repr__"):
        text: str = _repr_of(machine, value)
        return text
    if type(value) in _BRACKETS and not all_leaves(value.values() if type(value) is dict else value):
        return _repr_container(machine, value)
    text = machine.policy.call_native(repr, (value,), {})
    return text


_BRACKETS: Final[dict[type, tuple[str, str]]] = {
    list: ("[", "]"),
    tuple: ("(", ")"),
    set: ("{", "}"),
    dict: ("{", "}"),
}


def _repr_container(machine: Machine, value: Any) -> str:
    """The text of a builtin container, that of each element interpreted."""
    opening, closing = _BRACKETS[type(value)]
    open_containers = machine.thread.containers_in_repr
    if id(value) in open_containers:
        return f"{opening}...{closing}"
    open_containers.add(id(value))
    try:
        if type(value) is dict:
            items = [f"{to_repr(machine, k)}: {to_repr(machine, v)}" for k, v in value.items()]
        else:
            items = [to_repr(machine, item) for item in value]
    finally:
        open_containers.discard(id(value))
    comma = "," if type(value) is tuple and len(items) == 1 else ""
    return machine.policy.copied_text(f"{opening}{', '.join(items)}{comma}{closing}")


def to_str(machine: Machine, value: Any) -> str:
    """``str(value)``."""
    if type(value) is str:
        return value
    if has_python_special(machine, value, "__str__"):
        text: str = _str_of(machine, value)
        return text
    if type(value) in _BRACKETS:
        return to_repr(machine, value)
    if type(value) not in NATIVE_TYPES and machine.policy.type_attr(type(value), "__str__") is object.__str__:
        return to_repr(machine, value)
    text = machine.policy.call_native(str, (value,), {})
    return text


def to_format(machine: Machine, value: Any, spec: str = "") -> str:
    """``format(value, spec)``."""
    cls = type(value)
    if spec and (is_a(value, _DATES) or (is_a(spec, str) and spec[-1:] == "n")):
        _read_locale(machine)
    if cls in LEAF_TYPES and type(spec) is str:
        return format(value, spec)
    method = python_special(machine, cls, "__format__")
    if method is not MISSING:
        result = call_special(machine, method, value, spec)
        if not is_a(result, str):
            raise TypeError(f"__format__ must return a str, not {type(result).__name__}")
        text: str = result
        return text
    if (
        spec == ""
        and cls not in NATIVE_TYPES
        and machine.policy.type_attr(cls, "__format__") is object.__format__
    ):
        return to_str(machine, value)
    if spec == "" and cls in _BRACKETS:
        return to_repr(machine, value)
    text = machine.policy.call_native(format, (value, spec), {})
    return text


#: classes whose formats may have names of months and days
_DATES: Final = datetime.date | datetime.time


def _read_locale(machine: Machine) -> None:
    """Let the host know that a text depends on the locale, as a program does that asks which it is."""
    machine.call(_locale.setlocale, (_locale.LC_ALL,))


def to_hash(machine: Machine, value: Any) -> int:
    """``hash(value)``."""
    if has_python_special(machine, value, "__hash__"):
        return hash(int(_hash_of(machine, value)))
    number: int = machine.policy.call_native(hash, (value,), {})
    return number


class Shown(StandIn):
    """A stand-in for an object in native formatting, whose methods are interpreted."""

    def __str__(self) -> str:
        return to_str(self._machine, self._value)

    def __repr__(self) -> str:
        return to_repr(self._machine, self._value)


class Field(Shown):
    """An argument of ``str.format``, whose replacement fields may read attributes and items."""

    def __format__(self, spec: str) -> str:
        return to_format(self._machine, self._value, spec)

    def __getattr__(self, name: str) -> Any:
        return field(self._machine, self._machine.policy.load_attr(self._value, name))

    def __getitem__(self, key: Any) -> Any:
        return field(self._machine, self._machine.load_item(self._value, key))


def field(machine: Machine, value: Any) -> Any:
    """Return ``value`` as an argument of ``str.format``."""
    return value if type(value) in LEAF_TYPES else Field.of(machine, value)


_CALLED_BY_PERCENT: Final = {
    name: READING_METHODS[name] for name in ("__int__", "__float__", "__index__", "__getitem__")
}


@functools.lru_cache
def _shown_class(name: str, methods: tuple[str, ...]) -> type[Shown]:
    """A :class:`Shown` that has items and converts to numbers as the object does, named as its class."""
    return type(name, (Shown,), {method: _CALLED_BY_PERCENT[method] for method in methods})


def percent_operand(machine: Machine, value: Any) -> Any:
    """Return ``value`` as the right operand of ``str % value``, which may ask it for items."""
    if is_a(value, tuple):  # of a namedtuple too, ``%`` formats the items
        return tuple(_shown(machine, item) for item in tuple.__iter__(value))
    if type(value) is dict:
        return {key: _shown(machine, item) for key, item in value.items()}
    return _shown(machine, value)


def _shown(machine: Machine, value: Any) -> Any:
    cls = type(value)
    if cls not in _BRACKETS and not has_python_special(
        machine, value, "__str__", "__repr__", *_CALLED_BY_PERCENT
    ):
        return value
    methods = tuple(name for name in _CALLED_BY_PERCENT if machine.policy.type_attr(cls, name) is not MISSING)
    return _shown_class(cls.__name__, methods).of(machine, value)


def format_fields(machine: Machine, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """``str.format(text, *args, **kwargs)``."""
    _note_locale_of(machine, args[:1])
    shown = tuple(field(machine, arg) for arg in args[1:])
    named = {name: field(machine, value) for name, value in kwargs.items()}
    return machine.policy.call_native(str.format, (*args[:1], *shown), named)


def format_mapping(machine: Machine, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """``str.format_map(text, mapping)``."""
    _note_locale_of(machine, args[:1])
    shown = tuple(Field.of(machine, arg) for arg in args[1:])
    return machine.policy.call_native(str.format_map, (*args[:1], *shown), kwargs)


def _note_locale_of(machine: Machine, texts: tuple[Any, ...]) -> None:
    """Read the locale for texts that may format a number by ``n``; numbers are not shown as fields."""
    if any(is_a(text, str) and ("n}" in text or "}}" in text) for text in texts):
        _read_locale(machine)
