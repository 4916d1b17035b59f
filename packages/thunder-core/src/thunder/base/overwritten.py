"""The elements that a running call has overwritten, kept until it ends: a call that raises gets them back.

Each thread has a stack of calls, since the code of an opaque callable may call compiled programs.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

__all__ = ["begin", "can_keep", "end", "keep"]

#: puts elements back
Restore = Callable[[], object]


class _Calls(threading.local):
    def __init__(self) -> None:
        self.kept: list[list[Restore]] = []


_calls = _Calls()


def begin() -> None:
    """Begin a call; what it overwrites is kept until :func:`end`."""
    _calls.kept.append([])


def can_keep() -> bool:
    """Return whether a call has begun, which may be undone."""
    return bool(_calls.kept)


def keep(restore: Restore) -> None:
    """Keep the function that puts elements back which are overwritten next."""
    _calls.kept[-1].append(restore)


def end(*, undo: bool) -> None:
    """End a call; with ``undo`` the elements are put back, those that were overwritten last first."""
    kept = _calls.kept.pop()
    if undo:
        for restore in reversed(kept):
            restore()
