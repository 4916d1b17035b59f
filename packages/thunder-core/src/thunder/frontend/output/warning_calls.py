"""``warnings`` in the traced program: statements, which warn again at each call.

    warnings.warn("old")          →   warn(<text, category>, <the user's line>)    in the computation

The statement consults the caller's filters and the registry of the user's module, as eager does. Filters that
the program itself sets within ``catch_warnings`` are applied while it is traced, and never reach the
caller's. If the outcome of a filter decides how the program continues (it raises, or fills a list of
messages), that outcome is a fact.
"""

from __future__ import annotations

import functools
import re
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from thunder.base.errors import UnsupportedProgram
from thunder.frontend.lookasides.lookaside_registry import LookasideTable
from thunder.frontend.output import output_replay
from thunder.frontend.output.deferred_texts import DeferredText, template_of
from thunder.frontend.output.output_replay import Warned, WarningPlace
from thunder.frontend.places import OUTPUT
from thunder.frontend.session import SessionState, TracingSession
from thunder.interpreter.frame import Frame
from thunder.ops import prims

TABLE = LookasideTable(OUTPUT)

#: (action, pattern of the text, category, pattern of the module, line), as in ``warnings.filters``
Filter = tuple[str, Any, type[Warning], Any, int]


class Edit(NamedTuple):
    """A change of the filters.

    The filter is put first or, with ``append``, last; None empties the list.
    """

    item: Filter | None
    append: bool = False

    def apply(self, filters: list[Filter]) -> None:
        """Change a list of filters as ``warnings._add_filter`` does."""
        if self.item is None:
            filters.clear()
        elif self.append:
            if self.item not in filters:
                filters.append(self.item)
        else:
            if self.item in filters:
                filters.remove(self.item)
            filters.insert(0, self.item)


@dataclass
class FilterRegion:
    """A ``catch_warnings`` that the program is in.

    ``shown`` has the keys of the warnings that were shown since the last edit of the filters.
    """

    messages: list[Any] | None
    edits: list[Edit] = field(default_factory=list)
    shown: set[tuple[Any, ...]] = field(default_factory=set)


class Filters(SessionState):
    """The changes of the filters, outside of all regions and in those that the program is in."""

    def __init__(self, session: TracingSession) -> None:
        self.edits: list[Edit] = []
        self.regions: list[FilterRegion] = []

    def all_edits(self) -> tuple[Edit, ...]:
        """Return every change in force, oldest first."""
        return (*self.edits, *(e for region in self.regions for e in region.edits))

    def mutated(self) -> None:
        """Forget what was shown."""
        for region in self.regions:
            region.shown.clear()
        prims.python_call(output_replay.filters_changed)


def action_of(edits: tuple[Edit, ...], text: str, category: type[Warning], module: str, line: int) -> str:
    """Return the action of the present filters, changed by ``edits``, such as ``"ignore"``."""
    filters: list[Filter] = list(warnings.filters)  # type: ignore[arg-type]
    for edit in edits:
        edit.apply(filters)
    for action, message, cls, pattern, at in filters:
        if (
            _matches(message, text)
            and issubclass(category, cls)
            and _matches(pattern, module)
            and at in (0, line)
        ):
            return action
    return warnings.defaultaction  # type: ignore[attr-defined,no-any-return]


def _matches(pattern: Any, text: str) -> bool:
    if pattern is None:
        return True
    return pattern == text if isinstance(pattern, str) else bool(pattern.match(text))


def _is_error(edits: tuple[Edit, ...], text: str, category: type[Warning], module: str, line: int) -> bool:
    return action_of(edits, text, category, module, line) == "error"


# -- warn ----------------------------------------------------------------------------------------------------


def place_of(frame: Frame | None, levels_above: int) -> WarningPlace:
    """Return the place of a frame, or of the frame so many levels above the program."""
    return (
        WarningPlace(vars(sys), levels_above=levels_above)
        if frame is None
        else WarningPlace(frame.globals, *frame.position())
    )


def warn(
    session: TracingSession, message: Any, category: Any, place: WarningPlace, source: Any = None
) -> None:
    """Record a warning, or raise it if the filters make it an error."""
    if isinstance(message, Warning):
        category, text = type(message), session.call(str, (message,), {})
    else:
        text = message if type(message) is str else session.call(str, (message,), {})
        message = text
    if type(text) is DeferredText:
        _warn_of_values(session, message, text, category, place)
        return
    if source is not None:
        raise UnsupportedProgram("the program warns with source=", hint="Leave the argument out.")
    warned, filters = Warned(message, text, category), session.state(Filters)
    if filters.regions:
        _warn_in_region(session, warned, place)
        return
    if _outcome(session, _is_error, warned, place):
        raise _error(warned)
    prims.python_call(output_replay.warn, warned, place)


