"""Weak references in the traced program: which object one points to is a read like any other.

    o = self.ref()                   →   path: self.ref(); facts: what is read of o, or that it is None
    self.refs = [weakref.ref(w)]     →   epilogue: self.refs = [ref_of_w]

Note [What is alive]

A weak reference tells whether its object is alive, so three things must not change that:

- An entry of the cache. Facts about the identity of such objects hold them weakly (:func:`let_go`).
- The acquisition. It holds all that it has seen, so an object that the program lets go of does not die, as it
  may in eager. What the program has overwritten is therefore lost, and so is what it may have held
  (:class:`_Lost`); a weak reference to what may be lost is refused.
- The trace. Tensors that the program computes live as long as the trace needs them, not as long as the
  program; weak references to them can be made and stored, but not asked.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

from thunder.core.errors import UnsupportedProgram
from thunder.core.frontend.facts import Fact
from thunder.core.frontend.rules import lookaside
from thunder.core.frontend.shadows import Shadow
from thunder.core.frontend.tracker import Record, Tracker, describe
from thunder.core.provenance import Path, is_weak
from thunder.core.proxies import TensorProxy

if TYPE_CHECKING:
    from thunder.core.frontend.tracer import Tracer


@lookaside(weakref.ref)
def _make(tracer: Tracer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Of an object of the user's, the reference that every caller gets; of the program's own, a new one."""
    if len(args) > 1 and args[1] is not None:
        raise UnsupportedProgram(
            "weakref.ref with a callback, which would run at a time that no trace has",
            hint="Make the weak reference before the call.",
        )
    record = tracer.tracker.record_of(args[0]) if args else None
    if record is None or kwargs:
        return weakref.ref(*args, **kwargs)
    made = weakref.ref(record.obj)
    return tracer.tracker.adopt(made, record.path.step("reference", "reference"))


def referent_of(tracer: Tracer, reference: weakref.ref[Any]) -> Any:
    """What the program sees of the object that a weak reference points to."""
    raw = weakref.ref.__call__(reference)
    record = tracer.tracker.record_of(reference)
    if record is None:
        if isinstance(raw, TensorProxy) or id(raw) in tracer.made:
            raise UnsupportedProgram(
                f"the program asks a weak reference for {describe(raw)} that it made itself, "
                "which may live longer or shorter than in eager",
                hint="Keep the object itself.",
            )
        return raw
    if raw is None:
        return tracer.tracker.adopt(None, record.path.step("referent", "referent"))
    _refuse_lost(tracer, record, raw)
    tracer.tracker.referents.add(id(raw))
    return tracer.tracker.adopt(raw, record.path.step("referent", "referent"))


# -- what the program let go of ------------------------------------------------------------------------------


class _Lost:
    """The steps of paths that no longer lead where they led, for the program wrote there."""

    def __init__(self, tracer: Tracer) -> None:
        self.steps: set[tuple[int, Any]] = set()  # id of the path, and key
        self.all_steps: set[int] = set()  # ids of paths, all steps from which are lost
        for shadow in tracer.tracker.written_shadows():
            self._add_shadow(shadow)
        for record in tracer.tracker.written_records():
            self.steps |= {(id(p), k) for p in (record.path, *record.members.values()) for k in record.writes}
        for record in tracer.tracker.records.values():
            if record.own is not None:
                self.all_steps.add(id(record.path))
        for (_, name), (namespace, _) in tracer.global_writes.items():
            self.steps.add((id(tracer.namespace_path(namespace)), name))
        for path, _ in tracer.cell_writes.values():
            self.steps.add((id(path.parent), path.key))

    def _add_shadow(self, shadow: Shadow) -> None:
        if isinstance(shadow.copy, dict):
            now = {k: id(v) for k, v in dict.items(shadow.copy)}
            gone = {k for k, v in shadow.snapshot if now.get(k) != id(v)}
        elif isinstance(shadow.copy, list):
            gone = {
                i for i, v in enumerate(shadow.snapshot) if i >= len(shadow.copy) or shadow.copy[i] is not v
            }
        else:
            self.all_steps.add(id(shadow.path))
            return
        self.steps |= {(id(shadow.path), key) for key in gone}

    def __bool__(self) -> bool:
        return bool(self.steps or self.all_steps)

    def has(self, path: Path) -> bool:
        """Whether a path leads through a step that is lost."""
        while path.parent is not None:
            if id(path.parent) in self.all_steps or (id(path.parent), path.key) in self.steps:
                return True
            path = path.parent
        return False


def _refuse_lost(tracer: Tracer, reference: Record, raw: Any) -> None:
    """Refuses a weak reference to an object that eager may have let go of by now."""
    lost = _Lost(tracer)
    if not lost:
        return
    holder = tracer.tracker.record_of(raw)
    if holder is not None and not is_weak(holder.path) and not lost.has(holder.path):
        return
    raise UnsupportedProgram(
        f"the program asks {reference.path.source}, a weak reference, after it wrote to what may have been "
        "the last to hold the object",
        found={reference.path.source: describe(raw)},
        hint="Ask the weak reference before the write, or keep the object itself.",
    )


def let_go(tracker: Tracker) -> None:
    """Makes the facts hold weakly what the program reached by weak references."""
    if tracker.referents:
        tracker.facts[:] = [_held_weakly(fact, tracker.referents) for fact in tracker.facts]


def _held_weakly(fact: Fact, referents: set[int]) -> Fact:
    if fact.kind != "is" or not (id(fact.expected) in referents or is_weak(fact.path)):
        return fact
    if not type(fact.expected).__weakrefoffset__:  # such as None
        return fact
    return Fact("refers", fact.path, weakref.ref(fact.expected))
