"""Two functions in two threads, the second run whole between any two lines of the first.

With a scheduler, a race shows once in many runs. Here the first thread traces itself and lets the second run
at each line, so that each interleaving at lines is tried once.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

__all__ = ["Interleaved", "interleaved"]

#: at how many lines the first function is interrupted at most
MAX_INTERRUPTS = 60

#: how long, in seconds, the interrupted function waits for the other, which may need a lock that it holds
TIMEOUT = 0.05

#: code of these packages is not interrupted: it is thread-safe, and has many lines
LIBRARIES = ("torch.", "thunder.", "contextlib", "threading", "functools")


@dataclass
class Interleaved:
    """The results of the runs of the two functions, or the exceptions that they raised."""

    mine: list[Any] = field(default_factory=list)
    others: list[Any] = field(default_factory=list)


def interleaved(mine: Callable[[], Any], other: Callable[[], Any]) -> Interleaved:
    """Run `mine` in a thread, and at each line that it reaches the whole of `other` in another thread."""
    results = Interleaved()
    pending: list[threading.Thread] = []

    def interrupt() -> None:
        thread = threading.Thread(target=lambda: results.others.append(_result(other)), daemon=True)
        thread.start()
        thread.join(TIMEOUT)
        if thread.is_alive():
            pending.append(thread)

    def traced() -> None:
        left = MAX_INTERRUPTS

        def trace(frame: FrameType, event: str, _: Any) -> Any:
            nonlocal left
            if str(frame.f_globals.get("__name__", "")).startswith(LIBRARIES):
                return None
            if event == "line" and left > 0 and not any(t.is_alive() for t in pending):
                left -= 1
                interrupt()
            return trace

        sys.settrace(trace)
        try:
            results.mine.append(_result(mine))
        finally:
            sys.settrace(None)

    thread = threading.Thread(target=traced, daemon=True)
    thread.start()
    thread.join()
    for waiting in pending:
        waiting.join()
    return results


def _result(fn: Callable[[], Any]) -> Any:
    try:
        return fn()
    except Exception as error:  # a result, which the caller of `interleaved` checks
        return error
