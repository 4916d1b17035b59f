"""Entries of the objects that a program reached, and the facts about them.

Each object that was reached from an input has an entry, found by identity; the entry holds the object, so
that its id is not used again.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from thunder.base.equal_values import WITHOUT_ZONE, has_open_zone, holds_decimal
from thunder.base.errors import UnsupportedProgram
from thunder.base.provenance import Path, comes_with_arguments, is_weak, object_root
from thunder.frontend.facts import Fact
from thunder.frontend.objects.class_kinds import IDENTITY_TYPES
from thunder.frontend.objects.object_entry import DELETED, ObjectEntry, emit_attribute
from thunder.frontend.objects.shadow_copies import ItemOverlay, Shadow
from thunder.frontend.objects.writes import Write
from thunder.ops import prims
from thunder.ops.prims import Check
from thunder.wrappers.module_class import ModuleClass

if TYPE_CHECKING:
    from thunder.frontend.epilogue.epilogue_builder import EpilogueBuilder


class EntryTable:
    """The entries of one acquisition, its facts, and what the program wrote."""

    def __init__(self) -> None:
        self.entries: dict[int, ObjectEntry] = {}  # by id of the user's object, and of its proxy or shadow
        self.shadows: list[Shadow] = []
        self.item_overlays: dict[int, ItemOverlay] = {}  # by id of a dict of the user's without a shadow
        #: iterators of the user's that the program may advance
        self.counts: list[Any] = []
        self.facts: list[Fact] = []
        #: how often the program has done something else than to read, and to compute with tensors
        self.effects = 0
        #: how often it has changed an object that it has made itself
        self.own_effects = 0
        self._identity_observed = False
        #: whether the program has read decimals, with which native code computes by their context
        self.has_decimals = False
        #: the path of each submodule, parameter and buffer of the compiled module, by id
        self.members: dict[int, Path] = {}
        #: called with each fact that is new, in a part of the program that looks at them; may raise
        self.before_fact: Callable[[Fact], None] | None = None
        self._noted: set[tuple[Any, ...]] = set()
        self._tracked = 0  # how many entries have been made, also those that are gone
        self._object_roots: dict[int, Path] = {}

    @property
    def identity_observed(self) -> bool:
        """Whether native code has compared objects of the user, or used one as a key."""
        return self._identity_observed

    @identity_observed.setter
    def identity_observed(self, is_observed: bool) -> None:
        self._identity_observed = is_observed
        self.effects += is_observed

    # -- facts -----------------------------------------------------------------------------------------------

    def note(self, check: Check, path: Path, *arguments: Any, key: Any = None) -> None:
        """Add the fact that a check holds once; ``key`` distinguishes facts of one check about one path.

        Raises UnsupportedProgram for a time whose zone may change.
        """
        mark: tuple[Any, ...] = (check.id, id(path), key)
        if arguments and type(arguments[-1]) is Path:
            mark = (*mark, *[id(other) for other in arguments if type(other) is Path])
        if mark in self._noted:
            return
        expected = arguments[0] if arguments else None
        if expected is None and check is prims.check_same_object:
            check, arguments = prims.check_none, ()
        may_be_rare = type(expected) not in WITHOUT_ZONE  # those that are asked about below
        if may_be_rare and has_open_zone(expected):
            raise UnsupportedProgram(
                f"{path.source} has a time in a time zone of another class than timezone and ZoneInfo",
                hint="Pass a time in UTC, or its timestamp.",
            )
        new = Fact(check, (path, *arguments), key)
        if self.before_fact is not None:
            self.before_fact(new)
        self._noted.add(mark)
        self.has_decimals |= may_be_rare and holds_decimal(expected)
        self.facts.append(new)

    def object_root(self, obj: Any, name: str) -> Path:
        """Return the root of an object that is known when the trace is made."""
        path = self._object_roots.get(id(obj))
        if path is None:
            path = self._object_roots[id(obj)] = object_root(name, obj)
        return path

    def name_members(self, module: torch.nn.Module, path: Path) -> None:
        """Note the paths of what belongs to the compiled module; of several, the first.

        Their order is that of `named_modules` and `named_parameters`. A compiled module among them has
        overriding tensors of its own.
        """
        if id(module) in self.members or type(type(module)) is ModuleClass:
            return
        self.members[id(module)] = path
        own = object.__getattribute__(module, "__dict__")
        for table in ("_parameters", "_buffers", "_modules"):
            members = own.get(table)
            for name, member in dict.items(members) if isinstance(members, dict) else ():
                place = path.step("instance", table).step("key", name)
                if isinstance(member, torch.nn.Module):
                    self.name_members(member, place)
                elif member is not None:
                    self.members.setdefault(id(member), place)

    def path_in_module(self, obj: Any, path: Path) -> Path | None:
        """Return where the compiled module has what was read elsewhere; None for an argument of the call."""
        own = self.members.get(id(obj))
        return None if own is None or comes_with_arguments(path) or own.place == path.place else own

    # -- records ---------------------------------------------------------------------------------------------

    def entry_of(self, obj: Any) -> ObjectEntry | None:
        """Return the entry of an object, of its proxy or of its shadow; None if it has none."""
        return self.entries.get(id(obj))

    def path_of(self, obj: Any) -> Path | None:
        """Return the path of an object, of its proxy or of its shadow; None if it has none."""
        entry = self.entries.get(id(obj))
        return entry.path if entry is not None else None

    def track(self, obj: Any, path: Path, value: Any) -> ObjectEntry:
        """Make the entry of an object, which the program sees as ``value``."""
        self._tracked += 1
        entry = ObjectEntry(obj, path, value, (len(self.facts), self._tracked))
        self.entries[id(obj)] = entry
        if value is not obj:
            self.entries[id(value)] = entry
        return entry

    def guard_identity(self, obj: Any) -> None:
        """Guard the identity of an object that the program compared or used as a key."""
        self.effects += 1
        entry = self.entry_of(obj)
        if entry is not None and entry.path.parent is not None:
            self.note(prims.check_same_object, entry.path, entry.obj)

    def guard_distinctness(self) -> None:
        """Guard that objects that are distinct in this call are distinct in later calls.

        These are all generators of random numbers, and the objects whose identity native code observed.
        """
        paths = {
            id(r): r.path
            for r in self.entries.values()
            if self._identity_was_observed(r) and not is_weak(r.path)
        }
        self._note_different(paths.values())
        for group in self._alike_and_written():
            self._note_different(group)

    def _note_different(self, paths: Iterable[Path]) -> None:
        paths = list(paths)
        if len(paths) > 1:
            self.note(prims.check_different, paths[0], *paths[1:])

    def _alike_and_written(self) -> Iterator[list[Path]]:
        """Yield the paths of objects of one class, and of containers of one, of which the program writes one.

        If two of them were one object in a later call, a write to one would be read from the other.
        """
        kinds = {w.kind: None for w in self.writes() if not issubclass(w.kind or type, _SINGLE)}
        if not kinds:
            return
        members = {id(e.obj): (type(e.obj), e.path) for e in self.entries.values()}
        members |= {id(s.original): (type(s.original), s.path) for s in self.shadows}
        members |= {key: (dict, overlay.path) for key, overlay in self.item_overlays.items()}
        for kind in kinds:
            yield [path for cls, path in members.values() if cls is kind and not is_weak(path)]

    def _identity_was_observed(self, entry: ObjectEntry) -> bool:
        if type(entry.obj) is torch.Generator:
            return True
        if (
            not self.identity_observed
            or entry.value is not entry.obj
            or isinstance(entry.obj, IDENTITY_TYPES)
        ):
            return False
        return getattr(type(entry.obj), "__eq__", None) is object.__eq__ and entry.path.kind != "typeattr"

    def forget_reads(self) -> None:
        """Let attributes and items be read again, except for what the program has written."""
        for entry in self.entries.values():
            entry.attrs = {n: v for n, v in entry.attrs.items() if n in entry.writes or n == "__dict__"}
        for overlay in self.item_overlays.values():
            overlay.items = dict(overlay.writes)

    def refuse_shared_attributes(self) -> None:
        """Raise UnsupportedProgram if an object was written that shares its ``__dict__`` with another one.

        What is written to one would be read from the other.
        """
        distinct = {id(entry): entry for entry in self.entries.values()}.values()
        written = {type(entry.obj) for entry in distinct if entry.writes and type(entry.obj).__dictoffset__}
        owners: dict[int, ObjectEntry] = {}
        for entry in distinct:
            if type(entry.obj) in written and not isinstance(entry.obj, type):
                own = object.__getattribute__(entry.obj, "__dict__")
                other = owners.setdefault(id(own), entry)
                if other is not entry:
                    raise UnsupportedProgram(
                        f"{entry.path.source} and {other.path.source} have one __dict__, "
                        "and the program writes an attribute",
                        hint="Keep the shared state in an object or dictionary of its own.",
                    )

    # -- writes ----------------------------------------------------------------------------------------------

    def writes(self) -> Iterator[Write]:
        """Yield what the program wrote to objects, in the order in which it reached them, by kinds."""
        yield from (shadow.write() for shadow in self.shadows if shadow.is_written)
        yield from (_advance(count) for count in self.counts if count.steps)
        for overlay in self.item_overlays.values():
            yield from overlay.written_items()
        for entry in {id(e): e for e in self.entries.values() if e.writes}.values():
            for name, value in entry.writes.items():
                yield self._written_attribute(entry, name, value)

    def _written_attribute(self, entry: ObjectEntry, name: str, value: Any) -> Write:
        path, obj = entry.path, entry.obj
        if isinstance(obj, type):  # as of the reads of its attributes
            path = self.object_root(obj, obj.__qualname__)
        return Write(
            name=f"{entry.path.source}.{name}",
            emit=lambda builder: emit_attribute(builder, entry, name, value),
            owner=obj,
            kind=type(obj),
            path=path,
            keys=(name,),
            content=(value,),
            values=() if value is DELETED else (value,),
            moment=entry.writes.moments[name],
        )


#: classes of objects that are guarded by identity, of which two are never taken for one
_SINGLE = (type, types.FunctionType)


def _advance(count: Any) -> Write:
    return Write(
        name=count.path.source,
        emit=partial(_emit_advance, count),
        owner=count.original,
        kind=type(count.original),
        path=count.path,
        state=count.steps,
        keys=None if count.has_ended else (),
    )


def _emit_advance(count: Any, builder: EpilogueBuilder) -> None:
    """Advance an iterator of the user as far as the program has."""
    target = builder.fetched(count.path, count.original)
    effect, argument = count.effect()
    builder.emit(f"{builder.refer(effect)}({target}, {argument!r})")
