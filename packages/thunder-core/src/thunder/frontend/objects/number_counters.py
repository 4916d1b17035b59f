"""``itertools.count`` objects that a program reaches: a fact where they are; the epilogue advances them.

self.step = next(self.counter)   →   prologue:  self.counter.__repr__() == 'count(3)'
                                     epilogue:  self.step = 3; advance(self.counter, 1)
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from thunder.base.provenance import Path

__all__ = ["Count", "advance", "position_of"]

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
