"""Clocks and the system's randomness in the traced program: each reading is one of the call that runs.

    start = time.perf_counter()
    y = self.layer(x)
    self.elapsed = time.perf_counter() - start     # in each call, of the kernels of this part of the program
    self.run = uuid.uuid4()                        # a value that nothing may look into, except as a text

In a checkpointed region, and in a function that is mapped over a batch, a clock is refused.
"""

from __future__ import annotations

import datetime
import os
import time
from collections.abc import Callable
from typing import Any

from thunder.base.errors import UnsupportedProgram
from thunder.frontend.lookasides.lookaside_registry import LookasideTable
from thunder.frontend.objects.class_kinds import LEAVES
from thunder.frontend.objects.object_entry import ObjectEntry
from thunder.frontend.objects.object_table import describe
from thunder.frontend.objects.unknown_values import MadeInCall
from thunder.frontend.output.deferred_texts import deferred
from thunder.frontend.places import place_of
from thunder.frontend.raised_errors import text_refusal
from thunder.frontend.session import TracingSession
from thunder.ir.number_proxies import decided_value
from thunder.ir.proxies import NumberProxy
from thunder.ops import prims
from thunder.ops.prims.clock_readings import CLOCKS

TABLE = LookasideTable()


def _read(name: str, clock: Callable[[], Any]) -> None:
    @TABLE.lookaside(clock)
    def rule(session: TracingSession, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if args or kwargs:
            raise TypeError(f"time.{name}() takes no arguments ({len(args) + len(kwargs)} given)")
        _check_place(session, f"reads time.{name}()")
        return prims.read_clock(name)


for _name, _clock in CLOCKS.items():
    _read(_name, _clock)


@TABLE.lookaside(time.sleep)
def _sleep(session: TracingSession, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    _check_place(session, "calls time.sleep()")
    (seconds,) = args
    if not isinstance(seconds, int | float | NumberProxy):
        raise TypeError(f"'{type(seconds).__name__}' object cannot be interpreted as an integer")
    prims.python_call(time.sleep, seconds)


def _make_value(
    session: TracingSession,
    name: str,
    make: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Any:
    """Return what a statement makes in each call: a text, or a value that the program may only pass on."""
    _check_place(session, f"calls {name}()")
    args = tuple(decided_value(a, name) for a in args)
    kwargs = {key: decided_value(value, name) for key, value in kwargs.items()}
    for value in (*args, *kwargs.values()):
        if type(value) not in LEAVES:
            raise UnsupportedProgram(
                f"the program calls {name}() with {describe(value)}",
                hint="Pass it numbers or a time zone of a fixed offset, or call it outside the compiled "
                "function.",
            )
    sample = make(*args, **kwargs)  # raises what the call of the program raises
    proxy = prims.make_value(prims.MadeValue(make, args, kwargs))
    if isinstance(sample, str):
        text = deferred(session, proxy, "")
        if text is None:
            raise text_refusal(proxy)
        return text
    made = MadeInCall(f"the result of {name}()", proxy, type(sample))
    entry = ObjectEntry(made, session.object_root(made, name), made)
    entry.refusal = made.refusal()
    session.objects.entries[id(made)] = session.objects.unread[id(made)] = entry
    return made


@TABLE.lookaside(os.urandom)
def _urandom(session: TracingSession, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return _make_value(session, "os.urandom", os.urandom, args, kwargs)


def _of_class(owner: type, name: str) -> None:
    @TABLE.lookaside(vars(owner)[name])
    def rule(session: TracingSession, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        cls, *rest = args
        shown = f"{cls.__module__}.{cls.__qualname__}.{name}"
        if cls not in (datetime.date, datetime.datetime):
            raise UnsupportedProgram(
                f"the program calls {shown}(), of a class that extends datetime.{owner.__name__}",
                hint=f"Call datetime.{owner.__name__}.{name}(), or call it outside the compiled function.",
            )
        return _make_value(session, shown, getattr(cls, name), tuple(rest), kwargs)


for _owner, _method in ((datetime.datetime, "now"), (datetime.datetime, "utcnow"), (datetime.date, "today")):
    _of_class(_owner, _method)


def _of_module(module: str, name: str) -> None:
    @TABLE.named_closure_lookaside(module, name)
    def rule(session: TracingSession, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return _make_value(session, f"{module}.{name}", args[0], args[1:], kwargs)


for _module, _names in {
    "uuid": ("uuid1", "uuid4"),
    "secrets": ("token_bytes", "token_hex", "token_urlsafe"),
}.items():
    for _name in _names:
        _of_module(_module, _name)


@TABLE.lookaside(MadeInCall.__str__)
def _str(session: TracingSession, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return _text(session, (*args, ""), kwargs)


@TABLE.lookaside(MadeInCall.__repr__, MadeInCall.__format__)
def _text(session: TracingSession, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    value, *spec = args
    text = deferred(session, value.proxy, spec[0] if spec else None)
    if text is None:
        raise value.refusal()
    return text


def _check_place(session: TracingSession, what: str) -> None:
    place = place_of(session)
    if place is not None:
        raise UnsupportedProgram(
            f"the program {what} in {place}", hint="Read the clock around the call of it."
        )
