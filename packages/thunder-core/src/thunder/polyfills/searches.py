"""Searches in sequences: the first element that is an object or equals it.

The texts of errors are those of CPython's ``Objects/listobject.c``, ``Objects/tupleobject.c`` and
``Modules/_collectionsmodule.c``.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any, Final

#: whether messages have the ``repr`` of what is not there, for which code of the program may run
_SHOWS_ITEM: Final = sys.version_info < (3, 14)


def _positions(sequence: Any, item: Any, start: int = 0, stop: int = sys.maxsize) -> Iterator[int]:
    """Yield the positions within bounds of what is ``item`` or equals it."""
    position, stop, _ = slice(start, stop).indices(len(sequence))
    while position < stop and position < len(sequence):  # a comparison may change the length
        element = sequence[position]
        if element is item or element == item:
            yield position
        position += 1


def list_index(sequence: Any, item: Any, start: int = 0, stop: int = sys.maxsize, /) -> int:
    """``list.index``."""
    for position in _positions(sequence, item, start, stop):
        return position
    raise ValueError(f"{item!r} is not in list" if _SHOWS_ITEM else "list.index(x): x not in list")


def deque_index(sequence: Any, item: Any, start: int = 0, stop: int = sys.maxsize, /) -> int:
    """``deque.index``."""
    for position in _positions(sequence, item, start, stop):
        return position
    raise ValueError(f"{item!r} is not in deque" if _SHOWS_ITEM else "deque.index(x): x not in deque")


def tuple_index(sequence: Any, item: Any, start: int = 0, stop: int = sys.maxsize, /) -> int:
    """``tuple.index``."""
    for position in _positions(sequence, item, start, stop):
        return position
    raise ValueError("tuple.index(x): x not in tuple")


def index_of(sequence: Any, item: Any, /) -> int:
    """``operator.indexOf`` of a list, tuple or deque."""
    for position in _positions(sequence, item):
        return position
    raise ValueError("sequence.index(x): x not in sequence")


def list_remove(sequence: Any, item: Any, /) -> None:
    """``list.remove``."""
    for position in _positions(sequence, item):
        del sequence[position]
        return
    raise ValueError("list.remove(x): x not in list")


def deque_remove(sequence: Any, item: Any, /) -> None:
    """``deque.remove``."""
    for position in _positions(sequence, item):
        del sequence[position]
        return
    raise ValueError(f"{item!r} is not in deque" if _SHOWS_ITEM else "deque.remove(x): x not in deque")


def count(sequence: Any, item: Any, /) -> int:
    """``list.count`` and the like."""
    number = 0
    for _ in _positions(sequence, item):
        number += 1
    return number
