"""Code that ran as it is while a program was traced: opaque callables, functions that fill a cache, imports.

Note [State that a program changes while it is read]
Each may change what the program has read before. Eager has read the old state there, and reads the new one
from then on:

    n = len(sys.modules)      old                     the first trace:   n is old
    get_backend("torch")      imports, registers      an entry of its own for this call
    return x * n                                      the second trace:  n is new, as in each later call

So the reads are made anew after the code has run, and the trace is that of this call alone. A second trace
finds everything filled. If it is the same program, it serves this call and later ones; else the first one
serves this call, and is not kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch

from thunder.base import opaque_results
from thunder.base.errors import StateChanged
from thunder.base.provenance import Path
from thunder.frontend.facts import Fact
from thunder.frontend.guards import failures
from thunder.frontend.objects.class_kinds import CONTAINERS
from thunder.frontend.objects.object_entry import ObjectEntry
from thunder.frontend.objects.object_table import ObjectTable
from thunder.frontend.objects.shadow_copies import Shadow
from thunder.frontend.opaque_calls.opaque_acquisition import OpaqueCalls
from thunder.frontend.session import SessionState, TracingSession
from thunder.frontend.value_names import Input, is_size
from thunder.ir.symbolic_numbers import SymbolicNumber
from thunder.ir.trace import detached_trace

__all__ = [
    "CALL_IT_BEFORE",
    "RanCode",
    "has_run_code",
    "keep_for_another_trace",
    "objects_of_one_call",
    "refuse_another_trace",
    "refuse_changed_facts",
]

CALL_IT_BEFORE = "Call it before the compiled function, so that its result is in the cache."


class RanCode(SessionState):
    """The code that ran as it is in one acquisition, except for opaque callables."""

    def __init__(self, session: TracingSession) -> None:
        self.roots: Mapping[str, Any] = {}
        self.names: list[str] = []
        #: whether it has changed what the program had read
        self.has_changed_facts = False

    def note(self, session: TracingSession, name: str) -> None:
        """Note that code has run; the program reads anew what it has changed.

        Raises StateChanged where the program could not.
        """
        self.names.append(name)
        with detached_trace(), torch._C.DisableTorchFunction():
            changed = list(_changed(session, self.roots))
            if changed:
                self.has_changed_facts = True
                _read_anew(session, changed)


def _changed(session: TracingSession, roots: Mapping[str, Any]) -> Iterator[Fact]:
    """Yield the facts that do not hold any more."""
    # entries of caches stay: a program that asks for more than a cache holds is refused
    facts = [f for f in session.objects.facts if f.path.kind != "cached"]
    return (fact for fact, _ in failures(facts, roots["args"], roots["kwargs"]))


def _read_anew(session: TracingSession, changed: list[Fact]) -> None:
    """Forget what the program has read of the user's objects, except for what it has written."""
    objects = session.objects
    copied = {count.path.place for count in objects.counts}  # iterators, of which the program has copies
    places: dict[Any, Fact] = {}
    for fact in changed:
        own = {path.place: fact for path in _prefixes(fact.path)}
        if fact.sym.about is None or fact.is_relation or not copied.isdisjoint(own):
            raise _refusal(session, fact)
        places |= own
    session.forget_reads()
    for shadow in [shadow for shadow in objects.shadows if shadow.path.place in places]:
        if shadow.is_written or not _refill(objects, shadow):
            raise _refusal(session, places[shadow.path.place])


def _prefixes(path: Path | None) -> Iterator[Path]:
    while path is not None:
        yield path
        path = path.parent


def _refill(objects: ObjectTable, shadow: Shadow) -> bool:
    """Give the shadow of a container its content of now; return whether that is possible."""
    original = shadow.original
    entry: ObjectEntry | None = objects.entries.get(id(original))
    if id(shadow.copy) in objects.unread:  # its length is read at each question
        return True
    is_plain = type(original) in CONTAINERS and entry is not None and entry.value is shadow.copy
    if not is_plain or entry is None:
        return False
    del objects.entries[id(original)]
    content = objects.adopt(original, shadow.path)
    objects.read_items(content)
    objects.shadows = [s for s in objects.shadows if s.copy is not content]
    objects.entries.pop(id(content))
    objects.entries[id(original)] = entry
    shadow.copy.clear()
    shadow.fill(list(content.items() if isinstance(content, dict) else content))
    return True


def _refusal(session: TracingSession, fact: Fact) -> StateChanged:
    opaque = [call.name for call in session.state(OpaqueCalls).calls]
    kind, hint = "code that ran once", CALL_IT_BEFORE
    if opaque:
        kind = "an opaque callable"
        hint = "Mark the function that reads it opaque too, or pass the value as a tensor."
    return StateChanged(
        f"{kind} has changed the {fact}, which the program had read",
        found={"called": ", ".join((*opaque, *session.state(RanCode).names))},
        hint=hint,
    )


def refuse_changed_facts(session: TracingSession, roots: Mapping[str, Any]) -> None:
    """Raise StateChanged if an opaque callable has changed what the program had read before."""
    if not session.state(OpaqueCalls).calls:
        return
    facts = session.objects.facts
    failure = next(failures(facts, roots["args"], roots["kwargs"]), None)
    if failure is not None:
        raise _refusal(session, failure[0])


def objects_of_one_call(session: TracingSession, inputs: Iterable[Input]) -> dict[int, Any] | None:
    """Return the objects that the program has reached, by id of the path, if its traces are for one call.

    Raises StateChanged for a number among the inputs, which would be read anew.
    """
    if not session.state(RanCode).has_changed_facts:
        return None
    if any(isinstance(proxy, SymbolicNumber) and not is_size(path) for proxy, path in inputs):
        roots = session.state(RanCode).roots
        raise _refusal(session, next(_changed(session, roots), session.objects.facts[0]))
    return {id(entry.path): entry.obj for entry in session.objects.entries.values()}


def refuse_another_trace(is_for_one_call: bool) -> None:
    """Raise StateChanged where a program has to be traced again whose traces are for one call."""
    if is_for_one_call:
        raise StateChanged(
            "code that ran once has changed what the program had read, and another trace is needed",
            hint="Call the program once without thunder, which fills caches and imports modules.",
        )


def has_run_code(session: TracingSession) -> bool:
    """Return whether such code has run."""
    return bool(session.state(OpaqueCalls).calls or session.state(RanCode).names)


def keep_for_another_trace(session: TracingSession, roots: Mapping[str, Any]) -> None:
    """Keep the results of opaque callables, so that another trace for the same call does not run them again.

    Raises StateChanged where another trace would read what such code has changed.
    """
    refuse_changed_facts(session, roots)
    if session.state(RanCode).has_changed_facts:
        raise _refusal(session, next(_changed(session, roots)))
    if session.state(OpaqueCalls).calls:
        opaque_results.keep()
