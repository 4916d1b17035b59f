"""Weak references in the traced program: their referent is a read like any other.

    o = self.ref()                   →   path: self.ref(); facts: what is read of o, or that it is None
    self.refs = [weakref.ref(w)]     →   epilogue: self.refs = [ref_of_w]
    weakref.finalize(self, f, 1)     →   epilogue: weakref.finalize(self, f, 1)

Note [What is alive]

A weak reference shows whether its object is alive, so three things must not change that:

- A cache entry. Facts about the identity of such objects hold them weakly (:func:`hold_weakly`).
- The acquisition. It holds every object that it has seen, so an object that the program releases does not
  die, as it may in eager. Where the program wrote, the earlier object may be dead, and what it held
  (:class:`_OverwrittenPlaces`). The program can find out one thing of an object that may be dead: that it is
  not another object (:class:`MaybeDead`).
- The trace. Tensors that the program computes live as long as the trace needs them, not as long as the
  program. The program can find out whether the tensor of a weak reference is a tensor that it has
  (:class:`OwnReferent`), and no more.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from thunder.base.errors import Location, ThunderError, UnsupportedProgram
from thunder.base.provenance import ABSENT, Path, comes_with_arguments, is_weak
from thunder.frontend.facts import Fact
from thunder.frontend.lookasides.lookaside_registry import LookasideTable
from thunder.frontend.objects.class_kinds import (
    IDENTITY_TYPES,
    OfTheTrace,
    has_python_key,
    is_compared_natively,
    is_foreign,
)
from thunder.frontend.objects.object_table import ObjectTable, describe
from thunder.frontend.objects.writes import Write, WrittenNames
from thunder.frontend.places import READS, WRITES
from thunder.frontend.session import Ending, SessionState, TracingSession
from thunder.ir.proxies import TensorProxy
from thunder.ops import prims

if TYPE_CHECKING:
    from thunder.frontend.epilogue.epilogue_builder import EpilogueBuilder

TABLE = LookasideTable(READS)


@TABLE.lookaside(weakref.ref)
def _make(session: TracingSession, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Return the user object's one weak reference, or a new one to an object of the program."""
    if len(args) > 1 and args[1] is not None:
        return _make_with_callback(session, (weakref.ref, *args), kwargs)
    entry = session.entry_of(args[0]) if args else None
    if entry is None or kwargs:
        return weakref.ref(*args, **kwargs)
    reference = weakref.ref(entry.obj)
    return session.adopt(reference, entry.path.step("reference", "reference"))


class Callbacks(SessionState):
    """The objects to which the program has made weak references with a callback, and where.

    ``own`` are those that it has made itself, which it may release: then the callback runs, interpreted.
    """

    def __init__(self, session: TracingSession) -> None:
        self.objects: list[tuple[Any, list[Location]]] = []
        self.own: list[tuple[weakref.ref[Any], list[Location]]] = []
        self.failure: BaseException | None = None  # of one of these callbacks; Python ignores it
        self.has_ended = False

    def end(self) -> None:
        self.has_ended = True

    def check(self, ending: Ending) -> None:
        """Refuse a program that may release an object of which a callback would be called later."""
        self._refuse_held()
        for raw, where in self.objects:
            if may_be_dead(self._session, raw):
                raise UnsupportedProgram(
                    "the program makes a weak reference with a callback, and writes to what may hold the "
                    "object",
                    found={"object": describe(raw)},
                    where=where,
                    hint="Create the weak reference before the call.",
                )

    def _refuse_held(self) -> None:
        """Refuse a program with an object of its own that is not released, so that no callback has run."""
        failure = self.failure
        if isinstance(failure, ThunderError):
            raise failure
        if failure is not None:
            raise UnsupportedProgram(
                "the callback of a weak reference raises, which Python ignores",
                found={"error": repr(failure)},
                hint="Create the weak reference before the call.",
            ) from failure
        for reference, where in self.own:
            target = weakref.ref.__call__(reference)
            if target is None or all(r is reference for r in weakref.getweakrefs(target)):
                continue
            raise UnsupportedProgram(
                "the program makes a weak reference with a callback, and the object, which it has made as "
                "well, leaves it or is held by a cycle",
                found={"object": describe(target)},
                where=where,
                hint="Create the weak reference before the call.",
            )


