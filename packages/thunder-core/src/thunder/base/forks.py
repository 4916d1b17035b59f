"""What other threads of a process held when it was forked: in the child these threads are not there.

A lock that another thread holds would never be released in the child, and what that thread has changed in the
process, such as pausing the garbage collector, would stay so.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from weakref import WeakKeyDictionary

__all__ = ["in_child", "renew_lock"]

_locks: WeakKeyDictionary[object, str] = WeakKeyDictionary()


def in_child(run: Callable[[], object]) -> None:
    """Call a function in each child of a fork, before anything else runs there; on POSIX alone."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=run)


def renew_lock(owner: object, name: str) -> None:
    """Give the attribute ``name`` of an object, an RLock, a new one in each child of a fork."""
    _locks[owner] = name


def _renew_locks() -> None:
    for owner, name in list(_locks.items()):
        setattr(owner, name, threading.RLock())


in_child(_renew_locks)
