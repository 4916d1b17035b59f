"""Calls of functions that plugins wrote: a fault in one is a PluginError with the plugin's package.

Each place that calls a function of a plugin (a meta function, a checker, a transform, a hook, …) does it in
`plugin_call`, or through `attributed`:

    with plugin_call("checker fits of executor 'acme' for torch.sin", lambda: origin_of(fits)):
        answer = fits(*bsym.args, **bsym.kwargs)

A function may refuse a program: an error of thunder that its own code raises passes. One that core raises in
a call that the function made is a fault of the function.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from functools import wraps
from types import TracebackType
from typing import Any, TypeVar

from thunder.base.context_variables import assigned
from thunder.base.errors import (
    InternalError,
    Location,
    PluginError,
    PluginTraceError,
    ThunderError,
    TraceError,
)

__all__ = ["as_plugin_error", "attributed", "checking", "is_checking", "kind_of", "plugin_call", "shown"]

Fn = TypeVar("Fn", bound=Callable[..., Any])

#: errors that do not concern the function: they come from the process, a warnings filter, or thunder itself
_PASSED_ON = (RecursionError, MemoryError, Warning, InternalError)


_checking: ContextVar[bool] = ContextVar("thunder_checking", default=False)


def is_checking() -> bool:
    """Return whether the running compile is one under `DebugOptions(check_traces=True)`."""
    return _checking.get()


def checking(is_on: bool) -> AbstractContextManager[None]:
    """Within the context, a compile runs under `DebugOptions(check_traces=True)`, or does not."""
    return assigned(_checking, is_on)


@contextmanager
def plugin_call(
    what: str | Callable[[], str],
    origin: Callable[[], str],
    *,
    found: Callable[[], Mapping[str, object]] | None = None,
    where: Sequence[Location] = (),
    hint: str | None = None,
    passing: tuple[type[Exception], ...] = (),
    may_refuse: bool = True,
    may_raise: bool = False,
) -> Iterator[None]:
    """Within the context, a function of a plugin runs, and its faults become PluginError.

    An interruption by Ctrl-C gets a note with the function that was running.

    Args:
        what: the function in words, or a function that returns them.
        origin: returns the origin of the plugin (see `thunder.base.extension_origin`).
        found: returns the values to show.
        where: the user's lines.
        hint: what the author does.
        passing: further errors that pass, whichever code raises them.
        may_refuse: whether errors of thunder pass that the plugin's own code raises.
        may_raise: whether any error passes with a note, unless `checking` is on: the function may raise what
            eager raises for these arguments.
    """
    try:
        yield
    except PluginError as error:
        raise error.blame(origin()).add_locations(where) from error.__cause__
    except _PASSED_ON:
        raise
    except KeyboardInterrupt as error:
        error.add_note(f"{what if isinstance(what, str) else what()}, from {origin()}, was running")
        raise
    except TraceError as error:
        raise as_plugin_error(error, origin()).add_locations(where) from error.__cause__
    except Exception as error:
        is_refusal = isinstance(error, ThunderError) and may_refuse and not _is_raised_by_core(error)
        if is_refusal or isinstance(error, passing):
            if isinstance(error, ThunderError):
                error.add_locations(where)
            raise
        if may_raise and not is_checking():
            error.add_note(f"{what if isinstance(what, str) else what()}, from {origin()}, raised it")
            raise
        text = error.asked if isinstance(error, ThunderError) else str(error)
        raise PluginError(
            f"{what if isinstance(what, str) else what()} raised {type(error).__name__}: {text}",
            found=found() if found is not None else None,
            where=where,
            hint=hint,
        ).blame(origin()) from error


def attributed(fn: Fn, what: str, origin: Callable[[], str], **details: Any) -> Fn:
    """Return a function of a plugin whose calls are each in `plugin_call`."""

    @wraps(fn)
    def call(*args: Any, **kwargs: Any) -> Any:
        with plugin_call(what, origin, **details):
            return fn(*args, **kwargs)

    return call  # type: ignore[return-value]


def as_plugin_error(error: TraceError, origin: str) -> PluginTraceError:
    """Return the error of a malformed trace as the fault of a plugin."""
    fault = PluginTraceError(error.asked, found=error.found, where=error.where, hint=error.hint)
    fault.facts.update(error.facts)
    return fault if isinstance(error, PluginError) else fault.blame(origin)


def _is_raised_by_core(error: BaseException) -> bool:
    """Return whether a statement of thunder-core raised an error, and not the plugin's own code."""
    entry: TracebackType | None = error.__traceback__
    module = ""
    while entry is not None:
        module, entry = entry.tb_frame.f_globals.get("__name__", ""), entry.tb_next
    # the frame of a plugin's function that the interpreter runs is one of the interpreter
    return module.startswith("thunder.") and not module.startswith("thunder.interpreter.")


def kind_of(value: object) -> str:
    """Return in words what a function returned: `"None"`, `"an object of type Dog"`."""
    if value is None:
        return "None"
    if isinstance(value, tuple):
        return f"a tuple of {len(value)}: {', '.join(map(_short_kind, value))}"
    if isinstance(value, type):
        return f"the class {value.__qualname__}"
    return f"an object of type {type(value).__name__}"


def shown(value: object) -> str:
    """Return a value with its type, for errors: `"None"`, `"3, of type int"`."""
    return "None" if value is None else f"{value!r}, of type {type(value).__name__}"


def _short_kind(value: object) -> str:
    return "None" if value is None else type(value).__name__
