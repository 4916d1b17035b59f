"""Objects of the caller that a program overwrites, so that they may die.

    self.o = None          →   fact: what self.o was dies without running code
    n = len(self.log)

In eager an object dies at the write, and then its ``__del__`` and the callbacks of weak references to it run.
A compiled program writes in the epilogue, when it has read what they may have changed.
"""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Iterable
from types import CellType
from typing import Any

from thunder.base.errors import UnsupportedProgram
from thunder.base.provenance import ABSENT
from thunder.frontend.epilogue.reconstruction import reconstruction_of
from thunder.frontend.epilogue.value_parts import parts_of
from thunder.frontend.lookasides.weakrefs import may_be_dead, place_by_keys
from thunder.frontend.objects.object_deaths import SILENT, Releases, value_at
from thunder.frontend.objects.writes import Write
from thunder.frontend.session import TracingSession
from thunder.frontend.value_names import Input
from thunder.ir.proxies import NumberProxy, Proxy

__all__ = ["note_releases"]

_WEAK_CONTAINERS = (weakref.WeakKeyDictionary, weakref.WeakValueDictionary, weakref.WeakSet)


def note_releases(session: TracingSession, inputs: list[Input], roots: dict[str, Any], result: Any) -> None:
    """Guard that what a program overwrites dies without running code of the user's.

    Raises UnsupportedProgram if it does not in this call.
    """
    writes = [w for w in session.writes if w.path is not None and _replaces_values(w)]
    if not writes:
        return
    kept = _kept(session, [result, *session.writes.values()])
    known = {place_by_keys(f.path) for f in session.objects.facts if _is_silent(f.kind, f.expected)}
    known |= {place_by_keys(path) for proxy, path in inputs if isinstance(proxy, NumberProxy)}
    weak = any(isinstance(e.obj, _WEAK_CONTAINERS) for e in session.objects.entries.values())
    for write in writes:
        assert write.path is not None, "writes without a path were left out"
        owner = write.path.fetch(roots)
        if owner is ABSENT:
            continue
        at = place_by_keys(write.path)
        keys = (
            None
            if write.keys is None
            else tuple(
                k for k in write.keys if (*at, k) not in known and _may_die(session, value_at(owner, k), kept)
            )
        )
        if keys == () or (keys is None and at in known):
            continue
        releases = Releases(keys, weak)
        found = releases.found(owner)
        if found is not None:
            raise UnsupportedProgram(
                f"the program overwrites {write.name}, and an object that this may release has a __del__ "
                "or a weak reference with a callback, which would run after the program, not at the write",
                found={write.name: found.__name__},
                hint="Overwrite it outside of the compiled function, or keep another reference to the object "
                "in what the program does not write.",
            )
        session.objects.note("silent", write.path, releases, key=write.name)


def _replaces_values(write: Write) -> bool:
    return bool(write.keys) or (write.keys is None and isinstance(write.owner, set | deque | CellType))


def _is_silent(kind: str, expected: Any) -> bool:
    """Return whether a fact says that a value dies without an effect."""
    return (
        type(expected) in SILENT
        if kind in ("equal", "int", "str", "is")
        else kind == "type" and expected in SILENT
    )


def _may_die(session: TracingSession, raw: Any, kept: set[int]) -> bool:
    return id(raw) not in kept and (session.entry_of(raw) is None or may_be_dead(session, raw))


def _kept(session: TracingSession, values: Iterable[Any]) -> set[int]:
    """Return the ids of the objects of the caller of which values are built."""
    pending, seen, kept = list(values), dict[int, Any](), set[int]()
    while pending:
        value = pending.pop()
        entry = session.entry_of(value)
        if entry is not None:
            kept.add(id(entry.obj))
        elif not isinstance(value, Proxy) and reconstruction_of(value) is not None and id(value) not in seen:
            seen[id(value)] = value
            pending += parts_of(session, value)
    return kept
