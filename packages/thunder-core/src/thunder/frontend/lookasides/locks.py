"""Locks in the traced program: ``with self.lock:`` around reads.

    with self.lock:                    →   before each call: wait until the lock is free
        table = self.tables[name]          the tables are facts, as without the lock

What a program reads is checked when a call begins, after the call has waited for the lock, as it would in
eager. What it writes is written at the end of a call, when it no longer has the lock, so that a program that
writes while it has one is refused.
"""

from __future__ import annotations

import functools
import threading
from typing import Any

from thunder.base.errors import UnsupportedProgram
from thunder.base.tags import OpTags
from thunder.frontend.lookasides.lookaside_registry import LookasideTable
from thunder.frontend.objects.class_kinds import LOCKS
from thunder.frontend.objects.writes import Mark
from thunder.frontend.places import WRITES
from thunder.frontend.session import Ending, SessionState, TracingSession
from thunder.ir.symbol import has_tags

__all__ = ["Locks"]

TABLE = LookasideTable(WRITES)

Args = tuple[Any, ...]
Kwargs = dict[str, Any]
_Lock = type(threading.Lock())


class Locks(SessionState):
    """The locks that the program has, by id: each with a count, and what was written before."""

    def __init__(self, session: TracingSession) -> None:
        self.held: dict[int, tuple[Any, int, tuple[Mark, int] | None]] = {}

    def check(self, ending: Ending) -> None:
        """Refuse a program that ends while it has a lock of the user's."""
        if any(self._session.entry_of(lock) is not None for lock, _, _ in self.held.values()):
            raise UnsupportedProgram(
                "the program ends while it has a lock",
                hint="Acquire it around the call of the compiled function.",
            )


def wait_for(lock: Any) -> bool:
    """Wait until no other thread has a lock; return True."""
    with lock:
        return True


def _acquire(session: TracingSession, args: Args, kwargs: Kwargs) -> bool:
    return _acquire_lock(session, *args, **kwargs)


def _acquire_lock(session: TracingSession, lock: Any, blocking: Any = True, timeout: float = -1) -> bool:
    held = session.state(Locks).held
    _, count, before = held.get(id(lock), (lock, 0, None))
    entry = session.entry_of(lock)
    waits = blocking and timeout == -1
    if not waits and entry is not None:
        raise UnsupportedProgram(
            "the program acquires a lock without waiting, or with a timeout",
            hint="Acquire it around the call of the compiled function.",
        )
    if count and type(lock) is _Lock:
        if not waits:
            return False
        raise UnsupportedProgram("the program waits for a lock that it has", hint="Use threading.RLock.")
    if not count and entry is not None:
        before = _written(session)
        session.guard_identity(lock)
        wait = functools.partial(wait_for, lock)
        session.note_state(wait, f"{entry.path.source} is free", wait())
    held[id(lock)] = lock, count + 1, before
    return True


def _release(session: TracingSession, args: Args, kwargs: Kwargs) -> None:
    lock = args[0]
    held = session.state(Locks).held
    if id(lock) not in held:
        if session.entry_of(lock) is None:
            raise RuntimeError("release unlocked lock" if type(lock) is _Lock else _UNACQUIRED)
        raise UnsupportedProgram("the program releases a lock that it has not acquired")
    _, count, before = held.pop(id(lock))
    if count > 1:
        held[id(lock)] = lock, count - 1, before
    elif session.entry_of(lock) is not None and _written(session) != before:
        raise UnsupportedProgram(
            "the program writes while it has a lock, and writes are made at the end of a call",
            hint="Write outside of the lock, or mark the function around it by thunder.opaque.",
        )


@TABLE.bound_lookaside(vars(_Lock)["locked"])
def _locked(session: TracingSession, args: Args, kwargs: Kwargs) -> bool:
    is_held = id(args[0]) in session.state(Locks).held
    if not is_held and session.entry_of(args[0]) is not None:
        raise UnsupportedProgram(
            "the program asks for the state of a lock", hint="Ask before the call, or pass the answer."
        )
    return is_held


_UNACQUIRED = "cannot release un-acquired lock"


def _written(session: TracingSession) -> tuple[Mark, int]:
    """Return what the program has written, to compare with what it has written later."""
    in_place = [b for b in session.trace.bound_symbols if has_tags(b, {OpTags.IN_PLACE})]
    return session.writes.mark(), len(in_place)


@TABLE.lookaside(threading.Lock)
def _make_lock(session: TracingSession, args: Args, kwargs: Kwargs) -> Any:
    return threading.Lock(*args, **kwargs)


@TABLE.lookaside(threading.RLock)
def _make_rlock(session: TracingSession, args: Args, kwargs: Kwargs) -> Any:
    return threading.RLock(*args, **kwargs)


@TABLE.lookaside(threading.Thread.__init__)
def _make_thread(session: TracingSession, args: Args, kwargs: Kwargs) -> Any:
    session.refuse_sharp_edge(
        "the program makes a thread, which is not part of its trace",
        hint="Start it outside of the compiled function, or set sharp_edges= to start it while tracing.",
    )
    return session.machine.generic_call(threading.Thread.__init__, args, kwargs)


for _cls in LOCKS:
    for _name, _rule in {
        "acquire": _acquire,
        "__enter__": _acquire,
        "release": _release,
        "__exit__": _release,
    }.items():
        TABLE.bound_lookaside(vars(_cls)[_name])(_rule)
