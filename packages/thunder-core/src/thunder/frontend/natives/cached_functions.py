"""Calls of functions under ``functools.lru_cache``, whose results all callers share.

    recipe(pattern)   →   a fact: the cache's entry of recipe(pattern) is this object

A call whose arguments exist before the program runs is made on the real cache. An entry that is there is the
result; without one, the function runs as it is, once, and the cache has its result, as in eager. The guard
asks the cache for the entry, and never runs the function. What the program reads of the result are facts.
Each use counts as in eager, in the order of the program: the epilogue repeats it.

A key is compared by its value: a number of the trace is one from there on, a decision, and a symbolic size is
fixed.

A program that asks for more entries than a cache holds finds none of them at its next call: which entries are
there depends on the order of its calls. Such a call of the function is an opaque call, made in each call of
the program, at its place.

A call with a value that the program computes, such as a tensor, finds no entry that an earlier call of the
program made: the function is interpreted, and its result is shared within this call of the program.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import types
from collections import Counter, OrderedDict
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakKeyDictionary, WeakSet

import torch

from thunder.base import opaque_results
from thunder.base.cache_queries import CacheQuery, entries_of, key_of
from thunder.base.errors import NotInitialized, StateChanged, UnsupportedProgram
from thunder.base.tags import OpTags
from thunder.frontend.epilogue.reconstruction import state_of
from thunder.frontend.lookasides.mode_regions import InferenceModes
from thunder.frontend.natives.native_tables import cached_of_typing
from thunder.frontend.natives.written_state import reached_write, written_part
from thunder.frontend.objects.class_kinds import IDENTITY_TYPES, LEAVES, is_compared_by_parts, plain_base
from thunder.frontend.objects.object_table import describe
from thunder.frontend.objects.writes import Write, WrittenNames
from thunder.frontend.opaque_calls import opaque_acquisition
from thunder.frontend.output import output_replay
from thunder.frontend.output.printing import printable
from thunder.frontend.ran_code import CALL_IT_BEFORE, RanCode
from thunder.frontend.session import SessionState, TracingSession
from thunder.frontend.types.number_members import value_of_key
from thunder.ir.proxies import Proxy, TensorProxy
from thunder.ir.symbol import has_tags
from thunder.ir.trace import detached_trace
from thunder.ops import prims

if TYPE_CHECKING:
    from thunder.frontend.epilogue.epilogue_builder import EpilogueBuilder


class _New:
    """The type of :data:`_NEW`."""


#: an argument that differs from call to call of the program
_NEW: Final = _New()


class CachedCalls(SessionState):
    """The calls of cached functions in one acquisition."""

    def __init__(self, session: TracingSession) -> None:
        #: results of interpreted calls, by id of the wrapper, which is held
        self.interpreted: dict[int, tuple[Any, OrderedDict[Any, Any]]] = {}
        self.last: dict[int, dict[Any, Any]] = {}  # results of caches that are asked each time, by id and key
        self.asked: dict[int, dict[Any, None]] = {}  # keys of the real cache, by id of the wrapper
        self.uses: list[CacheQuery] = []  # of entries, in the order of the program
        self._counted: Counter[Any] = Counter()  # how often each of them has been used
        self.cleared = WrittenNames()  # those whose caches the program has cleared, by id

    def results(self, fn: Any) -> OrderedDict[Any, Any]:
        """Return the results of a function that was interpreted, the least recently used first."""
        return self.interpreted.setdefault(id(fn), (fn, OrderedDict()))[1]

    def note_use(self, query: CacheQuery, *, has_run: bool) -> None:
        """Note that the program uses an entry; count it unless an earlier trace for this call did."""
        self.uses.append(query)
        self._counted[query.use] += 1
        if self._counted[query.use] > opaque_results.uses(query.use):
            opaque_results.add_use(query.use)
            if not has_run:
                query.count()

    @property
    def needs_epilogue(self) -> bool:
        return bool(self.uses)

    def emit_before(self, builder: EpilogueBuilder) -> None:
        for query in self.uses:
            builder.emit(f"{builder.constant('entry', query)}.repeat()")

    def writes(self) -> Iterator[Write]:
        return itertools.starmap(self._clearing, self.cleared.items())

    def _clearing(self, key: int, fn: Any) -> Write:
        return Write(
            name=f"the cache of {_name(fn)}",
            emit=lambda builder: builder.emit(f"{builder.constant('cached', fn)}.cache_clear()"),
            owner=fn,
            path=self._session.object_root(fn, _name(fn)),
            moment=self.cleared.moments[key],
        )


def call_cached(session: TracingSession, fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call a function under ``functools.lru_cache``, through its cache.

    ``typing`` has such functions, which return types: each is one object for all callers. A method of a
    logger, which logs a message once, is called when the computation runs.

    Raises UnsupportedProgram where the result cannot be that of eager.
    """
    if id(fn) in cached_of_typing():
        return fn(*args, **kwargs)
    if args and isinstance(args[0], logging.Logger):
        return _log_once(session, fn, *args, **kwargs)
    if fn.cache_parameters()["maxsize"] == 0:
        return session.call(fn.__wrapped__, args, kwargs)
    if id(fn) in session.state(CachedCalls).cleared:
        raise _refusal(fn, "is called after the program has cleared its cache", "Clear it before the call.")
    args = tuple(map(value_of_key, args))
    kwargs = {name: value_of_key(value) for name, value in kwargs.items()}
    if session.entry_of(fn) is None:  # the program itself put the function under a cache
        return _interpreted(session, fn, args, kwargs)
    if _asks_for_too_many(session, fn):
        return _asked_each_time(session, fn, args, kwargs)
    existing = [_existing(session, fn, value) for value in args]
    existing_kwargs = {name: _existing(session, fn, value) for name, value in kwargs.items()}
    if any(value is _NEW for value in (*existing, *existing_kwargs.values())):
        return _interpreted(session, fn, args, kwargs)
    return _asked(session, fn, tuple(existing), existing_kwargs)


