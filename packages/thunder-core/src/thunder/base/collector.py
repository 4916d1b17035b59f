"""The cyclic garbage collector during a compile, and while thunder is imported."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from thunder.base.forks import in_child

#: the threads that have paused it
_pausing: set[int] = set()


@contextmanager
def collector_paused() -> Iterator[None]:
    """Pause the cyclic garbage collector.

    A trace, or a module, consists of many objects that all stay alive, and each collection would traverse
    them again.
    """
    enabled = gc.isenabled()
    if enabled:
        _pausing.add(threading.get_ident())
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            collect_again()


def collect_again() -> None:
    """End the pause of this thread."""
    gc.enable()
    _pausing.discard(threading.get_ident())


def _forget_threads() -> None:
    """Collect in the child of a fork, unless the thread that has forked pauses the collector."""
    if _pausing and threading.get_ident() not in _pausing:
        gc.enable()
    _pausing.intersection_update({threading.get_ident()})


in_child(_forget_threads)
