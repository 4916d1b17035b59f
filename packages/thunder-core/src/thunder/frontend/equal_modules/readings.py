"""Readings: calls of modules that were interpreted, with what they have noted and recorded."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import torch

from thunder.base.provenance import STEPS, Path
from thunder.base.tags import OpTags
from thunder.frontend.equal_modules.call_arguments import Arguments
from thunder.frontend.facts import Fact
from thunder.frontend.objects.class_kinds import CODE_TYPES, LEAVES, is_container
from thunder.frontend.objects.object_entry import ObjectEntry
from thunder.frontend.objects.shadow_copies import MAPPINGS, ItemOverlay
from thunder.ir.effects import KEPT
from thunder.ir.proxies import TensorProxy
from thunder.ir.proxy_leaves import proxies_in
from thunder.ir.symbol import BoundSymbol, with_parts
from thunder.ir.trace import Source

if TYPE_CHECKING:
    from thunder.frontend.session import TracingSession

__all__ = ["Position", "Reading", "Template", "is_plain", "is_reached_once"]

#: what a statement does that is copied is none of these
_EFFECTS: Final = KEPT - {OpTags.RANDOM_OP}


@dataclass(frozen=True)
class Position:
    """How much a session has noted and recorded."""

    facts: int
    inputs: int
    statements: int

    @classmethod
    def now(cls, session: TracingSession) -> Position:
        objects = session.objects
        return cls(len(objects.facts), len(objects.inputs), len(session.trace.open_scopes[0]))


@dataclass(eq=False)
class Reading:
    """One call of a module that was interpreted, and what it has noted and recorded."""

    entry: ObjectEntry
    arguments: Arguments
    start: Position
    effects: int
    kept: frozenset[int] | None
    #: the line of the call
    line: Source | None
    result: Any = None
    #: functions, cells and classes that it has made, by id
    made: dict[int, Any] = field(default_factory=dict)
    statements: list[BoundSymbol] = field(default_factory=list)
    #: the hints that computed arguments got
    hints: list[str | None] = field(default_factory=list)
    #: those of the results, by id: their caller may give others
    hints_of_results: dict[int, str | None] = field(default_factory=dict)
    _end: Position | None = None
    _template: Template | None = None

    @property
    def moment(self) -> tuple[int, frozenset[int] | None]:
        """What the program had done, and kept, when the call began."""
        return self.effects, self.kept

    def end(self, session: TracingSession, result: Any, hints: list[str | None]) -> None:
        """Note the result, and how much there is now."""
        self.result, self._end = result, Position.now(session)
        self.hints_of_results = {id(p): p.name_hint for p in proxies_in(result) if type(p) is TensorProxy}
        self.statements = session.trace.open_scopes[0][self.start.statements :]
        self.hints = [
            p.name_hint if hint is None else None
            for p, hint in zip(self.arguments.computed, hints, strict=True)
        ]

    def template(self, session: TracingSession) -> Template:
        """Return what the reading depends on; it is looked for at the first copy."""
        if self._template is None:
            assert self._end is not None, "a reading is kept when it has ended"
            self._template = Template.of(session, self, self._end)
        return self._template


@dataclass(frozen=True, eq=False)
class Template:
    """What a reading depends on: the facts below the path of its module, and what was reached there.

    Paths are positions in ``paths``, each after the one that it is a step from.
    """

    paths: list[Place]
    facts: list[Condition]
    #: the objects that were reached, the module first, and the positions of their paths
    entries: list[tuple[ObjectEntry, int]]
    overlays: list[tuple[ItemOverlay, int]]
    #: by the ids of paths, their positions
    positions: dict[int, int]
    may_be_copied: bool

    @classmethod
    def of(cls, session: TracingSession, reading: Reading, end: Position) -> Template:
        objects, root = session.objects, reading.entry
        first_fact, _ = root.begin  # before, nothing was known below it
        later_entries = list({id(e): e for e in objects.entries.values() if e.begin >= root.begin}.values())
        below = _Below(root.path, later_entries)
        facts = [
            Condition(
                fact, tuple([(below.position(a), None) if type(a) is Path else (None, a) for a in fact.args])
            )
            for fact in objects.facts[first_fact : end.facts]
            if any(type(a) is Path and below.has(a) for a in fact.args)
        ]
        entries = [(e, below.position(e.path)) for e in later_entries if below.has_entry(e)]
        overlays = [(o, below.position(o.path)) for o in objects.item_overlays.values() if below.has(o.path)]
        for entry, _ in entries:
            for path in entry.members.values():
                below.position(path)
        tensors = {id(entry.value) for entry, _ in entries if type(entry.value) is TensorProxy}
        inputs = objects.inputs[reading.start.inputs : end.inputs]
        reached = [x for entry, _ in entries for x in (entry.obj, entry.value)]
        may_be_copied = (
            all(is_plain(entry) for entry, _ in entries)
            and all(id(proxy) in tensors or not below.has(path) for proxy, path in inputs)
            and not any(overlay.writes for overlay, _ in overlays)
            and not any(map(_is_for_one_call, reading.statements))
            and _is_tree(reading.result)
            and is_reached_once(session, reading.arguments, reading.kept, reached)
        )
        return cls(below.paths, facts, entries, overlays, below.positions, may_be_copied)


class _Below:
    """The paths that begin with that of a module, with their positions, and those that facts relate to them.

    What is read of a function or class is read once, whoever has it: it is not below a module.
    """

    def __init__(self, root: Path, entries: Iterable[ObjectEntry]) -> None:
        code = (e.path for e in entries if isinstance(e.obj, CODE_TYPES) and e.path is not root)
        self._root, self._code = root, set(map(id, code))
        self._known: dict[int, bool] = {id(root): True}
        self.paths: list[Place] = []
        self.positions: dict[int, int] = {}
        self.position(root)

    def has(self, path: Path) -> bool:
        """Return whether a path begins with the module's."""
        known = self._known.get(id(path))
        if known is None:
            parent = path.parent
            known = parent is not None and id(parent) not in self._code and self.has(parent)
            self._known[id(path)] = known
        return known

    def has_entry(self, entry: ObjectEntry) -> bool:
        """Return whether an object is the module's own."""
        return self.has(entry.path) and id(entry.path) not in self._code

    def position(self, path: Path) -> int:
        """Return the position of a path, after that of the path that it is a step from."""
        known = self.positions.get(id(path))
        if known is None:
            is_step = path is not self._root and path.parent is not None and self.has(path)
            parent = self.position(path.parent) if is_step and path.parent is not None else None
            known = self.positions[id(path)] = len(self.paths)
            self.paths.append(Place(path, parent, STEPS[path.kind].fetch if parent is not None else None))
        return known


