"""``logging`` in the traced program: each call logs again, with the program's line.

Whether a logger is enabled for a level is a fact. The methods of loggers are interpreted down to
``Logger._log``, which becomes a statement of the computation.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from typing import Any

from thunder.base.errors import UnsupportedProgram
from thunder.frontend.lookasides.environment_queries import Queries
from thunder.frontend.lookasides.lookaside_registry import LookasideTable
from thunder.frontend.output import output_replay
from thunder.frontend.output.deferred_texts import DeferredText, template_of
from thunder.frontend.output.printing import is_plain, printable, shows_node
from thunder.frontend.places import OUTPUT
from thunder.frontend.session import TracingSession
from thunder.interpreter.operator_protocols import binary
from thunder.interpreter.operator_tables import BINARY_OPERATORS
from thunder.ops import prims

TABLE = LookasideTable(OUTPUT)

Args = tuple[Any, ...]
Kwargs = dict[str, Any]


def _query(session: TracingSession, method: Callable[..., Any], args: Args, kwargs: Kwargs) -> Any:
    """Return the result of a query of a logger, which becomes a fact about this logger."""
    logger = args[0]
    session.guard_identity(logger)
    key = (method, id(logger), *args[1:], *kwargs.items())
    repeated = session.state(Queries).functions.setdefault(key, functools.partial(method, *args, **kwargs))
    result = repeated()
    session.note_state(repeated, f"{method.__name__} of the logger {logger.name!r}", result)
    return result


def _query_natively(method: Callable[..., Any]) -> None:
    @TABLE.lookaside(method)
    def rule(session: TracingSession, args: Args, kwargs: Kwargs) -> Any:
        return _query(session, method, args, kwargs)


for _method in (
    logging.Logger.isEnabledFor,
    logging.Logger.getEffectiveLevel,
    logging.Logger.hasHandlers,
):
    _query_natively(_method)


@TABLE.lookaside(logging.getLogger)
def _get_logger(session: TracingSession, args: Args, kwargs: Kwargs) -> Any:
    logger = logging.getLogger(*args, **kwargs)  # created if there is none, as in eager
    return session.adopt(logger, session.object_root(logger, f"logger {logger.name!r}"))


@TABLE.lookaside(logging.Logger._log, takes_unread=True)
def _log(session: TracingSession, args: Args, kwargs: Kwargs) -> None:
    _log_message(session, *args, **kwargs)


def _log_message(
    session: TracingSession,
    logger: logging.Logger,
    level: int,
    message: Any,
    args: Args,
    exc_info: Any = None,
    extra: Any = None,
    stack_info: bool = False,
    stacklevel: int = 1,
) -> None:
    cls = type(logger)
    if cls.findCaller is not logging.Logger.findCaller or exc_info or stack_info:
        raise UnsupportedProgram(
            "the program logs a traceback or a stack, or with a logger that overrides findCaller",
            found={"logger": logger.name},
            hint="Log the text of the error.",
        )
    if extra is not None and not is_plain(extra):
        raise UnsupportedProgram(
            "the program logs with extra= that has values other than numbers and strings"
        )
    if not is_plain(args) or shows_node(session, args):  # objects may have changed when the statement runs
        message, args = binary(session.machine, BINARY_OPERATORS["%"], str_of(session, message), args), ()
    line = _line(session, stacklevel)
    session.guard_identity(logger)
    if type(message) is DeferredText and not args:
        prims.python_call(output_replay.log_text, logger, level, line, *template_of(session, message), extra)
        return
    shown = printable(session, message), printable(session, args)
    prims.python_call(output_replay.log, logger, level, line, *shown, extra)


def str_of(session: TracingSession, value: Any) -> Any:
    """Do ``str(value)`` in the traced program."""
    return value if type(value) is str else session.call(str, (value,), {})


def _line(session: TracingSession, stacklevel: int) -> output_replay.LogLine:
    """Return the innermost line of the program outside of ``logging``, as ``findCaller`` does."""
    own_file = logging._srcfile
    outside = [frame for frame in reversed(session.machine.frames) if frame.code.co_filename != own_file]
    levels = max(stacklevel, 1)
    if levels > len(outside):
        return output_replay.LogLine("(unknown file)", 0, "(unknown function)", levels - len(outside))
    frame = outside[levels - 1]
    return output_replay.LogLine(*frame.position(), frame.code.co_name)


@TABLE.lookaside(logging.basicConfig)
def _basic_config(session: TracingSession, args: Args, kwargs: Kwargs) -> None:
    if kwargs:
        refuse_configuration()
    prims.python_call(logging.basicConfig)


#: attributes of loggers and handlers that decide what is logged
_CONFIGURING = frozenset({"disabled", "filters", "handlers", "level", "parent", "propagate"})


def store_attr(session: TracingSession, obj: logging.Filterer, name: str, value: Any) -> None:
    """Write an attribute of a logger or handler that does not decide what is logged."""
    if name in _CONFIGURING:
        refuse_configuration()
    session.store_plain(obj, name, value)


def refuse_configuration() -> None:
    """Refuse a program that changes what is logged, because it logs when it runs."""
    raise UnsupportedProgram(
        "the program changes how logging is configured", hint="Configure logging before the call."
    )


_CHANGES: tuple[Callable[..., Any], ...] = (
    logging.disable,
    logging.captureWarnings,
    logging.shutdown,
    logging.setLoggerClass,
    logging.addLevelName,
    logging.Logger.setLevel,
    logging.Logger.addHandler,
    logging.Logger.removeHandler,
    logging.Handler.setLevel,
    logging.Handler.setFormatter,
    logging.Filterer.addFilter,
    logging.Filterer.removeFilter,
)


@TABLE.lookaside(*_CHANGES)
def _change(session: TracingSession, args: Args, kwargs: Kwargs) -> None:
    refuse_configuration()
