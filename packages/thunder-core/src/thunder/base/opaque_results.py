"""Results of opaque callables, and values that are made, within one call of a program: each once in a call.

The program is run for its acquisition up to an opaque call; and a call that leaves a compiled program at a
decision begins again in another one. Both times the results that are there already are used. In the same way
the use of an entry of a cache is counted once, though a program is traced and then runs. A value such as a
``uuid4()`` is the same one where a call begins again: a new one would make other answers more frequent.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

__all__ = [
    *("add", "add_use", "begin", "discard", "finished", "has_made", "hold_made", "inside", "keep", "made"),
    *("release_made", "take", "take_use", "uses"),
]


class _Results(threading.local):
    def __init__(self) -> None:
        self.entries: list[Any] = []
        self.position = 0
        self.is_kept = False
        self.is_advanced = False
        self.uses: Counter[Hashable] = Counter()
        self.made: dict[Hashable, Any] | None = None  # None: values that are made are not held


_results = _Results()


def begin() -> None:
    """Called before the first opaque call of a program runs."""
    if not _results.is_kept:
        _results.entries, _results.is_advanced = [], False
    _results.position, _results.is_kept = 0, False


def take() -> Any:
    """Return the result of the next opaque call, or None where it has not run."""
    position = _results.position
    if position >= len(_results.entries):
        return None
    _results.position += 1
    return _results.entries[position]


def finished() -> Sequence[Any]:
    """Return the results of the opaque calls that have run before the present one, in order."""
    return _results.entries[: _results.position]


def add(result: Any) -> None:
    """Note the result of an opaque call that has run."""
    _results.entries.append(result)
    _results.position += 1


def keep() -> None:
    """Called where the program of this call will begin again."""
    _results.is_kept = True


def note_advanced() -> None:
    """Note that this call has advanced an iterator of the caller, so that nothing may run it again."""
    _results.is_advanced = True


def is_advanced() -> bool:
    """Return whether this call has advanced an iterator of the caller."""
    return _results.is_advanced


def hold_made() -> None:
    """Called where a program begins that may begin again in this call: hold the values that it makes."""
    if _results.made is None:
        _results.made = {}


def release_made() -> None:
    """Called where the program of this call will not begin again."""
    _results.made = None


def has_made() -> bool:
    """Return whether this call has made values that its program uses where it begins again."""
    return bool(_results.made)


def made(key: Hashable, make: Callable[[], Any]) -> Any:
    """Return the value that this call has made under a key, or a new one."""
    if _results.made is None:
        return make()
    if key not in _results.made:
        _results.made[key] = make()
    return _results.made[key]


def uses(entry: Hashable) -> int:
    """Return how many uses of a cache's entry were counted that the program of this call has not repeated."""
    return _results.uses[entry]


def add_use(entry: Hashable) -> None:
    """Note that a use of a cache's entry was counted while the program is traced."""
    _results.uses[entry] += 1


def take_use(entry: Hashable) -> bool:
    """Return whether a use of a cache's entry was counted, once for each use that was."""
    count = _results.uses.pop(entry, 0) if _results.uses else 0
    if count > 1:
        _results.uses[entry] = count - 1
    return count > 0


def discard(*, has_failed: bool = False) -> None:
    """Forget the results and uses, at the end of a call, or where its program has failed."""
    _results.entries, _results.position, _results.is_kept, _results.uses = [], 0, False, Counter()
    _results.made = None
    _results.is_advanced = _results.is_advanced and has_failed


@contextmanager
def inside() -> Iterator[None]:
    """Within it the code of an opaque callable runs, which may call compiled programs."""
    saved = _results.entries, _results.position, _results.is_kept, _results.uses, _results.made
    was_advanced = _results.is_advanced
    discard()
    try:
        yield
    finally:
        _results.entries, _results.position, _results.is_kept, _results.uses, _results.made = saved
        _results.is_advanced |= was_advanced
