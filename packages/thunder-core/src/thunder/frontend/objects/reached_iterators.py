"""Iterators of the user that a program advances: a fact where they are; the epilogue advances them as well.

    f(x, iterator): x * next(iterator)    →   prologue:  type, list and position of the iterator
                                              epilogue:  move_to(iterator, 1)

A program works on a copy over the shadow of the list. An ``enumerate``, a ``zip``, a ``map`` and a ``filter``
have iterators as parts.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from thunder.base.iterator_parts import OF_ELEMENTS, OVER_ITERATORS, POSITION, READABLE
from thunder.base.provenance import Path
from thunder.frontend.objects.number_counters import advance

if TYPE_CHECKING:
    from thunder.frontend.objects.object_table import ObjectTable

__all__ = ["ReachedIterator", "adopt_iterator"]


@dataclass(frozen=True, eq=False)
class ReachedIterator:
    """An iterator of the user, its path, the copy that the program advances, and where that began."""

    original: Any
    path: Path
    copy: Any
    start: Any

    @property
    def steps(self) -> int:
        """The number of items that the program has taken; 0 if an iterator among its parts has advanced."""
        if type(self.original) in OVER_ITERATORS:
            return 0
        if type(self.original) is enumerate:
            count: int = self.copy.__reduce__()[1][1] - self.start
            return count
        position = _position(self.copy)
        return int(position != self.start) and (1 if position is None else abs(position - self.start))

    def effect(self) -> tuple[Callable[..., Any], Any]:
        """Return the function that advances the user's iterator as far, and its second argument."""
        if type(self.original) is enumerate:
            return advance, self.steps
        position = _position(self.copy)
        return (exhaust, None) if position is None else (move_to, position)


def _position(iterator: Any) -> Any:
    """Return the position of an iterator over elements, or None at its end."""
    _, _, *state = iterator.__reduce__()
    return state[0] if state else None


def move_to(iterator: Any, position: int) -> None:
    """Set the position of an iterator over elements."""
    iterator.__setstate__(position)


def exhaust(iterator: Any, _: None) -> None:
    """Take all elements from an iterator."""
    deque(iterator, maxlen=0)


def adopt_iterator(table: ObjectTable, raw: Any, path: Path) -> Any:
    """Return the copy of a user's iterator, with the facts about its parts; None for one without parts."""
    cls = type(raw)
    if cls not in READABLE:
        return None
    make, args, *state = raw.__reduce__()
    if cls is enumerate and type(args[0]) not in OF_ELEMENTS:
        return None
    if path.parent is not None:
        table.note("type", path, cls)
    parts = [table.adopt(part, path.step("iterated", i)) for i, part in enumerate(args)]
    table.note("equal", path.step("iterated", POSITION), state[0] if state else None)
    if cls is map or cls is filter:  # which call a function
        parts[0] = table.callback(parts[0])
    copy = make(*parts)
    if state:
        copy.__setstate__(state[0])
    elif cls in OF_ELEMENTS:  # it has ended
        exhaust(copy, None)
    start = args[1] if cls is enumerate else state[0] if state else None
    place = 0 if cls is enumerate else len(table.counts)  # before the iterator that it advances
    table.counts.insert(place, ReachedIterator(raw, path, copy, start))
    table.track(raw, path, copy)
    return copy