def _warn_of_values(
    session: TracingSession, message: Any, text: DeferredText, category: type[Warning], place: WarningPlace
) -> None:
    """Record a warning with a text of values, where the filters cannot make it an error."""
    is_plain = message is text or (message.args == (text,) and not vars(message))
    query = functools.partial(may_be_error, category)
    if session.state(Filters).all_edits() or query() or not is_plain:
        raise UnsupportedProgram(
            "the program warns with a text of values, by which the filters of warnings decide",
            hint="Leave the values out of the text, or print it.",
        )
    session.note_state(query, f"warnings.filters for {category.__name__}", False)
    prims.python_call(output_replay.warn_of_values, category, place, *template_of(session, text))


def may_be_error(category: type[Warning]) -> bool:
    """Return whether a present filter makes warnings of a category errors, of whatever text and line."""
    filters: list[Filter] = list(warnings.filters)  # type: ignore[arg-type]
    default: str = warnings.defaultaction  # type: ignore[attr-defined]
    return default == "error" or any(
        action == "error" and issubclass(category, cls) for action, _, cls, _, _ in filters
    )


def _outcome(session: TracingSession, read: Any, warned: Warned, place: WarningPlace) -> Any:
    """Return the outcome of the filters for a warning, which becomes a fact."""
    edits = session.state(Filters).all_edits()
    query = functools.partial(read, edits, warned.text, warned.category, place.module, place.line)
    outcome = query()
    session.note_state(query, f"warnings.filters for {warned.category.__name__}", outcome)
    return outcome


def _error(warned: Warned) -> Warning:
    return warned.message if isinstance(warned.message, Warning) else warned.category(warned.message)


def _warn_in_region(session: TracingSession, warned: Warned, place: WarningPlace) -> None:
    region, action = session.state(Filters).regions[-1], _outcome(session, action_of, warned, place)
    if action == "error":
        raise _error(warned)
    if action == "ignore":
        return
    if action != "always":
        key = (id(place.namespace), place.levels_above, warned.text, warned.category)
        shown = (*key, _KEYS[action](place.line))
        if shown in region.shown:
            return
        region.shown.add(shown)
    if region.messages is None:
        prims.python_call(output_replay.show, warned, place)
    elif place.levels_above:
        raise UnsupportedProgram(
            "the program records a warning at its caller's line", hint="Pass a smaller stacklevel."
        )
    else:
        region.messages.append(output_replay.message_of(warned, place))


#: action → the part of a registry's key that depends on the line; the registry of a module is emptied when a
#: region begins, that of ``once`` as well (Python/_warnings.c, ``already_warned``)
_KEYS: dict[str, Callable[[int], int | None]] = {
    "default": lambda line: line,
    "module": lambda line: 0,
    "once": lambda line: None,
}


@TABLE.lookaside(warnings.warn_explicit)
def _warn_explicit(session: TracingSession, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    raise UnsupportedProgram("warnings.warn_explicit inside a compiled function", hint="Use warnings.warn.")


# -- filters -------------------------------------------------------------------------------------------------


def _edit(
    session: TracingSession, edit: Edit, fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    filters = session.state(Filters)
    if filters.regions:
        filters.regions[-1].edits.append(edit)
        filters.mutated()
    else:
        filters.edits.append(edit)
        prims.python_call(fn, *args, **kwargs)


@TABLE.lookaside(warnings.simplefilter)
def _simplefilter(session: TracingSession, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    def edit(action: str, category: Any = Warning, lineno: int = 0, append: bool = False) -> Edit:
        return Edit((action, None, category, None, lineno), append)

    _edit(session, edit(*args, **kwargs), warnings.simplefilter, args, kwargs)


@TABLE.lookaside(warnings.filterwarnings)
def _filterwarnings(session: TracingSession, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    def edit(
        action: str,
        message: str = "",
        category: Any = Warning,
        module: str = "",
        lineno: int = 0,
        append: bool = False,
    ) -> Edit:
        text = re.compile(message, re.IGNORECASE) if message else None
        where = re.compile(module) if module else None
        return Edit((action, text, category, where, lineno), append)

    _edit(session, edit(*args, **kwargs), warnings.filterwarnings, args, kwargs)


@TABLE.lookaside(warnings.resetwarnings)
def _resetwarnings(session: TracingSession, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    _edit(session, Edit(None), warnings.resetwarnings, args, kwargs)


@TABLE.lookaside(warnings.catch_warnings.__enter__)
def _enter(session: TracingSession, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    region = args[0]
    if session.entry_of(region) is not None or region._module is not warnings:
        raise UnsupportedProgram(
            "the program enters a catch_warnings that it did not make itself",
            hint="Write `with warnings.catch_warnings():` in the program.",
        )
    if region._entered:
        raise RuntimeError(f"Cannot enter {region!r} twice")
    region._entered = True
    messages: list[Any] | None = [] if region._record else None
    session.state(Filters).regions.append(FilterRegion(messages))
    session.state(Filters).mutated()
    if getattr(region, "_filter", None) is not None:
        session.call(warnings.simplefilter, region._filter, {})
    return messages


@TABLE.lookaside(warnings.catch_warnings.__exit__)
def _exit(session: TracingSession, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    if not args[0]._entered:
        raise RuntimeError(f"Cannot exit {args[0]!r} without entering first")
    session.state(Filters).regions.pop()
    session.state(Filters).mutated()
