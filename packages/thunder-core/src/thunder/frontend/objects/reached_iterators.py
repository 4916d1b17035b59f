"""Iterators of the user that a program advances: a fact where they are; the epilogue advances them as well.

    f(x, iterator): x * next(iterator)    →   prologue:  type, list and position of the iterator
                                              epilogue:  set_state(iterator, 1)

A program works on a copy over the shadow of the list. An ``enumerate``, a ``zip``, a ``map``, a ``cycle`` and
others have iterators as parts. What a ``cycle`` keeps is a list like any, to which its copy appends. The text
of an ``itertools.count`` tells where it is.
"""

from __future__ import annotations

import copy
import itertools
import re
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from thunder.base.errors import UnsupportedProgram
from thunder.base.iterator_parts import (
    OF_ELEMENTS,
    OVER_ITERATORS,
    OVER_RANGE,
    POSITION,
    READABLE,
    parts_and_position,
    reduced,
    set_state,
)
from thunder.base.provenance import Path
from thunder.ops import prims

if TYPE_CHECKING:
    from thunder.frontend.objects.object_table import ObjectTable

__all__ = ["ReachedIterator", "adopt_getter", "adopt_iterator"]


_TEXT = re.compile(r"count\((-?\d+)(?:, (-?\d+))?\)")


@dataclass(frozen=True, eq=False)
class Count:
    """A counter of the user, its path, the copy that the program advances, and where that began."""

    original: itertools.count[Any]
    path: Path
    copy: itertools.count[Any]
    start: int
    step: int

    @classmethod
    def of(cls, original: itertools.count[Any], path: Path) -> Count | None:
        """Return a counter with a copy, or None for one of other numbers than integers."""
        position = position_of(original)
        if position is None:
            return None
        return cls(original, path, itertools.count(*position), *position)

    @property
    def steps(self) -> int:
        """Return how often the program has advanced the counter."""
        position = position_of(self.copy)
        assert position is not None, "a copy counts integers"
        return (position[0] - self.start) // self.step if self.step else 0

    @property
    def has_ended(self) -> bool:
        """Return False: there is always another number."""
        return False

    def effect(self) -> tuple[Callable[..., Any], Any]:
        """Return the function that advances the user's counter as far, and its second argument."""
        return advance, self.steps


def position_of(counter: itertools.count[Any]) -> tuple[int, int] | None:
    """Return the next number and the step of a counter of integers, or None for others."""
    match = _TEXT.fullmatch(repr(counter))
    return match and (int(match[1]), int(match[2] or 1))


def advance(counter: Iterator[Any], steps: int) -> None:
    """Take so many elements from an iterator."""
    next(itertools.islice(counter, steps, steps), None)


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
        parts, position = parts_and_position(self.copy)
        if type(self.original) is itertools.cycle:
            return self._steps_past_the_first_pass(parts, position)
        if type(self.original) is OVER_RANGE:
            steps: int = (position or 0) - (self.start or 0)
            return steps
        return int(position != self.start) and (1 if position is None else abs(position - self.start))

    def _steps_past_the_first_pass(self, parts: tuple[Any, ...], position: int | None) -> int:
        """Return how often to advance a user's cycle that has the elements which its copy keeps."""
        count = len(parts[0]) or 1  # one step without elements tells a cycle that it has none
        if self.start is None:
            return 0 if position is None else position or count
        if position is None:
            position = parts_and_position(parts[2])[1]
        steps: int = (position - self.start) % count
        return steps

    @property
    def has_ended(self) -> bool:
        """Return whether the program has taken all items, so that the iterator releases what it holds."""
        return type(self.original) in OF_ELEMENTS and parts_and_position(self.copy)[1] is None

    def effect(self) -> tuple[Callable[..., Any], Any]:
        """Return the function that advances the user's iterator as far, and its second argument.

        Raises UnsupportedProgram where the program has shortened the list to less than it has taken of it.
        """
        if type(self.original) in _WITHOUT_SETTER:
            return advance, self.steps
        if type(self.original) in OF_ELEMENTS and _is_past_the_end(self.copy):
            raise UnsupportedProgram(
                f"the program shortens the list of {self.path.source} to less than it has taken of it",
                hint="Take the elements by their indices.",
            )
        _, position = parts_and_position(self.copy)
        return (exhaust, None) if position is None else (set_state, position)


#: iterators whose position cannot be set, or only from where they are
_WITHOUT_SETTER = frozenset({enumerate, itertools.repeat, itertools.cycle, OVER_RANGE})
#: iterators that call a function, which is their first part
_CALLING = frozenset(
    {map, filter, itertools.starmap, itertools.filterfalse, itertools.takewhile, itertools.dropwhile}
)


