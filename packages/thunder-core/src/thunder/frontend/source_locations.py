"""Lines of the user's program: where a call of a trace comes from, and an error."""

from __future__ import annotations

import functools
import os
import traceback
from collections.abc import Sequence
from typing import Any

import torch

from thunder.base.errors import Location
from thunder.base.package_files import is_package_file, package_folder
from thunder.ir.trace import Source

_POLYFILLS = package_folder("polyfills")
#: Below it lie torch's own files. A line there is none of the user's, unless the program begins there.
_TORCH = os.path.join(os.path.dirname(torch.__file__), "")


def is_torch_file(file: str) -> bool:
    """Return whether ``file`` is a source file of torch."""
    return file.startswith(_TORCH)


def source_of(frames: Sequence[Any], module: str) -> Source | None:
    """Return the running line of the user's program, with the line of torch or of a polyfill that it led to.

    ``module`` is the name of the module whose method runs.
    """
    if not frames:
        return None
    inner = Source(frames[-1].code.co_filename, frames[-1].f_lineno, None, module)
    for frame in reversed(frames):
        if not _is_inner(frame.code.co_filename):
            own = frame is frames[-1]
            return inner if own else Source(frame.code.co_filename, frame.f_lineno, inner, module)
    return inner


@functools.cache
def _is_inner(file: str) -> bool:
    """Return whether a file is one of torch's or a polyfill."""
    return file.startswith((_TORCH, _POLYFILLS))


def locations(frames: Sequence[Any]) -> list[Location]:
    """Return the lines at which the interpreted program is, innermost first."""
    shown = (f for f in reversed(frames) if not f.code.co_filename.startswith(_POLYFILLS))
    return [Location.of(f.code.co_filename, f.f_lineno) for f in shown]


def locations_of(error: BaseException) -> list[Location]:
    """Return the user's lines in an error's traceback, innermost first."""
    entries = traceback.extract_tb(error.__traceback__)
    return [
        Location(e.filename, e.lineno or 0, e.line or "")
        for e in reversed(entries)
        if not is_package_file(e.filename)
    ]
