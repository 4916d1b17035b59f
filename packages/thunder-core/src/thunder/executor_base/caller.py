"""The code that called into the layers of executors, such as a registration."""

from __future__ import annotations

import sys
from types import FrameType

from thunder.base.errors import Location

__all__ = ["INNER", "caller_frame", "caller_location"]

#: packages whose frames are not the caller's
INNER = ("thunder.executor_base", "thunder.extend", "thunder.compiler")


def caller_location() -> Location:
    """Return the line that called into these folders, such as the line of a registration."""
    frame = caller_frame()
    return Location.of(frame.f_code.co_filename, frame.f_lineno)


def caller_frame() -> FrameType:
    """Return the innermost frame outside of these folders."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith(INNER):
        frame = frame.f_back
    return frame