def exhaust(iterator: Any, _: None) -> None:
    """Take all elements from an iterator."""
    deque(iterator, maxlen=0)


def adopt_iterator(table: ObjectTable, raw: Any, path: Path) -> Any:
    """Return what the program advances in the place of a user's iterator, with the facts about it.

    Raises UnsupportedProgram for one that has other uses than to be advanced.
    """
    count = Count.of(raw, path) if type(raw) is itertools.count else None
    copied = _adopt_parts(table, raw, path) if count is None else _adopt_count(table, count)
    if copied is None:
        copied = table.adopt_unread_iterator(raw, path)
    if copied is None:
        raise UnsupportedProgram(
            f"{path.source} is of type {type(raw).__name__}, which can be read only by consuming it",
            hint="Pass a list or tuple of its elements.",
        )
    return copied


def adopt_getter(table: ObjectTable, raw: Any, path: Path) -> Any:
    """Return an ``itemgetter`` or the like of the user over its adopted arguments."""
    parts, position = parts_and_position(raw)
    table.note(prims.check_literal_like, path.step("iterated", POSITION), position)
    adopted = [table.adopt(part, path.step("iterated", i)) for i, part in enumerate(parts)]
    count, *names = position
    plain = count - len(names)
    getter = type(raw)(*adopted[:plain], **dict(zip(names, adopted[plain:], strict=True)))
    table.track(raw, path, getter)
    return getter


def _adopt_count(table: ObjectTable, count: Count) -> Any:
    if count.path.parent is not None:
        table.note(prims.check_type, count.path, itertools.count)
    table.note(prims.check_state, count.path.step("attribute", "__repr__"), repr(count.original))
    table.counts.append(count)
    table.track(count.original, count.path, count.copy)
    return count.copy


def _adopt_parts(table: ObjectTable, raw: Any, path: Path) -> Any:
    """Return the copy of an iterator, with the facts about its parts; None for one without parts."""
    cls = type(raw)
    if cls not in READABLE:
        return None
    parts, position = parts_and_position(raw)
    # these are advanced themselves, before or after the iterator among their parts
    if (cls is enumerate or cls is itertools.cycle) and not _is_over_elements(parts):
        return None
    if cls in OF_ELEMENTS and _is_past_the_end(raw):
        return None
    if path.parent is not None:
        table.note(prims.check_type, path, cls)
    adopted = [table.adopt(part, path.step("iterated", i)) for i, part in enumerate(parts)]
    for part in adopted:
        _read_lists(table, part, set())
    table.note(prims.check_literal_like, path.step("iterated", POSITION), position)
    if cls in _CALLING:
        adopted[0] = table.callback(adopted[0])
    copied = _copied(raw, adopted, position)
    place = 0 if cls is enumerate else len(table.counts)  # before the iterator that it advances
    table.counts.insert(place, ReachedIterator(raw, path, copied, position))
    table.track(raw, path, copied)
    return copied


def _read_lists(table: ObjectTable, value: Any, seen: set[int]) -> None:
    """Read the lists over which C code may iterate, as a ``chain`` does over those in a tuple."""
    if isinstance(value, list | tuple | deque) and id(value) not in seen:
        seen.add(id(value))
        table.read_items(value)
        for part in value:
            _read_lists(table, part, seen)


def _is_past_the_end(iterator: Any) -> bool:
    """Return whether an iterator is at a position that its list, which was shortened, does not have."""
    position = parts_and_position(iterator)[1]
    if position is None:  # it has ended, and stays so
        return False
    return bool(parts_and_position(copy.copy(iterator))[1] != position)  # a position is set within the list


def _is_over_elements(parts: tuple[Any, ...]) -> bool:
    """Return whether the iterator that an ``enumerate`` or a ``cycle`` advances, if any, is over elements."""
    return type(parts[-1]) in OF_ELEMENTS or isinstance(parts[-1], list)


def _copied(raw: Any, parts: list[Any], position: Any) -> Any:
    """Return an iterator as the user's, of other parts."""
    cls = type(raw)
    if cls is itertools.cycle:
        kept, *rest = parts
        is_past, source = rest or (True, iter(kept))
        if not rest:
            set_state(source, position)
        cycle: Any = itertools.cycle(source)
        set_state(cycle, (kept, is_past))
        return cycle
    if cls is OVER_RANGE:
        return iter(parts[0])
    if cls in _WITHOUT_SETTER:
        return cls(*parts) if position is None else cls(*parts, position)
    made = reduced(raw)[0](*parts)
    if position is not None:
        set_state(made, position)
    elif cls in OF_ELEMENTS:  # it has ended
        exhaust(made, None)
    return made
