"""Lines of the user's program: where a call of a trace comes from, and an error."""

from __future__ import annotations

import functools
import os
import sysconfig
import traceback
from collections.abc import Sequence
from typing import Any

import torch

from thunder.base.errors import Location
from thunder.base.package_files import is_package_file, package_folder
from thunder.frontend.module_names import module_of_method
from thunder.ir.trace import Source

_POLYFILLS = package_folder("polyfills")
#: Below it lie torch's own files. A line there is none of the user's, unless the program begins there.
_TORCH = os.path.join(os.path.dirname(torch.__file__), "")
#: below them lie the files of Python and of installed packages
_LIBRARIES = tuple(
    os.path.join(sysconfig.get_path(name), "") for name in ("stdlib", "platstdlib", "purelib", "platlib")
)


def is_torch_file(file: str) -> bool:
    """Return whether ``file`` is a source file of torch."""
    return file.startswith(_TORCH)


def source_of(frames: Sequence[Any], module: str) -> Source | None:
    """Return the running line of the user's program, with the line of a library or polyfill that it led to.

    ``module`` is the name of the module whose method runs.
    """
    if not frames:
        return None
    shown, last = _shown(frames), frames[-1]
    inner = Source(last.code.co_filename, last.f_lineno, None, module)
    return inner if shown is last else Source(shown.code.co_filename, shown.f_lineno, inner, module)


def _shown(frames: Sequence[Any]) -> Any:
    """Return the frame whose line is the user's: the innermost that is neither torch's nor a polyfill's.

    A function of another library has the line that calls it, unless that is in a module of the library: the
    lines of its models are shown.
    """
    library = None
    for frame in reversed(frames):
        file = frame.code.co_filename
        if _is_inner(file):
            continue
        if not _is_library(file):
            return frame
        library = library or frame
        if module_of_method(frame) is not None:
            break
    return library or frames[-1]


@functools.cache
def _is_library(file: str) -> bool:
    """Return whether a file is one of Python or of an installed package."""
    return file.startswith(_LIBRARIES)


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
