"""Progress bars of tqdm in the traced program: drawn in each call, as output is.

    for x in tqdm(xs):            →   begin_bar(…, total=3)
        bar.set_postfix(n=n)          call_of_bar(…, 1, 3, 'set_postfix', n=n); …
                                      end_bar(…, 3, 3)

A bar of the program is an object of the class whose construction draws nothing. What it shows depends on the
time, and so do the attributes that the program cannot read.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any, Final

from thunder.base.errors import UnsupportedProgram
from thunder.frontend.lookasides.lookaside_registry import LookasideTable
from thunder.frontend.objects.class_kinds import LEAVES
from thunder.frontend.objects.unknown_values import UnknownValue
from thunder.frontend.output.deferred_texts import DeferredText, template_of
from thunder.frontend.output.printing import StandardStream, printable
from thunder.frontend.output.progress_replay import (
    BarPlace,
    begin_bar,
    call_of_bar,
    end_bar,
    text_of_bar,
)
from thunder.frontend.places import OUTPUT
from thunder.frontend.session import SessionState, TracingSession
from thunder.frontend.session_rules import SessionRules
from thunder.interpreter.iteration import iterate
from thunder.ops import prims
from thunder.plugins.markers import hookimpl

TABLE = LookasideTable(OUTPUT, takes_unread=True)
_MODULE: Final = "tqdm.std"
Args = tuple[Any, ...]
Kwargs = dict[str, Any]

#: classes whose bars are drawn by the functions of the module above alone
_CLASSES: Final = frozenset({"tqdm.std.tqdm", "tqdm.asyncio.tqdm_asyncio"})
#: the settings that a program may read of a bar
_READABLE: Final = (
    *("leave", "unit", "unit_scale", "unit_divisor", "initial", "delay", "mininterval", "maxinterval"),
    *("smoothing", "bar_format", "colour", "gui", "lock_args", "postfix"),
)
#: attributes of a bar that depend on the time, the terminal or other bars
_UNKNOWN: Final = (
    *("fp", "ncols", "nrows", "miniters", "dynamic_miniters", "ascii", "dynamic_ncols", "_ema_dn", "_ema_dt"),
    *("_ema_miniters", "_time", "last_print_n", "pos", "sp", "last_print_t", "start_t"),
)


def _unknown(name: str) -> UnknownValue:
    return UnknownValue(
        f"{name} of a progress bar",
        "which depends on the time, the terminal or data",
        "Read n, total or disable of it.",
    )


class Bars(SessionState):
    """The bars of the program that are shown, by the id of the object, with their places."""

    def __init__(self, session: TracingSession) -> None:
        self.shown: dict[int, tuple[Any, BarPlace]] = {}
        self.made: dict[int, Any] = {}

    def end(self) -> None:
        for bar in self.made.values():
            bar.disable = True  # its ``__del__`` then does nothing

    def finish(self) -> None:
        """Close the bars that the program has left open, as their ``__del__`` does."""
        for bar, _ in list(self.shown.values()):
            _close_bar(self._session, bar)


@TABLE.named_closure_lookaside(_MODULE, "tqdm.__new__")
def _new(session: TracingSession, args: Args, kwargs: Kwargs) -> Any:
    fn, cls = args[:2]
    if f"{cls.__module__}.{cls.__qualname__}" not in _CLASSES:
        return session.machine.generic_call(fn, args[1:], kwargs)
    bar: Any = object.__new__(cls)
    session.state(Bars).made[id(bar)] = bar
    return bar


@TABLE.named_closure_lookaside(_MODULE, "tqdm.__init__")
def _init(session: TracingSession, args: Args, kwargs: Kwargs) -> None:
    fn, bar, *rest = args
    if id(bar) not in session.state(Bars).made:
        session.machine.generic_call(fn, args[1:], kwargs)
        return
    bound = inspect.signature(fn).bind(bar, *rest, **kwargs)
    given = dict(bound.arguments)
    bound.apply_defaults()
    settings = dict(bound.arguments)
    iterable, disable = settings["iterable"], settings["disable"]
    bar.iterable, bar.total, bar.disable = iterable, _total(session, settings), bool(disable)
    bar.n, bar.leave = settings["initial"], settings["leave"]
    if disable:
        bar.pos = 0
        return
    bar.desc = settings["desc"] or ""
    for name in _READABLE:
        setattr(bar, name, settings[name])
    for name in _UNKNOWN:
        setattr(bar, name, _unknown(name))
    place = BarPlace(type(bar))
    session.state(Bars).shown[id(bar)] = bar, place
    drawn = given.keys() - {"self", "iterable", "total"}
    shown = {name: _shown(name, value) for name, value in given.items() if name in drawn}
    prims.python_call(begin_bar, place, total=bar.total, **shown)


def _total(session: TracingSession, settings: dict[str, Any]) -> Any:
    """Return the number of iterations of a bar, or None where it is not known, as tqdm does."""
    total, iterable = settings["total"], settings["iterable"]
    if total is None and iterable is not None:
        try:
            total = session.call(len, (iterable,), {})
        except (TypeError, AttributeError):
            return None
    return None if total == float("inf") else total


def _shown(name: str, value: Any) -> Any:
    if isinstance(value, StandardStream) or type(value) not in LEAVES:
        raise UnsupportedProgram(
            f"a progress bar of tqdm with {name}= another value than a number or a text",
            hint="Leave it out, or make the bar outside the compiled function.",
        )
    return value


def _place_of(session: TracingSession, bar: Any) -> BarPlace | None:
    return session.state(Bars).shown.get(id(bar), (bar, None))[1]


@TABLE.named_closure_lookaside(_MODULE, "tqdm.__iter__")
def _iter(session: TracingSession, args: Args, kwargs: Kwargs) -> Any:
    fn, bar = args
    if _place_of(session, bar) is None:
        return session.machine.generic_call(fn, (bar,), kwargs)
    return _elements(session, bar)


def _elements(session: TracingSession, bar: Any) -> Iterator[Any]:
    try:
        for element in iterate(session.machine, bar.iterable):
            yield element
            bar.n += 1
    finally:
        _close_bar(session, bar)


@TABLE.named_closure_lookaside(_MODULE, "tqdm.update")
def _update(session: TracingSession, args: Args, kwargs: Kwargs) -> Any:
    fn, bar, *rest = args
    if _place_of(session, bar) is None:
        return session.machine.generic_call(fn, args[1:], kwargs)
    (n,) = (*rest, *kwargs.values()) or (1,)
    if type(n) not in (int, float):
        raise UnsupportedProgram(
            "a progress bar that is advanced by another value than a known number",
            hint="Pass a number that does not depend on data.",
        )
    bar.n += n
    return None


@TABLE.named_closure_lookaside(_MODULE, "tqdm.close")
def _close(session: TracingSession, args: Args, kwargs: Kwargs) -> Any:
    fn, bar = args
    if id(bar) not in session.state(Bars).made:
        return session.machine.generic_call(fn, args[1:], kwargs)
    return _close_bar(session, bar)


def _close_bar(session: TracingSession, bar: Any) -> None:
    if not hasattr(session, "machine"):  # the generator of a loop outlives the acquisition
        return
    _, place = session.state(Bars).shown.pop(id(bar), (bar, None))
    bar.disable = True
    if place is not None:
        prims.python_call(end_bar, place, bar.n, bar.total)


def _note_text(bar: Any, name: str, text: Any) -> None:
    """Set the text that a bar has after a call of the method ``name``, for a program that reads it."""
    if name.startswith("set_postfix"):
        bar.postfix = _unknown("postfix")
    elif name.startswith("set_description"):
        if type(text) is DeferredText:
            bar.desc = _unknown("desc")
        else:
            bar.desc = (f"{text}: " if name == "set_description" else text) if text else ""


def _described(name: str) -> None:
    @TABLE.named_closure_lookaside(_MODULE, f"tqdm.{name}")
    def rule(session: TracingSession, args: Args, kwargs: Kwargs) -> Any:
        fn, bar, *rest = args
        place = _place_of(session, bar)
        if id(bar) not in session.state(Bars).made:
            return session.machine.generic_call(fn, args[1:], kwargs)
        _note_text(bar, name, rest[0] if rest else kwargs.get("desc"))
        if place is None:  # it is disabled, or closed
            return None
        values = [printable(session, value) for value in rest]
        named = {key: printable(session, value) for key, value in kwargs.items()}
        texts = [v for v in (*values, *named.values()) if type(v) is DeferredText]
        if not texts:
            prims.python_call(call_of_bar, place, bar.n, bar.total, name, *values, **named)
        elif len(texts) == 1 and values[:1] == texts and not named:
            template = template_of(session, texts[0])
            prims.python_call(text_of_bar, place, bar.n, bar.total, name, *template, *values[1:])
        else:
            raise UnsupportedProgram(
                f"tqdm.{name} with several texts of values", hint="Pass the values, or one text."
            )
        return None


for _name in ("set_description", "set_description_str", "set_postfix", "set_postfix_str", "refresh", "clear"):
    _described(_name)


@TABLE.named_closure_lookaside(_MODULE, "tqdm.write")
def _write(session: TracingSession, args: Args, kwargs: Kwargs) -> None:
    """Print a text: no bar is on the screen that it had to be kept apart from."""

    def write(cls: Any, s: Any, file: Any = None, end: str = "\n", nolock: bool = False) -> None:
        session.call(print, (s,), {"end": end} if file is None else {"end": end, "file": file})

    write(*args[1:], **kwargs)


@hookimpl
def thunder_session_rules() -> tuple[SessionRules, ...]:
    """Return the rules by which programs with progress bars are traced."""
    return (SessionRules("tqdm", lookasides=TABLE, kinds=(Bars,)),)
