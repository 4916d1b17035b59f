"""Attributes and methods of numbers that are values of the trace.

n.real, n.conjugate()     →   n
n.imag, n.denominator     →   0 of its type, 1
n.bit_length()            →   the method of the value, which is a decision; an operation on a size
n is 7                    →   the identity of the value, which is a decision
hash((n, "a"))            →   the hash of the tuple with the value, which is a decision
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import torch

from thunder.frontend.objects.class_kinds import is_compared_by_parts
from thunder.frontend.session import TracingSession
from thunder.interpreter.string_protocols import Shown
from thunder.ir.number_proxies import decided_value
from thunder.ir.proxies import ComplexProxy, FloatProxy, IntegerProxy, NumberProxy
from thunder.ir.symbolic_sizes import SizeTuple, SymbolicFloat, SymbolicInt

#: the classes of numbers of a trace
NUMBERS: Final = frozenset({NumberProxy, IntegerProxy, FloatProxy, ComplexProxy})


def load_attr(session: TracingSession, number: NumberProxy, name: str) -> Any:
    """Return ``number.name``.

    Raises AttributeError with Python's text, DataDependentControlFlow where no value can be decided.
    """
    if name in _OF_SYMBOLS.get(type(number), ()):
        return getattr(number, name)
    cls = session.class_of(number)
    if name == "__class__":
        return cls
    if not hasattr(cls, name):
        raise AttributeError(f"{cls.__name__!r} object has no attribute {name!r}", name=name)
    if cls is int or cls is float:
        if name in ("real", "numerator"):
            return number
        if name == "conjugate":
            return lambda: number
    if name == "imag" and cls is not complex:
        return 0.0 if cls is float else 0
    if name == "denominator":
        return 1
    return session.load_attr(decided_value(number, name), name)


#: the classes of numbers that sizes determine → methods that give such numbers, or ask for a fact
_OF_SYMBOLS: Final[dict[type, frozenset[str]]] = {
    SymbolicInt: frozenset({"bit_length", "bit_count"}),
    SymbolicFloat: frozenset({"is_integer"}),
}


def store_attr(session: TracingSession, number: NumberProxy, name: str, value: Any) -> None:
    """Raise the AttributeError of Python, whose numbers have no attributes to write."""
    session.store_attr(number.python_type(), name, value)


def delete_attr(session: TracingSession, number: NumberProxy, name: str) -> None:
    """Raise the AttributeError of Python, whose numbers have no attributes to delete."""
    session.delete_attr(number.python_type(), name)


def class_of(session: TracingSession, number: NumberProxy) -> type:
    """Return the class of a number."""
    return number.python_type


def is_same(session: TracingSession, a: NumberProxy, b: Any) -> bool:
    """Return ``a is b``; equal small integers are one object.

    Raises DataDependentControlFlow where no value can be decided.
    """
    if a is b:
        return True
    kind = b.python_type if issubclass(type(b), NumberProxy) else type(b)
    return a.python_type is kind and decided_value(a, "is") is decided_value(b, "is")


def has_number(values: Iterable[Any]) -> bool:
    """Return whether one of the arguments of native code is a number of the trace."""
    return any(type(_unwrapped(x)) in NUMBERS for value in values for x in _parts(value))


def with_values(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Return the arguments of a native function with the values of numbers, which are decisions."""

    def plain(value: Any) -> Any:
        if type(value) is tuple:
            return tuple(map(plain, value))
        number = _unwrapped(value)
        return decided_value(number, name) if type(number) in NUMBERS else value

    return tuple(map(plain, args)), {key: plain(a) for key, a in kwargs.items()}


def value_of_key(value: Any) -> Any:
    """Return a key with the values of numbers of the trace in it: decisions, or fixed sizes.

    Raises DataDependentControlFlow where no value can be decided.
    """
    if isinstance(value, NumberProxy):
        return decided_value(value, "a key")
    kind = type(value)
    if isinstance(value, tuple | frozenset) and (kind is SizeTuple or is_compared_by_parts(kind)):
        parts = list(map(value_of_key, value))
        if all(a is b for a, b in zip(parts, value, strict=True)):
            return value
        make = torch.Size if kind is SizeTuple else getattr(kind, "_make", kind)
        return make(parts)
    return value


def _parts(value: Any) -> Iterable[Any]:
    return value if type(value) is tuple else (value,)


def _unwrapped(value: Any) -> Any:
    """Return an argument of native formatting in the place of its wrapper."""
    return value._value if isinstance(value, Shown) else value
