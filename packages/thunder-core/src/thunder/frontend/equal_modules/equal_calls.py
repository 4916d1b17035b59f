"""Modules that equal one which was read before: their calls are copied, not interpreted again.

    for block in self.blocks:     blocks[0]   is read: facts, inputs, statements
        x = block(x)              blocks[1]   has the same facts: the same statements, of its own inputs

Note [Equal modules]
What a program reads of a module are facts, which the prologue checks in each call. A call of another module
of which they hold records the same, if nothing else decides what is recorded. So a *reading*, the call of a
module with the facts, inputs and statements that it has added, is copied where

- the arguments are equal: tensors that are computed have equal metadata, all others are the same objects
  (``call_arguments``);
- the facts about the first module, also those that were noted before the call, hold of the second one, and
  what the first reached under its path is reached there by the second (``copies``);
- nothing below either module is reached by another way than by the module: as an argument, by another path,
  in what the program has written, or through the objects around the module (``_objects_around``);
- between the beginning of the reading and the copy the program has only read and computed. Everything else
  is counted in ``EntryTable.effects``: calls of rules that are not known to read only, code in C that gets
  what it may change, writes, states of the session that are not only read. What nobody has declared is an
  effect. Changes of what the program itself has made are counted apart: they end a reading, but no copy;
- within the reading, no rule has looked at what was recorded before (``TraceCtx.looks``).

A copy leaves the session as the reading would: facts, entries, inputs, statements. The suites compare both.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import torch

from thunder.base.provenance import Path
from thunder.frontend.equal_modules.call_arguments import Arguments
from thunder.frontend.equal_modules.copies import copied_for
from thunder.frontend.equal_modules.readings import Position, Reading
from thunder.frontend.objects.class_kinds import LEAVES
from thunder.frontend.objects.object_entry import ObjectEntry
from thunder.interpreter.policy import MISSING
from thunder.ir.proxies import TensorProxy

if TYPE_CHECKING:
    from thunder.frontend.session import TracingSession


#: how many readings are kept for calls that look equal: layers of two kinds may alternate
_KEPT: Final = 3


class EqualModules:
    """The readings of one session, by the class of the module and the arguments.

    Args:
        session: what reads the modules.
        is_replaced: whether a rule of its own calls a module.
    """

    def __init__(self, session: TracingSession, is_replaced: Callable[[Any], bool]) -> None:
        self._session, self._is_replaced = session, is_replaced
        self.is_on = True
        self._readings: dict[Any, list[Reading]] = {}  # newest first
        #: for numbers of effects, what is kept, and the objects, so that their ids stay theirs
        self._kept: tuple[Any, frozenset[int] | None, Any] = (None, None, None)
        self._innermost: Reading | None = None  # that has not ended
        #: the ids of the objects through which its module is reached
        self.around: frozenset[int] = frozenset()
        self._known_around: dict[int, tuple[Path, frozenset[int]]] = {}  # by the id of a path

    def call(
        self, entry: ObjectEntry, args: tuple[Any, ...], kwargs: dict[str, Any], read: Callable[[], Any]
    ) -> Any:
        """Return the result of a module's call: a copy of that of an equal one, or what ``read`` returns."""
        session, objects, trace = self._session, self._session.objects, self._session.trace
        if id(entry.obj) in self.around:
            objects.own_effects += 1
        around = self._objects_around(entry.path) if self._may_copy(entry.obj) else None
        if around is None:
            return read()
        arguments = Arguments(objects.entries, self._kept_values())
        key = arguments.key(type(entry.obj), args, kwargs)
        if key is None:
            return read()
        moment = objects.effects, self._kept[1]
        earlier = self._readings[key] = [r for r in self._readings.get(key, ()) if r.moment == moment]
        for reading in earlier:
            copied = copied_for(session, reading, entry, arguments, self._is_replaced)
            if copied is not MISSING:
                return copied
        reading = Reading(entry, arguments, Position.now(session), *moment, session.locate())
        own_effects, looks = objects.own_effects, trace.looks
        hints = [p.name_hint for p in arguments.computed]
        outer, self._innermost = self._innermost, reading
        outside, self.around = self.around, around
        try:
            result = read()
        finally:
            self._innermost, self.around = outer, outside
        if (objects.effects, objects.own_effects, trace.looks) == (reading.effects, own_effects, looks):
            reading.end(session, result, hints)
            self._readings[key] = [reading, *earlier[: _KEPT - 1]]
        return result

    def note_made(self, obj: Any) -> None:
        """Take notice of a function, cell or class that the program has made."""
        if self._innermost is not None:
            self._innermost.made[id(obj)] = obj

    def has_made(self, obj: Any) -> bool:
        """Return whether the innermost call that is read has made an object."""
        return self._innermost is not None and id(obj) in self._innermost.made

    def forget(self) -> None:
        """Release the modules."""
        self._readings.clear()
        self._known_around.clear()
        self._kept = None, None, None

    def _may_copy(self, module: torch.nn.Module) -> bool:
        """Return whether the program is where modules are read by their facts alone.

        A module without submodules is read as fast as it is copied.
        """
        session, objects = self._session, self._session.objects
        return (
            self.is_on
            and bool(object.__getattribute__(module, "__dict__").get("_modules"))
            and len(session.trace.open_scopes) == 1
            and not session.place.is_within
            and not objects.overridden
            and not objects.counts
            and not objects.has_unmodelled
            and not objects.tensor_classes
            and not session.uses_arrays
            and not torch._C._is_any_autocast_enabled()  # which casts a weight once
        )

    def _objects_around(self, path: Path) -> frozenset[int] | None:
        """Return the ids of the objects through which a module is reached; None if it is not an attribute.

        What looks at them within a call of the module may reach it, or a part of it, not by ``self``.
        """
        parent = path.parent
        if parent is None or not (
            path.kind == "instance"
            or (path.kind == "key" and parent.kind == "instance" and parent.key == "_modules")
        ):
            return None
        known = self._known_around.get(id(parent))
        if known is None:
            found, step = list[Any](), path.parent
            while step is not None:
                found.append(self._session.fetched(step))
                step = step.parent
            known = self._known_around[id(parent)] = parent, frozenset(map(id, found))
        return known[1]

    def _kept_values(self) -> frozenset[int] | None:
        """Return the ids of what the program has written to places that outlive it, at any depth.

        A module may find a tensor there that is an argument of its call too. None if there are objects of
        which nobody knows what they hold.
        """
        objects = self._session.objects
        moment = objects.effects, objects.own_effects
        if moment != self._kept[0]:
            kept, pending = list[Any](), list(self._session.writes.values())
            while pending:
                value = pending.pop()
                kept.append(value)
                if type(value) in (tuple, list, set, dict):
                    pending += (*value, *value.values()) if type(value) is dict else value
                elif not (
                    type(value) is TensorProxy or type(value) in LEAVES or id(value) in objects.entries
                ):
                    kept, pending = [], []
                    self._kept = moment, None, kept
                    return None
            self._kept = moment, frozenset(map(id, kept)), kept
        return self._kept[1]
