"""Output at run time: the functions that statements of a computation call to print, warn and log as the
program does.
"""

from __future__ import annotations

import logging
import sys
import types
import warnings
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from thunder.base.errors import UnsupportedProgram
from thunder.frontend.natives.libraries import is_own, library_module

#: the frame of the call that runs a computation; what calls it is the caller's code
_DISPATCH = "thunder.compiler.dispatch"


def print_to(stream: str, *values: Any, **options: Any) -> None:
    """Prints to ``sys.stdout`` or ``sys.stderr``, whichever file that is now."""
    print(*values, file=getattr(sys, stream), **options)


def write_to(stream: str, text: str) -> None:
    """Writes to ``sys.stdout`` or ``sys.stderr``."""
    getattr(sys, stream).write(text)


def flush(stream: str) -> None:
    """Flushes ``sys.stdout`` or ``sys.stderr``."""
    getattr(sys, stream).flush()


class Place:
    """Where a warning is issued: a line of a module, or a frame some levels above the compiled program."""

    def __init__(
        self, namespace: dict[str, Any], filename: str = "", line: int = 0, levels_above: int = 0
    ) -> None:
        self.namespace, self.filename, self.line, self.levels_above = namespace, filename, line, levels_above

    @property
    def module(self) -> str:
        """The name of the module, as ``warnings.warn`` has it."""
        return str(self.namespace.get("__name__") or "<string>")

    def located(self) -> Place:
        """The place itself, or the place in the caller's code that it means now."""
        if not self.levels_above:
            return self
        frame = _caller(self.levels_above)
        if frame is None:
            return Place(vars(sys), "sys", 1)
        return Place(frame.f_globals, frame.f_code.co_filename, frame.f_lineno)


def _caller(levels: int) -> types.FrameType | None:
    """The frame that is so many levels above the innermost compiled program."""
    frame: types.FrameType | None = sys._getframe(1)
    while frame is not None and library_module(frame.f_globals) != _DISPATCH:
        frame = frame.f_back
    while frame is not None and is_own(frame.f_globals):
        frame = frame.f_back
    for _ in range(levels - 1):
        frame = frame and frame.f_back
    return frame


class Warned(NamedTuple):
    """What ``warnings.warn`` was given: the message (a text or an instance), its text, and the category."""

    message: Any
    text: str
    category: type[Warning]
    source: Any = None


def warn(warned: Warned, place: Place) -> None:
    """Issues a warning under the filters of now."""
    at = place.located()
    registry = at.namespace.setdefault("__warningregistry__", {})
    warnings.warn_explicit(
        warned.message, warned.category, at.filename, at.line, at.module, registry, None, warned.source
    )


def show(warned: Warned, place: Place) -> None:
    """Shows a warning, of which a filter of the program's own has decided that it is shown."""
    warnings._showwarnmsg(message_of(warned, place.located()))  # type: ignore[attr-defined]


def message_of(warned: Warned, at: Place) -> warnings.WarningMessage:
    """What ``warnings.showwarning`` and a record of warnings are given."""
    message = warned.message if isinstance(warned.message, Warning) else warned.category(warned.message)
    return warnings.WarningMessage(message, warned.category, at.filename, at.line, source=warned.source)


def filters_changed() -> None:
    """Makes every module forget which warnings it has shown, as a change of the filters does."""
    warnings._filters_mutated()  # type: ignore[attr-defined]


class Line(NamedTuple):
    """Where a record is logged: file, line and function, or a frame some levels above the compiled
    program.
    """

    filename: str
    line: int
    function: str
    levels_above: int = 0

    def located(self) -> Line:
        """The line itself, or the caller's line that it means now."""
        frame = _caller(self.levels_above) if self.levels_above else None
        if frame is None:
            return self
        return Line(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name)


def log_once(fn: Callable[..., Any], logger: logging.Logger, *args: Any, **kwargs: Any) -> None:
    """Call a method of a logger that is under ``functools.lru_cache``.

    Raises UnsupportedProgram if it returns a value, which the program did not receive.
    """
    if fn(logger, *args, **kwargs) is not None:
        raise UnsupportedProgram(
            f"{getattr(fn, '__qualname__', fn)} is under functools.lru_cache and returns a value",
            hint="Call it before the compiled function, and pass the result.",
        )


def log(
    logger: logging.Logger,
    level: int,
    line: Line,
    message: Any,
    args: tuple[Any, ...],
    extra: Mapping[str, Any] | None,
) -> None:
    """Logs a record that the program made at a line of its own."""
    at = line.located()
    logger.handle(
        logger.makeRecord(
            logger.name, level, at.filename, at.line, message, args, None, at.function, extra, None
        )
    )
