"""Results of opaque callables within one call of a program, so that each runs once in a call.

The program is run for its acquisition up to an opaque call; and a call that leaves a compiled program at a
decision begins again in another one. Both times the results that are there already are used.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["add", "begin", "discard", "inside", "keep", "take"]


class _Results(threading.local):
    def __init__(self) -> None:
        self.entries: list[Any] = []
        self.position = 0
        self.is_kept = False


_results = _Results()


def begin() -> None:
    """Called before the first opaque call of a program runs."""
    if not _results.is_kept:
        _results.entries = []
    _results.position, _results.is_kept = 0, False


def take() -> Any:
    """Return the result of the next opaque call, or None where it has not run."""
    position = _results.position
    if position >= len(_results.entries):
        return None
    _results.position += 1
    return _results.entries[position]


def add(result: Any) -> None:
    """Note the result of an opaque call that has run."""
    _results.entries.append(result)
    _results.position += 1


def keep() -> None:
    """Called where the program of this call will begin again."""
    _results.is_kept = True


def discard() -> None:
    """Forget the results, at the end of a call."""
    _results.entries, _results.position, _results.is_kept = [], 0, False


@contextmanager
def inside() -> Iterator[None]:
    """Within it the code of an opaque callable runs, which may call compiled programs."""
    saved = _results.entries, _results.position, _results.is_kept
    discard()
    try:
        yield
    finally:
        _results.entries, _results.position, _results.is_kept = saved
