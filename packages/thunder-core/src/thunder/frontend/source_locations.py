"""Lines of the user's program: where a call of a trace comes from, and an error."""

from __future__ import annotations

import os
import traceback
from collections.abc import Sequence
from typing import Any

import torch

from thunder.base.errors import Location
from thunder.base.package_files import is_package_file
from thunder.ir.trace import Source

#: Below it lie torch's own files. A line there is none of the user's, unless the program begins there.
_TORCH = os.path.join(os.path.dirname(torch.__file__), "")


def is_torch_file(file: str) -> bool:
    """Return whether ``file`` is a source file of torch."""
    return file.startswith(_TORCH)


def source_of(frames: Sequence[Any]) -> Source | None:
    """Return the running line of the user's program, with the line of torch that it led to."""
    if not frames:
        return None
    inner = Source(frames[-1].code.co_filename, frames[-1].f_lineno)
    for frame in reversed(frames):
        if not is_torch_file(frame.code.co_filename):
            own = frame is frames[-1]
            return inner if own else Source(frame.code.co_filename, frame.f_lineno, inner)
    return inner


def locations(frames: Sequence[Any]) -> list[Location]:
    """Return the lines at which the interpreted program is, innermost first."""
    return [Location.of(f.code.co_filename, f.f_lineno) for f in reversed(frames)]


def locations_of(error: BaseException) -> list[Location]:
    """Return the user's lines in an error's traceback, innermost first."""
    entries = traceback.extract_tb(error.__traceback__)
    return [
        Location(e.filename, e.lineno or 0, e.line or "")
        for e in reversed(entries)
        if not is_package_file(e.filename)
    ]
