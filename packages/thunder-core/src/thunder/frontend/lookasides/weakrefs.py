"""Weak references in the traced program: which object one points to is a read like any other.

    o = self.ref()                   →   path: self.ref(); facts: what is read of o, or that it is None
    self.refs = [weakref.ref(w)]     →   epilogue: self.refs = [ref_of_w]

Note [What is alive]

A weak reference tells whether its object is alive, so three things must not change that:

- An entry of the cache. Facts about the identity of such objects hold them weakly (:func:`let_go`).
- The acquisition. It holds all that it has seen, so an object that the program lets go of does not die, as it
  may in eager. Where the program wrote, what was there may be gone, and what that held (:class:`_Lost`). Of
  an object that may be gone the program learns one thing, that it is not another object: :class:`Uncertain`.
- The trace. Tensors that the program computes live as long as the trace needs them, not as long as the
  program; weak references to them can be made and stored, but not asked.
"""

from __future__ import annotations

import weakref
from typing import Any

from thunder.base.errors import UnsupportedProgram
from thunder.base.provenance import ABSENT, Path, comes_with_arguments, is_weak
from thunder.frontend.facts import Fact
from thunder.frontend.lookasides.lookaside_registry import LookasideTable
from thunder.frontend.objects.object_table import ObjectTable, describe
from thunder.frontend.objects.shadow_copies import Shadow
from thunder.frontend.session import TracingSession
from thunder.ir.proxies import TensorProxy

TABLE = LookasideTable()


@TABLE.lookaside(weakref.ref)
def _make(session: TracingSession, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Of an object of the user's, the reference that every caller gets; of the program's own, a new one."""
    if len(args) > 1 and args[1] is not None:
        raise UnsupportedProgram(
            "weakref.ref with a callback, which would run at a time that no trace has",
            hint="Make the weak reference before the call.",
        )
    entry = session.entry_of(args[0]) if args else None
    if entry is None or kwargs:
        return weakref.ref(*args, **kwargs)
    made = weakref.ref(entry.obj)
    return session.adopt(made, entry.path.step("reference", "reference"))


def referent_of(session: TracingSession, reference: weakref.ref[Any]) -> Any:
    """What the program sees of the object that a weak reference points to."""
    raw = weakref.ref.__call__(reference)
    entry = session.entry_of(reference)
    if entry is None:
        if isinstance(raw, TensorProxy) or id(raw) in session.created_by_program:
            raise UnsupportedProgram(
                f"the program asks a weak reference for {describe(raw)} that it made itself, "
                "which may live longer or shorter than in eager",
                hint="Keep the object itself.",
            )
        return raw
    if raw is None:
        return session.adopt(None, entry.path.step("referent", "referent"))
    path = entry.path.step("referent", "referent")
    if _may_be_gone(session, raw):
        return Uncertain(raw, path, session.locations())
    session.objects.referents.add(id(raw))
    return session.adopt(raw, path)


# -- what the program let go of ------------------------------------------------------------------------------


Place = tuple[Any, ...]


def _place(path: Path) -> Place:
    """A path by its root and its keys; of two paths to one place, such as those that an attribute and
    ``__dict__`` give, the same.
    """
    if path.parent is None:
        return (id(path),)
    before = _place(path.parent)
    return before if path.key == "__dict__" else (*before, path.key)


class _Lost:
    """The places where something else is by now, for the program wrote there."""

    def __init__(self, session: TracingSession) -> None:
        self.places: set[Place] = set()
        for shadow in session.objects.written_shadows():
            at = _place(shadow.path)
            gone = _gone(shadow)
            self.places |= {at} if gone is None else {(*at, key) for key in gone}
        for entry in session.objects.written_entries():
            self.places |= {(*_place(entry.path), name) for name in entry.writes}
        for overlay in session.objects.written_overlays():
            self.places |= {(*_place(overlay.path), name) for name in overlay.writes}
        for (_, name), (namespace, _) in session.variables.global_writes.items():
            self.places.add((*_place(session.variables.namespace_path(namespace)), name))
        self.places |= {_place(path) for path, _ in session.variables.cell_writes.values()}

    def __bool__(self) -> bool:
        return bool(self.places)

    def has(self, path: Path) -> bool:
        """Whether a path leads through such a place."""
        place = _place(path)
        return any(place[:size] in self.places for size in range(1, len(place) + 1))


def _gone(shadow: Shadow) -> set[Any] | None:
    """The keys under which a container holds something else by now; None for all of a set or deque."""
    if isinstance(shadow.copy, dict):
        now = {key: id(value) for key, value in dict.items(shadow.copy)}
        return {key for key, value in shadow.snapshot if now.get(key) != id(value)}
    if isinstance(shadow.copy, list):
        before, now_ = shadow.snapshot, shadow.copy
        return {i for i, value in enumerate(before) if i >= len(now_) or now_[i] is not value}
    return None


def _may_be_gone(session: TracingSession, raw: Any) -> bool:
    """Whether eager may have let go of an object of the user's by now: the program wrote somewhere, and not
    all of a way to the object is still as it was.
    """
    lost = _Lost(session)
    holder = session.entry_of(raw)
    return bool(lost) and (holder is None or is_weak(holder.path) or lost.has(holder.path))


class Uncertain:
    """What a weak reference gives for an object that may be gone: the object or None, and nobody knows which.

    Every use is refused, at the latest when native code asks for its class; but for ``is`` (:func:`is_same`).
    """

    __slots__ = ("path", "raw", "where")

    def __init__(self, raw: Any, path: Path, where: list[Any]) -> None:
        self.raw, self.path, self.where = raw, path, where

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        reference = self.path.source.removesuffix("()")
        raise UnsupportedProgram(
            f"the program asks {reference}, a weak reference, after it wrote to what may have been the last "
            "to hold the object",
            found={reference: describe(self.raw)},
            where=self.where,
            hint="Ask the weak reference before the write, or keep the object itself.",
        )

    def _refuse(self, *args: Any) -> Any:
        return self.__class__

    __bool__ = __len__ = __iter__ = __call__ = __getitem__ = __contains__ = __repr__ = __str__ = _refuse
    __eq__ = __ne__ = __hash__ = __enter__ = __exit__ = __getattr__ = _refuse


def is_same(session: TracingSession, a: Any, b: Any) -> bool:
    """``a is b``, of which one is uncertain: neither the object nor None is another object."""
    one, other = (a, b) if type(a) is Uncertain else (b, a)
    entry = session.entry_of(other)
    if other is None or type(other) is Uncertain or (entry is not None and entry.obj is one.raw):
        return isinstance(one, type)  # refused
    if entry is not None:
        session.note("same", one.path, False, others=(entry.path,))
    return False


def let_go(objects: ObjectTable) -> None:
    """Makes the facts hold weakly what the program reached by weak references, and what comes with the
    arguments: an entry of the cache does not keep that alive.
    """
    objects.facts[:] = [_held_weakly(fact, objects.referents) for fact in objects.facts]


def _held_weakly(fact: Fact, referents: set[int]) -> Fact:
    if fact.kind != "is" or fact.expected is ABSENT:  # that there is nothing is no object
        return fact
    if not (id(fact.expected) in referents or is_weak(fact.path) or comes_with_arguments(fact.path)):
        return fact
    if not type(fact.expected).__weakrefoffset__:  # such as None
        return fact
    return Fact("refers", fact.path, weakref.ref(fact.expected))
