"""Texts and hashes: ``repr``, ``str``, ``format``, arguments of native formatting."""

from __future__ import annotations

import _locale
import datetime
import functools
import itertools
import operator
import sys
import types
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from thunder.interpreter.lookup import (
    LEAF_TYPES,
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
    return _of_native(machine, value, "__repr__", repr)


def to_str(machine: Machine, value: Any) -> str:
    """``str(value)``."""
    if type(value) is str:
        return value
    if has_python_special(machine, value, "__str__"):
        text: str = _str_of(machine, value)
        return text
    return _of_native(machine, value, "__str__", str)


def to_ascii(machine: Machine, value: Any) -> str:
    """``ascii(value)``."""
    if type(value) in LEAF_TYPES:
        return ascii(value)
    text = to_repr(machine, value)
    return machine.policy.copied_text(text.encode("ascii", "backslashreplace").decode("ascii"))


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
    if spec == "" and machine.policy.type_attr(cls, "__format__") is object.__format__:
        return to_str(machine, value)
    text = machine.policy.call_native(format, (value, spec), {})
    return text


# -- texts that C code makes of the texts of other objects ---------------------------------------------------


def _of_native(machine: Machine, value: Any, name: str, native: Callable[[Any], str]) -> str:
    """Return the text of an object whose method is in C: interpreted if it shows other objects."""
    if type(value) not in LEAF_TYPES:
        text_of = _TEXTS.get(id(machine.policy.type_attr(type(value), name)))
        if text_of is not None:
            machine.policy.read_items(value)
            return machine.policy.copied_text(text_of(machine, value, native))
    text: str = machine.policy.call_native(native, (value,), {})
    return text


_Text: TypeAlias = "Callable[[Machine, Any, Callable[[Any], str]], str]"


def _nested(machine: Machine, value: Any, text: Callable[[], str], inner: str) -> str:
    """Return the text of a container; ``inner`` within that text, of one that contains itself."""
    open_containers = machine.thread.containers_in_repr
    if id(value) in open_containers:
        return inner
    open_containers.add(id(value))
    try:
        return text()
    finally:
        open_containers.discard(id(value))


def _brackets(opening: str, closing: str, base: type) -> _Text:
    """Return the text of a container, such as ``[a, b]``; that of a set names the class."""

    def text_of(machine: Machine, value: Any, native: Callable[[Any], str]) -> str:
        parts = _flat(value) if base is dict else list(base.__iter__(value))  # type: ignore[attr-defined]
        if all_leaves(parts):
            text: str = machine.policy.call_native(native, (value,), {})
            return text

        def bracketed() -> str:
            items = [to_repr(machine, part) for part in parts]
            if base is dict:
                items = [f"{key}: {item}" for key, item in _pairs(items)]
            comma = "," if base is tuple and len(items) == 1 else ""
            text = f"{opening}{', '.join(items)}{comma}{closing}"
            is_named = base is frozenset or (base is set and type(value) is not set)
            return f"{type(value).__name__}({text})" if is_named else text

        return _nested(machine, value, bracketed, f"{opening}...{closing}")

    return text_of


def _rebuilt(
    parts_of: Callable[[Any], list[Any]], build: Callable[[Any, list[Any]], Any], inner: str
) -> _Text:
    """Return the text that C code makes of an equal object, whose parts are stand-ins."""

    def text_of(machine: Machine, value: Any, native: Callable[[Any], str]) -> str:
        parts = parts_of(value)
        if all_leaves(parts):
            text: str = machine.policy.call_native(native, (value,), {})
            return text

        def shown() -> str:
            rebuilt = build(value, [p if type(p) in LEAF_TYPES else Shown.of(machine, p) for p in parts])
            text: str = machine.policy.call_native(repr, (rebuilt,), {})
            name = type(rebuilt).__name__
            is_derived = type(value) is not type(rebuilt) and text.startswith(name)
            return type(value).__name__ + text[len(name) :] if is_derived else text

        return _nested(machine, value, shown, inner)

    return text_of


def _pairs(parts: list[Any]) -> list[tuple[Any, Any]]:
    return list(zip(parts[::2], parts[1::2], strict=True))


def _flat(mapping: Any) -> list[Any]:
    return [part for pair in dict.items(mapping) for part in pair]


def _default_dict(machine: Machine, value: Any, native: Callable[[Any], str]) -> str:
    factory = machine.policy.load_attr(value, "default_factory")
    if type(factory) is types.FunctionType:
        factory = vars(factory).get("thunder_interpreted", factory)
    items = _TEXTS[id(dict.__repr__)](machine, value, dict.__repr__)
    return f"{type(value).__name__}({to_repr(machine, factory)}, {items})"


def _namespace(machine: Machine, value: Any, native: Callable[[Any], str]) -> str:
    def shown() -> str:
        attributes = machine.policy.load_attr(value, "__dict__")
        return f"{name}({', '.join(f'{key}={to_repr(machine, item)}' for key, item in attributes.items())})"

    name = "namespace" if type(value) is types.SimpleNamespace else type(value).__name__
    return _nested(machine, value, shown, f"{name}(...)")


def _view_repr(machine: Machine, value: Any, native: Callable[[Any], str]) -> str:
    return f"mappingproxy({_view_str(machine, value, native)})"


def _view_str(machine: Machine, value: Any, native: Callable[[Any], str]) -> str:
    return to_repr(machine, machine.policy.call(machine.policy.load_attr(value, "copy"), (), {}))


def _partial(machine: Machine, value: Any, native: Callable[[Any], str]) -> str:
    def shown() -> str:
        fn, args, keywords = (machine.policy.load_attr(value, name) for name in ("func", "args", "keywords"))
        items = [to_repr(machine, item) for item in (fn, *args)]
        items += [f"{key}={to_repr(machine, item)}" for key, item in keywords.items()]
        return f"{name}({', '.join(items)})"

    name = "functools.partial" if type(value) is functools.partial else type(value).__name__
    return _nested(machine, value, shown, "...")


def _arguments(machine: Machine, error: BaseException) -> tuple[Any, ...]:
    args: tuple[Any, ...] = machine.policy.load_attr(error, "args")
    return args


def _error_repr(machine: Machine, error: Any, native: Callable[[Any], str]) -> str:
    args = _arguments(machine, error)
    shown = f"({to_repr(machine, args[0])})" if len(args) == 1 else to_repr(machine, args)
    return f"{type(error).__name__}{shown}"


def _error_str(machine: Machine, error: Any, native: Callable[[Any], str]) -> str:
    args = _arguments(machine, error)
    if len(args) == 1:
        return to_str(machine, args[0])
    return to_repr(machine, args) if args else ""


def _key_error_str(machine: Machine, error: Any, native: Callable[[Any], str]) -> str:
    args = _arguments(machine, error)
    return to_repr(machine, args[0]) if len(args) == 1 else _error_str(machine, error, native)


def _method_repr(machine: Machine, method: Any, native: Callable[[Any], str]) -> str:
    name = getattr(method.__func__, "__qualname__", getattr(method.__func__, "__name__", "?"))
    return f"<bound method {name} of {to_repr(machine, machine.policy.load_attr(method, '__self__'))}>"


def _own_repr(machine: Machine, value: Any, native: Callable[[Any], str]) -> str:
    return to_repr(machine, value)


_VIEWED: Final[dict[Any, Any]] = {}
_KEYS, _VALUES, _ITEMS = type(_VIEWED.keys()), type(_VIEWED.values()), type(_VIEWED.items())
_TEXT_ROWS: Final[list[tuple[Any, _Text]]] = [
    (list.__repr__, _brackets("[", "]", list)),
    (tuple.__repr__, _brackets("(", ")", tuple)),
    (set.__repr__, _brackets("{", "}", set)),
    (frozenset.__repr__, _brackets("{", "}", frozenset)),
    (dict.__repr__, _brackets("{", "}", dict)),
    (defaultdict.__repr__, _default_dict),
    (deque.__repr__, _rebuilt(list, lambda d, parts: deque(parts, d.maxlen), "[...]")),
    (OrderedDict.__repr__, _rebuilt(_flat, lambda d, parts: OrderedDict(_pairs(parts)), "...")),
    (_KEYS.__repr__, _rebuilt(list, lambda d, parts: dict.fromkeys(parts).keys(), "...")),
    (_VALUES.__repr__, _rebuilt(list, lambda d, parts: dict(enumerate(parts)).values(), "...")),
    (
        _ITEMS.__repr__,
        _rebuilt(lambda d: list(itertools.chain(*d)), lambda d, parts: dict(_pairs(parts)).items(), "..."),
    ),
    (slice.__repr__, _rebuilt(lambda s: [s.start, s.stop, s.step], lambda s, parts: slice(*parts), "...")),
    (types.SimpleNamespace.__repr__, _namespace),
    (functools.partial.__repr__, _partial),
    (types.MappingProxyType.__repr__, _view_repr),
    (types.MappingProxyType.__str__, _view_str),
    (BaseException.__repr__, _error_repr),
    (BaseException.__str__, _error_str),
    (KeyError.__str__, _key_error_str),
    (types.MethodType.__repr__, _method_repr),
    (object.__str__, _own_repr),
]
_TEXTS: Final[dict[int, _Text]] = {id(method): text_of for method, text_of in _TEXT_ROWS}


def text_methods() -> Iterator[tuple[Any, Callable[[Machine, Any], str]]]:
    """Yield the methods in C whose texts show other objects, with what the interpreter does instead."""
    for method, text_of in _TEXT_ROWS:
        yield method, functools.partial(_text_by, method, text_of)


def _text_by(method: Any, text_of: _Text, machine: Machine, value: Any) -> str:
    return machine.policy.copied_text(text_of(machine, value, method))


#: classes whose formats may have names of months and days
_DATES: Final = datetime.date | datetime.time


def _read_locale(machine: Machine) -> None:
    """Let the host know that a text depends on the locale, as a program does that asks which it is."""
    machine.call(_locale.setlocale, (_locale.LC_ALL,))


def to_hash(machine: Machine, value: Any) -> int:
    """``hash(value)``."""
    if has_python_special(machine, value, "__hash__"):
        result = int.__int__(operator.index(_hash_of(machine, value)))
        # ``slot_tp_hash`` takes an integer that fits as it is, and hashes others; -1 is for errors
        number = result if -sys.maxsize - 1 <= result <= sys.maxsize else hash(result)
        return -2 if number == -1 else number
    found: int = machine.policy.call_native(hash, (value,), {})
    return found


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
    if cls in LEAF_TYPES:
        return value
    of_class = machine.policy.type_attr
    shows_others = any(id(of_class(cls, name)) in _TEXTS for name in ("__repr__", "__str__"))
    if not shows_others and not has_python_special(
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
