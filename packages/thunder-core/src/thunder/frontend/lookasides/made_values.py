"""Values that a program has made in each call, and what it computes of them: statements of the program.

    run = uuid.uuid4()             →   t0 = make_value(uuid4())
    name = run.hex[:8]                 t1 = derive_value(getattr, (t0, 'hex')); t2 = derive_value(getitem, …)
    x * datetime.now().year            t4 = derive_value(getattr, (t3, 'year')); t5 = mul(x, t4)

The values are immutable, so that each attribute, method and operator of one is a function of it. Numbers are
numbers of the program, on whose values it may decide; texts are put together as other deferred texts.
"""

from __future__ import annotations

import datetime
import operator
import os
import random
import secrets
import time
import types
import uuid
from collections.abc import Callable
from typing import Any, Final

from thunder.base.errors import UnsupportedProgram
from thunder.frontend.host_draws.host_generators import is_system_generator
from thunder.frontend.lookasides.lookaside_registry import LookasideTable
from thunder.frontend.natives.native_tables import ALLOWED, is_value_preserving
from thunder.frontend.objects.class_kinds import DATES, LEAVES
from thunder.frontend.objects.object_entry import ObjectEntry
from thunder.frontend.objects.object_table import describe
from thunder.frontend.objects.unknown_values import DeferredText, MadeInCall
from thunder.frontend.output.deferred_texts import deferred, template_of
from thunder.frontend.output.output_replay import formatted
from thunder.frontend.places import READS_CLOCK
from thunder.frontend.raised_errors import text_refusal
from thunder.frontend.session import SessionState, TracingSession
from thunder.ir.number_proxies import decided_value
from thunder.ir.proxies import AnyProxy, NumberProxy
from thunder.ops import prims

__all__ = ["RULES", "TABLE", "are_read", "derived", "load_attr"]

TABLE = LookasideTable(READS_CLOCK)

#: classes of the values of which a program may compute others
_VALUES = frozenset({*DATES, bytes, uuid.UUID, time.struct_time})
_NUMBERS = frozenset({int, float, bool})
#: functions that look at the class of an argument, or at which object it is
_OF_OBJECTS = frozenset(
    map(
        id,
        (
            isinstance,
            issubclass,
            type,
            callable,
            id,
            iter,
            next,
            getattr,
            setattr,
            operator.is_,
            operator.is_not,
        ),
    )
)
_OPERATORS = frozenset(map(id, (operator.add, operator.mul, operator.getitem, operator.concat)))


#: functions that read a clock, the zone or the locale of the machine
_OF_THE_CLOCK = (time.localtime, time.gmtime, time.ctime, time.asctime, time.strftime)


class MadeSamples(SessionState):
    """The values that were made in the call that is traced, by the names of their proxies."""

    def __init__(self, session: TracingSession) -> None:
        self.samples: dict[str, Any] = {}
        self.count = 0  # of the statements that make values


