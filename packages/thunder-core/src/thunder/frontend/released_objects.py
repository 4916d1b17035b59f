"""The fact that what a program overwrites dies without running code, see :mod:`.objects.object_deaths`."""

from __future__ import annotations

from collections import deque
from contextvars import ContextVar
from types import CellType
from typing import Any

from thunder.base.cache_queries import CACHED
from thunder.base.errors import UnsupportedProgram
from thunder.base.provenance import ABSENT
from thunder.frontend.epilogue.value_parts import is_built, parts_of
from thunder.frontend.facts import Fact
from thunder.frontend.lookasides.weakrefs import as_part, may_be_dead, place_by_keys
from thunder.frontend.objects.class_kinds import LEAVES
from thunder.frontend.objects.object_deaths import SILENT, WEAK_CONTAINERS, Releases, values_at
from thunder.frontend.objects.writes import Write
from thunder.frontend.session import TracingSession
from thunder.frontend.value_names import Input
from thunder.ir.proxies import Proxy
from thunder.ir.symbolic_numbers import SymbolicNumber
from thunder.ops import prims

__all__ = ["note_releases"]


def note_releases(session: TracingSession, inputs: list[Input], roots: dict[str, Any], result: Any) -> None:
    """Guard that what a program overwrites dies without running code of the user's.

    Raises UnsupportedProgram if it does not in this call.
    """
    writes = [w for w in session.writes if w.path is not None and _replaces_values(w)]
    if not writes:
        return
    kept = _kept(session, [result, *session.writes.values()])
    known = {place_by_keys(f.path) for f in session.objects.facts if _is_silent(f)}
    known |= {place_by_keys(path) for proxy, path in inputs if isinstance(proxy, SymbolicNumber)}
    weak = any(isinstance(e.obj, WEAK_CONTAINERS) for e in session.objects.entries.values())
    for write in writes:
        assert write.path is not None, "writes without a path were left out"
        path = write.path.parent if isinstance(write.owner, CellType) else write.path
        assert path is not None, "a cell's content is reached through the cell"
        owner, at, keys = path.fetch(roots), place_by_keys(write.path), write.keys
        if keys is not None:
            if all(type(k) in LEAVES or id(k) in kept for k in keys):
                others = (k for k in keys if (*at, as_part(k)) not in known)
                keys = tuple(k for k in others if _may_die(session, owner, k, kept))
            else:  # keys that die as well
                keys = None
        if owner is ABSENT or keys == () or (keys is None and at in known):
            continue
        releases = Releases(keys, weak)
        found = releases.found_in(write.before, owner) if write.before else releases.found(owner)
        if found is not None:
            raise UnsupportedProgram(
                f"the program overwrites {write.name}, and an object that this may release has a __del__ "
                "or a weak reference with a callback, which would run after the program, not at the write",
                found={write.name: found.__name__},
                hint="Overwrite it outside of the compiled function, or keep another reference to the object "
                "in what the program does not write.",
            )
        session.objects.note(prims.check_silent_deaths, path, releases, key=write.name)


def _replaces_values(write: Write) -> bool:
    """Return whether values are gone that the place has had."""
    if write.keys is not None:
        return bool(write.keys)
    is_whole = isinstance(write.owner, set | deque | CellType | ContextVar | CACHED)
    return is_whole or hasattr(write.kind, "__next__")


def _is_silent(fact: Fact) -> bool:
    """Return whether a fact says that a value dies without an effect."""
    if fact.sym is prims.check_type:
        return fact.expected in SILENT
    return fact.sym.about == "value" and not fact.is_relation and type(fact.expected) in SILENT


def _may_die(session: TracingSession, owner: Any, key: Any, kept: set[int]) -> bool:
    """Return whether a part of an object of the user may be the last reference to what it is."""
    parts = values_at(owner, key)
    return any(id(v) not in kept and (session.entry_of(v) is None or may_be_dead(session, v)) for v in parts)


def _kept(session: TracingSession, values: list[Any]) -> set[int]:
    """Return the ids of the objects of the caller of which values are built."""
    pending, seen, kept = values, dict[int, Any](), set[int]()
    while pending:
        value = pending.pop()
        entry = session.entry_of(value)
        if entry is not None:
            kept.add(id(entry.obj))
        elif not isinstance(value, Proxy) and id(value) not in seen and is_built(session, value):
            seen[id(value)] = value
            pending += parts_of(session, value)
    return kept