def _log_once(session: TracingSession, fn: Any, logger: logging.Logger, *args: Any, **kwargs: Any) -> None:
    session.guard_identity(logger)
    shown = {name: printable(session, value) for name, value in kwargs.items()}
    prims.python_call(output_replay.log_once, fn, logger, *(printable(session, a) for a in args), **shown)


# -- arguments -----------------------------------------------------------------------------------------------


def _settle_numbers(value: Any) -> None:
    """Replace numbers of the trace in an object of the program's, whose class compares parts."""
    for name, part in state_of(value).items():
        number = value_of_key(part)
        if number is not part:
            object.__setattr__(value, name, number)


def _existing(session: TracingSession, fn: Any, value: Any) -> Any:
    """Return an argument as eager has it if it, or an equal one, is there at each call; else _NEW."""
    kind = type(value)
    if isinstance(value, IDENTITY_TYPES):
        session.guard_identity(value)
        return _NEW if id(value) in session.created_by_program else value
    if kind in LEAVES or plain_base(kind) in LEAVES:
        return value
    entry = session.entry_of(value)
    if isinstance(value, tuple | frozenset):
        parts = [_existing(session, fn, part) for part in value]
        return _NEW if any(part is _NEW for part in parts) else value if entry is None else entry.obj
    if entry is not None:
        if not _is_by_identity(kind) and written_part(session, [value]) is not None:
            raise _refusal(fn, f"receives {entry.path.source}, which the program has written")
        session.guard_identity(value)
        return entry.obj
    if isinstance(value, Proxy | TensorProxy) or _is_by_identity(kind):
        return _NEW
    if kind.__hash__ is None or kind.__module__ == "typing":  # C code raises TypeError for the first
        return value
    _settle_numbers(value)
    parts = [_existing(session, fn, part) for part in state_of(value).values()]
    return _NEW if any(part is _NEW for part in parts) else value


def _is_by_identity(kind: type) -> bool:
    hashing: Any = kind.__hash__
    return hashing is object.__hash__


# -- the real cache ------------------------------------------------------------------------------------------