@TABLE.lookaside(weakref.ref.__new__)
def _make_with_callback(session: TracingSession, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Return a new weak reference to an object that lives when the call ends, with a callback for later."""
    cls, target, *callback = args
    entry = session.entry_of(target)
    if entry is None and callback and session.entry_of(callback[0]) is None and _dies_as_in_eager(target):
        session.state(Callbacks).own.append((weakref.ref(target), session.locations()))
        return weakref.ref.__new__(cls, target, _interpreted(session, callback[0]), *callback[1:])
    if entry is None or not is_compared_natively(type(entry.obj)):
        raise UnsupportedProgram(
            "weakref.ref with a callback, to an object that the program has made or whose class defines "
            "__eq__: a compiled program could not run the callback at the same time as eager",
            hint="Create the weak reference before the call.",
        )
    session.state(Callbacks).objects.append((entry.obj, session.locations()))
    return weakref.ref.__new__(cls, entry.obj, *callback)


def _dies_as_in_eager(target: Any) -> bool:
    """Return whether a trace holds an object no longer than the program: one of a Python class."""
    return not isinstance(target, (TensorProxy, MaybeDead, OfTheTrace, *IDENTITY_TYPES)) and not is_foreign(
        type(target)
    )


def _interpreted(session: TracingSession, callback: Any) -> Any:
    """Return a callback that is interpreted where the object is released, until the program has ended."""
    state, shim = session.state(Callbacks), session.machine.shim(callback)

    def call_back(reference: weakref.ref[Any]) -> Any:
        if state.has_ended:
            return None
        try:
            return shim(reference)
        except BaseException as error:
            state.failure = error
            raise

    call_back.thunder_interpreted = callback  # type: ignore[attr-defined]
    return call_back


@TABLE.bound_lookaside(weakref.ref.__init__)
def _initialize(session: TracingSession, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Do nothing, as ``weakref.ref.__init__`` does."""


class Finalizer:
    """A ``weakref.finalize`` of a program, of which the epilogue makes Python's.

    ``info`` is None when it was called or detached.
    """

    def __init__(self, target: Any, fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.info: tuple[Any, ...] | None = (target, fn, args, kwargs)
        self.runs_at_exit = True

    def __call__(self, _: Any = None) -> Any:
        info, self.info = self.info, None
        if info is not None:
            return info[1](*info[2], **info[3])

    def detach(self) -> tuple[Any, ...] | None:
        """Return the object, the function and its arguments, which will not be called."""
        info, self.info = self.info, None
        return info

    def peek(self) -> tuple[Any, ...] | None:
        """Return the object, the function and its arguments."""
        return self.info

    @property
    def alive(self) -> bool:
        """Whether the function may still be called."""
        return self.info is not None

    @property
    def atexit(self) -> bool:
        """Whether it is called at the latest when Python ends."""
        return self.info is not None and self.runs_at_exit

    @atexit.setter
    def atexit(self, value: Any) -> None:
        self.runs_at_exit = bool(value)


class Finalizers(SessionState):
    """The finalizers that the program has made, which the epilogue makes again, and where."""

    def __init__(self, session: TracingSession) -> None:
        self.made = WrittenNames()

    def writes(self) -> Iterator[Write]:
        for finalizer, where in self.made.items():
            if finalizer.info is not None:
                target = finalizer.info[0]
                yield Write(
                    name=f"weakref.finalize({_described(target)})",
                    emit=partial(_emit_finalizer, finalizer=finalizer, where=where),
                    owner=target,
                    content=(finalizer,),
                    values=finalizer.info,
                    state=finalizer.runs_at_exit,
                    moment=self.made.moments[finalizer],
                )


@TABLE.lookaside(weakref.finalize, effect=WRITES)
def _finalize(session: TracingSession, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Finalizer:
    def finalize(obj: Any, func: Any, /, *args: Any, **kwargs: Any) -> Finalizer:
        return Finalizer(obj, func, args, kwargs)

    finalizer = finalize(*args, **kwargs)
    target = args[0]
    entry = session.entry_of(target)
    weakref.ref(target if entry is None else entry.obj)  # raises TypeError for what has none
    if entry is not None:
        session.state(Callbacks).objects.append((entry.obj, session.locations()))
    elif not _dies_as_in_eager(target):
        raise _no_finalizer(target, session.locations())
    session.note_write()
    session.state(Finalizers).made[finalizer] = session.locations()
    return finalizer


def _no_finalizer(target: Any, where: list[Location]) -> UnsupportedProgram:
    return UnsupportedProgram(
        "the program calls weakref.finalize of an object that it has made, and that does not leave it: a "
        "compiled program could not run the function at the same time as eager",
        found={"object": _described(target)},
        where=where,
        hint="Call it outside of the compiled function.",
    )


def _emit_finalizer(builder: EpilogueBuilder, finalizer: Finalizer, where: list[Location]) -> None:
    assert finalizer.info is not None, "one that was called or detached writes nothing"
    target = finalizer.info[0]
    made = builder.session.state(Finalizers).made
    own = sum(other.info is not None and other.info[0] is target for other in made)
    if builder.session.entry_of(target) is None and builder.uses[id(target)] <= own:
        raise _no_finalizer(target, where)
    emit_finalizer(builder, finalizer)


def emit_finalizer(builder: EpilogueBuilder, finalizer: Finalizer) -> str:
    """Return the name of a finalizer in the epilogue, which makes it once."""
    if id(finalizer) in builder.built:
        return builder.built[id(finalizer)][0]
    if finalizer.info is None:
        return builder.assigned("finalizer", finalizer, f"{builder.refer(_dead_finalizer)}()")
    target, *called = finalizer.info
    entry = builder.session.entry_of(target)
    obj = builder.expression(target) if entry is None else builder.fetched(entry.path, entry.obj)
    fn, args, kwargs = map(builder.expression, called)
    name = builder.assigned(
        "finalizer", finalizer, f"{builder.refer(weakref.finalize)}({obj}, {fn}, *{args}, **{kwargs})"
    )
    if not finalizer.runs_at_exit:
        builder.emit(f"{name}.atexit = False")
    return name


def _dead_finalizer() -> weakref.finalize[Any, Any]:
    finalizer = weakref.finalize(_dead_finalizer, print)
    finalizer.detach()
    return finalizer


_ALIVE, _AT_EXIT = (vars(weakref.finalize)[name] for name in ("alive", "atexit"))


@TABLE.lookaside(
    weakref.finalize.__call__,
    weakref.finalize.detach,
    weakref.finalize.peek,
    _ALIVE.fget,
    _AT_EXIT.fget,
    _AT_EXIT.fset,
)
def _refuse_finalizer(session: TracingSession, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    raise UnsupportedProgram(
        "the program uses a weakref.finalize that was made before the call, whose state Python keeps for all",
        hint="Use it outside of the compiled function.",
    )


def referent_of(session: TracingSession, reference: weakref.ref[Any]) -> Any:
    """Return the object of a weak reference, as the program sees it."""
    raw = weakref.ref.__call__(reference)
    entry = session.entry_of(reference)
    if entry is None:
        if isinstance(raw, TensorProxy) or id(raw) in session.created_by_program:
            return OwnReferent(raw, None, session.locations())
        return raw
    if raw is None:
        return session.adopt(None, entry.path.step("referent", "referent"))
    path = entry.path.step("referent", "referent")
    if may_be_dead(session, raw):
        return MaybeDead(raw, path, session.locations())
    session.objects.referents.add(id(raw))
    return session.adopt(raw, path)


# -- what the program released ------------------------------------------------------------------------------


Place = tuple[Any, ...]


def place_by_keys(path: Path) -> Place:
    """Return a path as its root and its keys.

    Two paths to one place, such as those by an attribute and by ``__dict__``, have one result.
    """
    if path.parent is None:
        return (id(path),)
    before = place_by_keys(path.parent)
    if path.kind != "key" and path.key == "__dict__":
        return before
    return (*before, as_part(path.key))


def as_part(key: Any) -> Any:
    """Return a key as a part of a place, which runs no method of its class in Python."""
    return ("object", id(key)) if has_python_key(key) else key


class _OverwrittenPlaces:
    """The places to which the program has written."""

    def __init__(self, session: TracingSession) -> None:
        self.places: set[Place] = set()
        for write in session.writes:
            if write.path is not None:
                at = place_by_keys(write.path)
                self.places |= {at} if write.keys is None else {(*at, as_part(key)) for key in write.keys}

    def __bool__(self) -> bool:
        return bool(self.places)

    def has(self, path: Path) -> bool:
        """Return whether a path leads through such a place."""
        place = place_by_keys(path)
        return any(place[:size] in self.places for size in range(1, len(place) + 1))


def may_be_dead(session: TracingSession, raw: Any) -> bool:
    """Return whether eager may have released an object of the user's.

    That is so if the program has written, and no path to the object is without such a place.
    """
    lost = _OverwrittenPlaces(session)
    holder = session.entry_of(raw)
    return bool(lost) and (holder is None or is_weak(holder.path) or lost.has(holder.path))


class MaybeDead:
    """The result of a weak reference to an object that may be dead: the object or None.

    Every use is refused, at the latest when native code reads its class, except ``is`` (:func:`is_same`).
    """

    __slots__ = ("path", "raw", "where")

    def __init__(self, raw: Any, path: Any, where: list[Any]) -> None:
        self.raw, self.path, self.where = raw, path, where

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        reference = self.path.source.removesuffix("()")
        raise UnsupportedProgram(
            f"the program calls {reference}, a weak reference, after it wrote to what may have held the last "
            "reference to the object",
            found={reference: describe(self.raw)},
            where=self.where,
            hint="Call the weak reference before the write, or keep the object itself.",
        )

    def _refuse(self, *args: Any) -> Any:
        return self.__class__

    __bool__ = __len__ = __iter__ = __call__ = __getitem__ = __contains__ = __repr__ = __str__ = _refuse
    __eq__ = __ne__ = __hash__ = __enter__ = __exit__ = __getattr__ = _refuse


class OwnReferent(MaybeDead):
    """The result of a weak reference to a tensor or function that the program has created: it or None.

    The program that compares it with the object itself has the object, which is alive in eager too.
    """

    __slots__ = ()

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        raise UnsupportedProgram(
            f"the program calls a weak reference to {_described(self.raw)} that it created itself, "
            "which may live longer or shorter than in eager",
            where=self.where,
            hint="Keep the object itself.",
        )


def _described(raw: Any) -> str:
    return "a tensor" if isinstance(raw, TensorProxy) else describe(raw)


#: the types of what a weak reference gives that may be dead
UNKNOWN: Final = frozenset({MaybeDead, OwnReferent})


def is_same(session: TracingSession, a: Any, b: Any) -> bool:
    """Do ``a is b`` where one may be dead: neither the object nor None is another object."""
    one, other = (a, b) if type(a) in UNKNOWN else (b, a)
    if other is None or type(other) in UNKNOWN:
        return isinstance(one, type)  # refused
    if type(one) is OwnReferent:
        return session.is_same(one.raw, other)
    entry = session.entry_of(other)
    if entry is not None and entry.obj is one.raw:
        return isinstance(one, type)  # refused
    if entry is not None:
        session.note(prims.check_other_object, one.path, entry.path)
    return False


def hold_weakly(objects: ObjectTable) -> None:
    """Make facts hold objects weakly, so that a cache entry does not keep them alive.

    These are the objects that the program reached by weak references, and those that come with the arguments.
    """
    for place, fact in enumerate(objects.facts):
        if fact.sym is prims.check_same_object and fact.expected is not ABSENT:  # which is not an object
            objects.facts[place] = _weak_fact(fact, objects.referents)


def _weak_fact(fact: Fact, referents: set[int]) -> Fact:
    if not (id(fact.expected) in referents or is_weak(fact.path) or comes_with_arguments(fact.path)):
        return fact
    if not type(fact.expected).__weakrefoffset__:  # such as None
        return fact
    return Fact(prims.check_referent, (fact.path, weakref.ref(fact.expected)))
