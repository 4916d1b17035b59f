"""Output at run time: what statements of a computation call to print, warn and log."""

from __future__ import annotations

import logging
import sys
import types
import warnings
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from thunder.base.errors import UnsupportedProgram
from thunder.base.shown_tensors import with_node
from thunder.frontend.natives.libraries import is_own, library_module

#: the module whose frame runs a computation; the frames above it are the caller's code
_DISPATCH = "thunder.compiler.dispatch"

#: begins the format specification of the text of a tensor with a node, before the name of the node
NODE = "\0grad_fn="
#: surrounds the number of a value in the text of a statement
MARK = "\0value\0"


def print_to(stream: str, *values: Any, **options: Any) -> None:
    """Print to ``sys.stdout`` or ``sys.stderr``, whichever file that is now."""
    print(*values, file=getattr(sys, stream), **options)


def formatted(template: str, values: tuple[Any, ...], specs: tuple[str | None, ...]) -> str:
    """Return a text of values: each odd part between marks is the index of one."""
    pieces = template.split(MARK)
    for i, (value, spec) in enumerate(zip(values, specs, strict=True)):
        if spec is None:
            pieces[2 * i + 1] = repr(value)
        elif spec.startswith(NODE):
            pieces[2 * i + 1] = repr(with_node(value, spec.removeprefix(NODE)))
        else:
            pieces[2 * i + 1] = format(value, spec)
    return "".join(pieces)


def print_text(
    stream: str, template: str, values: tuple[Any, ...], specs: tuple[str | None, ...], **options: Any
) -> None:
    """Print a text of values to ``sys.stdout`` or ``sys.stderr``."""
    print_to(stream, formatted(template, values, specs), **options)


def log_text(
    logger: logging.Logger,
    level: int,
    line: LogLine,
    template: str,
    values: tuple[Any, ...],
    specs: tuple[str | None, ...],
    extra: Mapping[str, Any] | None,
) -> None:
    """Log a text of values, with the program's line."""
    log(logger, level, line, formatted(template, values, specs), (), extra)


def write_to(stream: str, text: str) -> None:
    """Write to ``sys.stdout`` or ``sys.stderr``."""
    getattr(sys, stream).write(text)


def flush(stream: str) -> None:
    """Flush ``sys.stdout`` or ``sys.stderr``."""
    getattr(sys, stream).flush()


class WarningPlace:
    """The place of a warning: a line of a module, or a frame above the compiled program.

    ``levels_above`` is the number of frames, 0 for a line.
    """

    def __init__(
        self, namespace: dict[str, Any], filename: str = "", line: int = 0, levels_above: int = 0
    ) -> None:
        self.namespace, self.filename, self.line, self.levels_above = namespace, filename, line, levels_above

    @property
    def module(self) -> str:
        """The name of the module, as ``warnings.warn`` has it."""
        return str(self.namespace.get("__name__") or "<string>")

    def located(self) -> WarningPlace:
        """Return the place itself, or the place in the caller's code that it refers to now."""
        if not self.levels_above:
            return self
        frame = _caller(self.levels_above)
        if frame is None:
            return WarningPlace(vars(sys), "sys", 1)
        return WarningPlace(frame.f_globals, frame.f_code.co_filename, frame.f_lineno)


def _caller(levels: int) -> types.FrameType | None:
    """Return the frame that is so many levels above the innermost compiled program."""
    frame: types.FrameType | None = sys._getframe(1)
    while frame is not None and library_module(frame.f_globals) != _DISPATCH:
        frame = frame.f_back
    while frame is not None and is_own(frame.f_globals):
        frame = frame.f_back
    for _ in range(levels - 1):
        frame = frame and frame.f_back
    return frame


class Warned(NamedTuple):
    """A warning of the program: the message (a text or an instance), its text, the category."""

    message: Any
    text: str
    category: type[Warning]
    source: Any = None


def warn(warned: Warned, place: WarningPlace) -> None:
    """Issue a warning under the present filters."""
    at = place.located()
    registry = at.namespace.setdefault("__warningregistry__", {})
    warnings.warn_explicit(
        warned.message, warned.category, at.filename, at.line, at.module, registry, None, warned.source
    )


def warn_of_values(
    category: type[Warning],
    place: WarningPlace,
    template: str,
    values: tuple[Any, ...],
    specs: tuple[str | None, ...],
) -> None:
    """Issue a warning with a text of values under the present filters."""
    text = formatted(template, values, specs)
    warn(Warned(text, text, category), place)


def show(warned: Warned, place: WarningPlace) -> None:
    """Show a warning that a filter of the program itself selects."""
    warnings._showwarnmsg(message_of(warned, place.located()))  # type: ignore[attr-defined]


def message_of(warned: Warned, at: WarningPlace) -> warnings.WarningMessage:
    """Return the argument of ``warnings.showwarning`` for a warning."""
    message = warned.message if isinstance(warned.message, Warning) else warned.category(warned.message)
    return warnings.WarningMessage(message, warned.category, at.filename, at.line, source=warned.source)


def filters_changed() -> None:
    """Make every module forget which warnings it has shown, as a change of the filters does."""
    warnings._filters_mutated()  # type: ignore[attr-defined]


class LogLine(NamedTuple):
    """The place of a log message: file, line and function, or a frame above the program."""

    filename: str
    line: int
    function: str
    levels_above: int = 0

    def located(self) -> LogLine:
        """Return the line itself, or the caller's line that it refers to now."""
        frame = _caller(self.levels_above) if self.levels_above else None
        if frame is None:
            return self
        return LogLine(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name)


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
    line: LogLine,
    message: Any,
    args: tuple[Any, ...],
    extra: Mapping[str, Any] | None,
) -> None:
    """Log a message of the program, with the program's line."""
    at = line.located()
    logger.handle(
        logger.makeRecord(
            logger.name, level, at.filename, at.line, message, args, None, at.function, extra, None
        )
    )