def _asked(session: TracingSession, fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Return the entry of the real cache, as the program sees it, with the fact that it is there."""
    key = key_of(fn, args, kwargs)
    text = ", ".join([*map(_shown, args), *(f"{k}={_shown(v)}" for k, v in kwargs.items())])
    name = f"{_name(fn)}({text})"
    is_there = key in entries_of(fn)  # raises TypeError, as the call, for what has no hash
    _note_question(session, fn, key)
    query = CacheQuery(fn, args, kwargs, name)
    path = session.object_root(query, name).step("cached", "entry")
    calls = session.state(CachedCalls)
    if is_there:
        result = query()
        calls.note_use(query, has_run=False)
    else:
        try:
            with _running(session, fn, name, key, (*args, *kwargs.values())):
                result = fn(*args, **kwargs)
        except UnsupportedProgram:
            raise
        except Exception:  # which has left no entry: the program sees what the function reads and raises
            return session.call(fn.__wrapped__, args, kwargs)
        calls.note_use(query, has_run=True)
    if type(result) in LEAVES:
        return session.adopt(result, path)
    session.note(prims.check_same_object, path, result)
    return session.adopt(result, session.object_root(result, name))


def _shown(value: Any) -> str:
    if type(value) is tuple:
        return f"({', '.join(map(_shown, value))})"
    return repr(value) if type(value) in LEAVES else getattr(value, "__qualname__", type(value).__name__)


#: caches → the programs, by the code in which they begin, that have asked them for more than they hold
_FULL: WeakKeyDictionary[Any, WeakSet[types.CodeType]] = WeakKeyDictionary()


def _asks_for_too_many(session: TracingSession, fn: Any) -> bool:
    """Return whether the program has asked, in an earlier call, for more entries than the cache holds."""
    return fn in _FULL and session.machine.frames[0].code in _FULL[fn]


def _note_question(session: TracingSession, fn: Any, key: Any) -> None:
    """Note that the program asks for an entry.

    Raises NotInitialized where it asks for more than the cache holds: Python runs this call, which finds the
    entries that were made while the program was traced. Raises StateChanged if it would not.
    """
    asked = session.state(CachedCalls).asked.setdefault(id(fn), {})
    asked[key] = None
    maxsize = fn.cache_parameters()["maxsize"]
    if maxsize is None or len(asked) <= maxsize:
        return
    what = f"is full with {maxsize} entries, and the program asks for more"
    _FULL.setdefault(fn, WeakSet()).add(session.machine.frames[0].code)
    if any(k not in entries_of(fn) for k in asked if k is not key):
        raise _has_changed(fn, what)
    raise NotInitialized(
        f"{_name(fn)} is under functools.lru_cache, and {what}", hint="Give the cache a larger maxsize."
    )


def _asked_each_time(session: TracingSession, fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call a cached function by an opaque call; results that are one object in the cache are one here."""
    key = key_of(fn, args, kwargs)
    calls = session.state(CachedCalls)
    is_shared = key in calls.results(fn)  # raises TypeError, as the call, for what has no hash
    last = calls.last.setdefault(id(fn), {})
    _check_writes(session, fn, key, (*args, *kwargs.values()))

    def run(*args: Any, **kwargs: Any) -> Any:
        try:
            result = fn(*args, **kwargs)
        except Exception as error:  # Python would make the calls before this one again
            what = "raises in a program that asks for more entries than it holds"
            raise _has_changed(fn, what) from error
        if not _is_value(result):
            what = f"is asked for more entries than it holds, and one is {describe(result)}"
            raise _refusal(fn, what, "Give the cache a larger maxsize.")
        if is_shared and result is not last[key]:
            raise _refusal(fn, "an entry has been replaced that the program uses twice")
        last[key] = result
        return result

    run.__module__, run.__qualname__ = fn.__module__, _name(fn)
    return _shared(calls, fn, key, opaque_acquisition.call(session, run, args, kwargs))


def _is_value(result: Any) -> bool:
    """Return whether an entry is a tensor, an immutable value, or a tuple of these, which no one writes."""
    if isinstance(result, tuple):
        return all(map(_is_value, result))
    return isinstance(result, torch.Tensor) or type(result) in LEAVES


@contextlib.contextmanager
def _running(
    session: TracingSession, fn: Any, name: str, key: Any, values: tuple[Any, ...]
) -> Iterator[None]:
    """Check what a function reads and writes that runs as it is while the program is traced."""
    _check_writes(session, fn, key, values)
    draws = any(has_tags(b, {OpTags.RANDOM_OP}) for b in session.trace.bound_symbols)
    state = torch.get_rng_state() if draws else None
    tensors = [e.obj for e in session.objects.entries.values() if isinstance(e.obj, torch.Tensor)]
    versions = [(t, t._version) for t in tensors if not t.is_inference()]
    inference = session.state(InferenceModes).is_on
    with detached_trace(), torch.inference_mode() if inference else contextlib.nullcontext():
        try:
            yield
        finally:
            session.state(RanCode).note(session, name)
    if state is not None and not torch.equal(state, torch.get_rng_state()):
        raise _has_changed(fn, "draws random numbers after the program has drawn some")
    if any(t._version != version for t, version in versions):
        raise _has_changed(fn, "writes to a tensor that the program has read")


def _check_writes(session: TracingSession, fn: Any, key: Any, values: tuple[Any, ...]) -> None:
    written = reached_write(session, fn.__wrapped__, values)
    if written is not None:
        missing = NotInitialized(
            f"{_name(fn)} is under functools.lru_cache, and may read {written}, which the program has "
            "written before",
            hint=CALL_IT_BEFORE,
        )
        missing.key = hash(key)  # of each entry that is not there
        raise missing


def _name(fn: Any) -> str:
    return str(getattr(fn, "__qualname__", "a cached function"))


def _refusal(fn: Any, what: str, hint: str = CALL_IT_BEFORE) -> UnsupportedProgram:
    return UnsupportedProgram(f"{_name(fn)} is under functools.lru_cache, and {what}", hint=hint)


def _has_changed(fn: Any, what: str) -> StateChanged:
    return StateChanged(f"{_name(fn)} is under functools.lru_cache, and {what}", hint=CALL_IT_BEFORE)


# -- calls with new values -----------------------------------------------------------------------------------


class _ById:
    """A part of a key that is compared by identity; it holds the value."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _ById) and self.value is other.value

    def __hash__(self) -> int:
        return id(self.value)


def _interpreted(session: TracingSession, fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Interpret a cached function, once for equal arguments."""
    results = session.state(CachedCalls).results(fn)
    parts = tuple(_key_part(session, fn, value) for value in args)
    key = key_of(fn, parts, {name: _key_part(session, fn, value) for name, value in kwargs.items()})
    result = results[key] if key in results else session.call(fn.__wrapped__, args, kwargs)
    return _shared(session.state(CachedCalls), fn, key, result)


def _shared(calls: CachedCalls, fn: Any, key: Any, result: Any) -> Any:
    """Return the result that the program already has of a call, or note this one as the cache does."""
    results = calls.results(fn)
    result = results.setdefault(key, result)
    results.move_to_end(key)
    maxsize = fn.cache_parameters()["maxsize"]
    if maxsize is not None and len(results) > maxsize:
        results.popitem(last=False)
    return result


def _key_part(session: TracingSession, fn: Any, value: Any) -> Any:
    """Return what is compared in place of a value: the value itself, or its identity."""
    kind = type(value)
    if kind in LEAVES or plain_base(kind) in LEAVES or kind.__hash__ is None:
        return value
    if isinstance(value, tuple | frozenset) and is_compared_by_parts(kind):
        parts = (_key_part(session, fn, part) for part in value)
        return frozenset(parts) if isinstance(value, frozenset) else tuple(parts)
    if isinstance(value, (Proxy, TensorProxy, *IDENTITY_TYPES)) or _is_by_identity(kind):
        session.guard_identity(value)
        return _ById(value)
    raise _refusal(
        fn,
        f"receives {describe(value)}, with a __hash__ of its own, that contains a tensor or what the "
        "program created",
        "Pass its parts.",
    )
