"""Searches in sequences whose elements may have ``__eq__`` in Python.

points.index(p)   →   points[0] is p or points[0] == p, then points[1] …, until one is
points.remove(p)  →   the same, then del points[i]

Sequences of numbers, strings and the like are searched by C. The texts of errors are those of CPython's
``Objects/listobject.c``, ``Objects/tupleobject.c`` and ``Modules/_collectionsmodule.c``.
"""

from __future__ import annotations

import collections
import operator
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

from thunder.interpreter import operator_protocols, string_protocols
from thunder.interpreter.lookup import stand_in
from thunder.interpreter.native_registry import Args, Entries, Kwargs, Native

if TYPE_CHECKING:
    from thunder.interpreter.machine import Machine

ENTRIES: Final = Entries()

#: search for an index → the text of the ValueError
_INDEX: Final[dict[Any, str]] = {
    list.index: "{} is not in list",
    collections.deque.index: "{} is not in deque",
    tuple.index: "tuple.index(x): x not in tuple",
    operator.indexOf: "sequence.index(x): x not in sequence",
}
_REMOVE: Final[dict[Any, str]] = {
    list.remove: "list.remove(x): x not in list",
    collections.deque.remove: "{} is not in deque",
}
_COUNT: Final = (list.count, collections.deque.count, tuple.count, operator.countOf)


def _positions(
    machine: Machine, sequence: Any, item: Any, start: int = 0, stop: int = sys.maxsize
) -> Iterator[int]:
    """Yield the positions within bounds of what is ``item`` or equals it."""
    position, stop, _ = slice(start, stop).indices(len(sequence))
    while position < min(stop, len(sequence)):  # a comparison may change the length
        if operator_protocols.is_or_equals(machine, sequence[position], item):
            yield position
        position += 1


def _searching(native: Any, most: int, found: Callable[[Machine, Args], Any]) -> Native:
    """Return the entry of a native search with at most so many arguments.

    It is ``found`` where comparisons may be Python and the arguments are right.
    """

    def search(machine: Machine, args: Args, kwargs: Kwargs) -> Any:
        args = (*args[:2], *(stand_in(machine, bound) for bound in args[2:]))
        is_right = not kwargs and 2 <= len(args) <= most and all(type(bound) is int for bound in args[2:])
        if is_right and operator_protocols.compares_in_python(*args[:2]):
            return found(machine, args)
        return machine.policy.call_native(native, args, kwargs)

    return search


def _index(text: str) -> Callable[[Machine, Args], int]:
    def index(machine: Machine, args: Args) -> int:
        for position in _positions(machine, *args):
            return position
        raise _missing(machine, text, args[1])

    return index


def _remove(text: str) -> Callable[[Machine, Args], None]:
    def remove(machine: Machine, args: Args) -> None:
        for position in _positions(machine, *args):
            operator_protocols.delete_item(machine, args[0], position)
            return
        raise _missing(machine, text, args[1])

    return remove


def _missing(machine: Machine, text: str, item: Any) -> ValueError:
    return ValueError(text.format(string_protocols.to_repr(machine, item)) if "{" in text else text)


def _count(machine: Machine, args: Args) -> int:
    return sum(1 for _ in _positions(machine, *args))


for _native, _text in _INDEX.items():
    ENTRIES[id(_native)] = _searching(_native, 2 if _native is operator.indexOf else 4, _index(_text))
for _native, _text in _REMOVE.items():
    ENTRIES[id(_native)] = _searching(_native, 2, _remove(_text))
for _native in _COUNT:
    ENTRIES[id(_native)] = _searching(_native, 2, _count)