def make_value(
    session: TracingSession,
    name: str,
    make: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Any:
    """Return what a statement makes in each call."""
    session.place.check(READS_CLOCK, f"the program calls {name}()")
    args = tuple(decided_value(a, name) for a in args)
    kwargs = {key: decided_value(value, name) for key, value in kwargs.items()}
    for value in (*args, *kwargs.values()):
        if type(value) not in LEAVES:
            raise UnsupportedProgram(
                f"the program calls {name}() with {describe(value)}",
                hint="Pass it numbers or a time zone, or call it outside the compiled function.",
            )
    sample = make(*args, **kwargs)  # raises what the call of the program raises
    state = session.state(MadeSamples)
    state.count += 1
    proxy = prims.make_value(prims.MadeValue(make, args, kwargs, state.count))
    return _value(session, f"the result of {name}()", proxy, sample)


def _value(session: TracingSession, name: str, proxy: Any, sample: Any) -> Any:
    """Return what the program has of a value: a number, a truth value, a text, or a value by itself."""
    if type(sample) in _NUMBERS:
        if type(proxy) is AnyProxy:
            proxy = prims.derive_value(prims.DerivedValue(operator.pos, type(sample)), (proxy,))
        return decided_value(proxy, f"a question about {name}") if type(sample) is bool else proxy
    session.state(MadeSamples).samples[proxy.name] = sample
    if type(sample) is str:
        text = deferred(session, proxy, "")
        if text is None:
            raise text_refusal(proxy)
        return text
    made = MadeInCall(name, proxy, sample)
    entry = ObjectEntry(made, session.object_root(made, name), made)
    entry.refusal = made.refusal()
    session.objects.entries[id(made)] = session.objects.unread[id(made)] = entry
    return made


def load_attr(session: TracingSession, made: MadeInCall, name: str) -> Any:
    """Read an attribute of a value that was made in a call."""
    if type(made.sample) not in _VALUES:
        raise made.refusal()
    if callable(getattr(made.sample, name)):  # raises as the program does
        return types.MethodType(_call_method, (made, name))
    return derived(session, getattr, (made, name), {})


def _call_method(method: tuple[MadeInCall, str], *args: Any, **kwargs: Any) -> Any:
    """Stand for a method of a value; a rule does the call."""
    raise method[0].refusal()


@TABLE.lookaside(_call_method)
def _method(session: TracingSession, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    (made, name), *rest = args
    return derived(session, _Method(name), (made, *rest), kwargs)


class _Method:
    """A method of its first argument, as a function."""

    def __init__(self, name: str) -> None:
        self.__qualname__ = name

    def __call__(self, value: Any, *args: Any, **kwargs: Any) -> Any:
        return getattr(value, self.__qualname__)(*args, **kwargs)


def _is_made(session: TracingSession, x: Any) -> bool:
    """Return whether a value is one that was made, or a text of such values alone."""
    if type(x) is not DeferredText:
        return type(x) is MadeInCall
    samples = session.state(MadeSamples).samples
    return bool(samples) and all(
        type(value) is AnyProxy and value.name in samples for value in template_of(session, x)[1]
    )


def _of_text(session: TracingSession, text: DeferredText) -> MadeInCall:
    """Return a text of values that were made as one such value, which a statement makes."""
    template, values, specs = template_of(session, text)
    samples = session.state(MadeSamples).samples
    text_of = _TextOf(template, specs)
    proxy = prims.derive_value(prims.DerivedValue(text_of, str), values)
    return MadeInCall("a text of values", proxy, text_of(*(samples[value.name] for value in values)))


class _TextOf:
    """The text of a template, as a function of its values."""

    def __init__(self, template: str, specs: tuple[str | None, ...]) -> None:
        self.__qualname__, self.template, self.specs = "formatted", template, specs

    def __call__(self, *values: Any) -> str:
        return formatted(self.template, values, self.specs)


def are_read(
    session: TracingSession, fn: Any, descriptor: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> bool:
    """Return whether a native call computes of values that were made, and of numbers and the like alone."""
    owner = getattr(fn, "__self__", None)
    operands = (*args, *kwargs.values())
    if not isinstance(owner, types.ModuleType | type | None):
        operands = (owner, *operands)
    if id(fn) in _OF_OBJECTS or not any(_is_made(session, x) for x in operands):
        return False
    if is_value_preserving(descriptor) and id(fn) not in _OPERATORS and fn is not len and fn is not bool:
        return False
    is_pure = id(fn) in ALLOWED or getattr(descriptor, "__objclass__", owner if owner else fn) in LEAVES
    return is_pure and all(
        _is_made(session, x) or type(x) in LEAVES or isinstance(x, NumberProxy) for x in operands
    )


def derived(session: TracingSession, fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Return the result of a pure call, which a statement makes in each call.

    Raises the refusal of an argument where the result is of a class of which nothing else is known.
    """
    if type(fn) in (types.BuiltinFunctionType, types.MethodWrapperType) and _is_made(session, fn.__self__):
        fn, args = _Method(fn.__name__), (fn.__self__, *args)
    args = tuple(_of_text(session, a) if type(a) is DeferredText else a for a in args)
    made = next(a for a in args if type(a) is MadeInCall)
    kwargs = {name: decided_value(value, name) for name, value in kwargs.items()}
    if any(type(value) not in LEAVES for value in kwargs.values()):
        raise made.refusal()
    given = [a if type(a) is MadeInCall or type(a) in LEAVES else decided_value(a, "a value") for a in args]
    if any(type(a) is not MadeInCall and type(a) not in LEAVES for a in given):
        raise made.refusal()
    session.place.check(READS_CLOCK, f"the program reads {made.description()}")
    sample = fn(*(a.sample if type(a) is MadeInCall else a for a in given), **kwargs)
    if sample is NotImplemented:
        return sample
    kind = type(sample)
    if kind not in _NUMBERS and kind is not str and kind not in _VALUES:
        raise made.refusal()
    operands = tuple(a.proxy if type(a) is MadeInCall else a for a in given)
    proxy = prims.derive_value(prims.DerivedValue(fn, kind, kwargs), operands)
    return _value(session, made.description(), proxy, sample)


#: functions whose rules look into values that were made
RULES = (
    *(getattr(MadeInCall, f"__{name}__") for name in ("repr", "str", "format", "eq", "ne", "bool")),
    *_OF_THE_CLOCK,
    _call_method,
)
TABLE.taking_unread.update(map(id, RULES))


@TABLE.lookaside(MadeInCall.__eq__)
def _eq(session: TracingSession, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return _compared(session, operator.eq, args)


@TABLE.lookaside(MadeInCall.__ne__)
def _ne(session: TracingSession, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return _compared(session, operator.ne, args)


def _compared(session: TracingSession, fn: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    made, other = args
    if not (_is_made(session, other) or type(other) in LEAVES):
        raise made.refusal()
    return derived(session, fn, args, {})


@TABLE.lookaside(MadeInCall.__bool__)
def _truth(session: TracingSession, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return derived(session, bool, args, kwargs)


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


# -- functions that make values ------------------------------------------------------------------------------


def _of_the_clock(fn: Callable[..., Any]) -> None:
    @TABLE.lookaside(fn)
    def rule(session: TracingSession, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if any(_is_made(session, a) for a in args):
            return derived(session, fn, args, kwargs)
        return make_value(session, f"time.{fn.__name__}", fn, args, kwargs)


for _fn in _OF_THE_CLOCK:
    _of_the_clock(_fn)


@TABLE.lookaside(os.urandom)
def _urandom(session: TracingSession, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return make_value(session, "os.urandom", os.urandom, args, kwargs)


@TABLE.lookaside(random.SystemRandom)
def _make_system_generator(session: TracingSession, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return random.SystemRandom(*args, **kwargs)  # which has no state


#: draws until a number is below the limit
_BELOW: Final[Any] = vars(random.Random)["_randbelow_with_getrandbits"]


@TABLE.lookaside(_BELOW)
def _below(session: TracingSession, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if not is_system_generator(args[0]):
        return session.machine.generic_call(_BELOW, args, kwargs)
    return make_value(session, "secrets.randbelow", secrets.randbelow, args[1:], kwargs)


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
        return make_value(session, shown, getattr(cls, name), tuple(rest), kwargs)


for _owner, _maker in ((datetime.datetime, "now"), (datetime.datetime, "utcnow"), (datetime.date, "today")):
    _of_class(_owner, _maker)


def _of_module(module: str, name: str) -> None:
    @TABLE.named_closure_lookaside(module, name)
    def rule(session: TracingSession, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return make_value(session, f"{module}.{name}", args[0], args[1:], kwargs)


for _module, _names in {
    "uuid": ("uuid1", "uuid4"),
    "secrets": ("randbelow", "token_bytes", "token_hex", "token_urlsafe"),
}.items():
    for _name in _names:
        _of_module(_module, _name)