class Place(NamedTuple):
    """A path below the module of a template, as a step from another; or, without a parent, one elsewhere."""

    path: Path
    parent: int | None
    fetch: Callable[[Any, Any], Any] | None


class Condition(NamedTuple):
    """A fact, with the positions of its paths; in their place None and a constant."""

    fact: Fact
    args: tuple[tuple[int | None, Any], ...]


def is_reached_once(
    session: TracingSession, arguments: Arguments, kept: frozenset[int] | None, objects: list[Any]
) -> bool:
    """Return whether a call of a module can reach what is below the module by the module alone."""
    ids = set(map(id, objects))
    others = (arguments.others, kept or (), session.objects.reached_again)
    return all(ids.isdisjoint(other) for other in others)


def is_plain(entry: ObjectEntry) -> bool:
    """Return whether the program sees an object itself, or a tensor as its input, and has not written it."""
    if entry.own is not None or entry.writes or entry.refusal is not None or entry.reader is not None:
        return False
    if type(entry.value) is TensorProxy:
        return isinstance(entry.obj, torch.Tensor)
    if is_container(type(entry.obj)):
        return type(entry.obj) in MAPPINGS and not entry.value and not entry.obj
    return entry.value is entry.obj


def _is_for_one_call(bsym: BoundSymbol) -> bool:
    """Return whether a statement is more than a computation with tensors, or a draw of random ones."""
    if not _EFFECTS.isdisjoint(bsym.all_tags) or bsym.header is not None:
        return True
    return any(type(p) is not TensorProxy for part in with_parts((bsym,)) for p in part.flat_proxy_outs)


def _is_tree(value: Any) -> bool:
    if type(value) is tuple:
        return all(map(_is_tree, value))
    return type(value) is TensorProxy or type(value) in LEAVES
