"""Hints of refusals: which function can run as it is, and the argument that says so."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from thunder.base.errors import InvalidArgument, ThunderError, UnsupportedProgram
from thunder.base.opaque_marks import resolved
from thunder.interpreter.frame import Frame

__all__ = ["add_opaque_hint"]


def add_opaque_hint(error: ThunderError, frames: Sequence[Frame]) -> None:
    """Add the line that lets the innermost function run as it is that has a path, once."""
    if not isinstance(error, UnsupportedProgram) or error.facts.get("opaque") is not None:
        return
    error.facts["opaque"] = ""
    if "opaque callable" in error.asked:
        return
    for frame in reversed(frames[1:]):
        path = path_of(frame.function)
        if path is not None:
            error.facts["opaque"] = path
            line = f'Or let {path} run as it is: thunder.jit(…, opaque=["{path}"]).'
            error.hint = line if error.hint is None else f"{error.hint}\n{line}"
            return


def path_of(fn: Any) -> str | None:
    """Return the dotted path of a function, or None if it has none."""
    path = f"{getattr(fn, '__module__', None)}.{getattr(fn, '__qualname__', '<>')}"
    if "<" in path or path.startswith("__main__."):
        return None
    try:
        return path if resolved(path) is fn else None
    except InvalidArgument:
        return None
