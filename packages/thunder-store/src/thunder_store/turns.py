"""Turns of processes that need the same program: one compiles it, and the others wait until it is kept.

Whose turn it is, a lock says on one byte of a file in the directory, which the key of the program chooses.
The system ends it with its process. Where there are no such locks, as on Windows, each process compiles.
"""

from __future__ import annotations

import os
import time
import weakref
from pathlib import Path
from typing import Any, Final

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

__all__ = ["Turns"]

_FILE: Final = "turns"
#: the most seconds that a process waits, and between two looks
_LONGEST: Final = 60.0
_BETWEEN: Final = 0.01


class Turns:
    """The turns of this process in one directory.

    A lock belongs to the process, and closing the file would end all of them: it stays open.
    """

    def __init__(self, directory: Path) -> None:
        self._file, self._process = -1, os.getpid()
        if fcntl is None:
            return
        try:
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._file = os.open(directory / _FILE, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError:  # nothing is kept there either, with a warning
            return
        #: what the turns are for, by the byte
        self._taken: dict[int, weakref.finalize[Any, Any]] = {}

    @classmethod
    def of(cls, directory: Path) -> Turns:
        """Return the turns of this process, not those of a process that it was forked from."""
        known = _known.get(directory)
        if known is None or known._process != os.getpid():
            known = _known[directory] = cls(directory)
        return known

    def wait(self, key: str, compile: Any) -> bool:
        """Wait for the turn of a compile, which it has until `end` or the end of the object.

        Return whether another process had it, and may have kept the program.
        """
        if self._file < 0 or self._lock(key, compile):
            return False
        until = time.monotonic() + _LONGEST
        while time.monotonic() < until:
            time.sleep(_BETWEEN)
            if self._lock(key, compile):
                return True
        return True

    def end(self, key: str) -> None:
        """End the turn of this process, if it has it."""
        if self._file >= 0 and (held := self._taken.pop(_byte(key), None)) is not None:
            held()

    def _lock(self, key: str, compile: Any) -> bool:
        byte = _byte(key)
        if byte in self._taken and self._taken[byte].alive:
            return True  # a compile within a compile, or of another thread
        try:
            fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, byte)
        except (BlockingIOError, PermissionError):
            return False
        except OSError:  # a file system without locks
            return True
        self._taken[byte] = weakref.finalize(compile, _unlock, self._file, byte)
        return True


_known: dict[Path, Turns] = {}


def _byte(key: str) -> int:
    return int(key[:12], 16)


def _unlock(file: int, byte: int) -> None:
    fcntl.lockf(file, fcntl.LOCK_UN, 1, byte)
