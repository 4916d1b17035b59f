"""Copies of readings: for another module, with its paths, objects and tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from thunder.base.provenance import ABSENT, Path, lookup_instance
from thunder.frontend.equal_modules.call_arguments import Arguments
from thunder.frontend.equal_modules.readings import Condition, Reading, Template, is_plain, is_reached_once
from thunder.frontend.objects.class_kinds import CODE_TYPES, LEAVES
from thunder.frontend.objects.object_entry import ObjectEntry
from thunder.frontend.objects.shadow_copies import ItemOverlay
from thunder.frontend.value_names import is_state
from thunder.interpreter.policy import MISSING
from thunder.ir.equal_metadata import have_same_metadata
from thunder.ir.proxies import ProxyTag, TensorProxy
from thunder.ir.statement_copies import StatementCopies, computed_by
from thunder.ir.trace import Source

if TYPE_CHECKING:
    from thunder.frontend.session import TracingSession

__all__ = ["copied_for"]


def copied_for(
    session: TracingSession,
    reading: Reading,
    entry: ObjectEntry,
    arguments: Arguments,
    is_replaced: Callable[[Any], bool],
) -> Any:
    """Return the result of a reading for another module, having added what its reading adds.

    MISSING, and nothing added, where the other module may be read in another way.
    """
    if not _have_like_parameters(reading.entry.obj, entry.obj):
        return MISSING
    template = reading.template(session)
    if not template.may_be_copied:
        return MISSING
    copy = _Copy(session, template, entry, is_replaced)
    if not copy.holds() or not is_reached_once(session, arguments, reading.kept, copy.reached()):
        return MISSING
    copy.note()
    pairs = list(zip(reading.arguments.computed, arguments.computed, reading.hints, strict=True))
    for _, proxy, hint in pairs:
        if proxy.name_hint is None:
            proxy.name_hint = hint
    return copy.record(reading, {id(first): proxy for first, proxy, _ in pairs})


def _have_like_parameters(a: torch.nn.Module, b: torch.nn.Module) -> bool:
    """Return whether two modules may be equal, by their own parameters: a quick question before all."""
    first, second = (object.__getattribute__(module, "__dict__").get("_parameters", {}) for module in (a, b))
    with torch._C.DisableTorchFunction():
        sizes = [[(k, None if p is None else p.shape) for k, p in held.items()] for held in (first, second)]
    return sizes[0] == sizes[1]


class _Copy:
    """A reading for another module: its paths, objects and values in the place of the first one's."""

    def __init__(
        self,
        session: TracingSession,
        template: Template,
        module: ObjectEntry,
        is_replaced: Callable[[Any], bool],
    ) -> None:
        self.session, self.template, self.module, self.is_replaced = session, template, module, is_replaced
        #: in the order of the template's, the paths and what is there
        self.paths: list[Path] = [module.path]
        self.found: list[Any] = [module.obj]
        #: what is in the place of an object of the template, or of its proxy, by id
        self.values: dict[int, Any] = {}
        #: the positions of attributes that the program has read before, and of their parts
        self.read_before: set[int] = set()

    # -- does it hold ----------------------------------------------------------------------------------------

    def holds(self) -> bool:
        """Return whether the reading of the module would be that of the template; changes nothing."""
        paths, found, fetched = self.paths, self.found, self.session.fetched
        for path, parent, fetch in self.template.paths[1:]:
            if parent is None or fetch is None:
                paths.append(path)
                found.append(fetched(path))
            else:
                value = found[parent]
                here = paths[parent]
                paths.append(path if here is path.parent else here.step(path.kind, path.key))
                found.append(ABSENT if value is ABSENT else fetch(value, path.key))
        written = {id(write.owner) for write in self.session.writes if write.owner is not None}
        return (
            all([self._is_like(entry, position, written) for entry, position in self.template.entries])
            and all(map(self._fact_holds, self.template.facts))
            and all([self._is_free(position) for _, position in self.template.overlays])
        )

    def _is_like(self, entry: ObjectEntry, position: int, written: set[int]) -> bool:
        """Return whether the object at the place of an entry is read as that was."""
        path, obj = self.paths[position], self.found[position]
        objects = self.session.objects
        if type(obj) is not type(entry.obj) or id(obj) in written or self.is_replaced(obj):
            return False
        known = objects.entries.get(id(obj))
        if known is None:
            if objects.path_in_module(obj, path) is not None or id(obj) in self.values:
                return False  # it is reached by another path
        elif known.path.place != path.place or not is_plain(known):
            return False
        self.values[id(entry.obj)] = obj
        if isinstance(obj, torch.Tensor):
            proxy: TensorProxy = entry.value
            with torch._C.DisableTorchFunction():
                is_alike = obj.is_leaf == proxy.declared_leaf and obj.storage_offset() == proxy.input_offset
            is_alike &= is_state(path) == (ProxyTag.STATIC_MEMORY_LOCATION in proxy.tags)
            if not is_alike or objects.has_free_sizes(obj, path):
                return False
            if known is not None:
                self.values[id(proxy)] = known.value
                return have_same_metadata(known.value, proxy)
        return True

    def reached(self) -> list[Any]:
        """Return the objects that are reached below the module, and what the program sees of them."""
        reached = [self.values[id(entry.obj)] for entry, _ in self.template.entries]
        known = (self.session.entry_of(obj) for obj in reached)
        return [*reached, *[entry.value for entry in known if entry is not None]]

    def _fact_holds(self, condition: Condition) -> bool:
        fact, specification = condition
        arguments = []
        for position, constant in specification:
            if position is None:
                arguments.append(self._constant(constant))
                continue
            value = self.found[position]
            if type(value) in (int, float) and self.session.objects.is_symbol(value, self.paths[position]):
                return False
            arguments.append(value)
        value = arguments[0]
        if value is ABSENT:
            return len(arguments) > 1 and arguments[1] is ABSENT
        absent = [a is ABSENT for a, (position, _) in zip(arguments, specification, strict=True) if position]
        return not any(absent) and fact.sym.holds(*arguments)

    def _constant(self, expected: Any) -> Any:
        """Return the module in the place of one of the template's, else what is expected."""
        return self.values.get(id(expected), expected) if isinstance(expected, torch.nn.Module) else expected

    def _is_free(self, position: int) -> bool:
        here = self.session.objects.item_overlays.get(id(self.found[position]))
        return here is None or not here.writes

    # -- what it adds ----------------------------------------------------------------------------------------

    def note(self) -> None:
        """Add the inputs, the facts and the entries of the module."""
        objects, paths, values = self.session.objects, self.paths, self.values
        self._take_known_paths()
        containers: dict[int, ObjectEntry] = {}  # that are adopted with the first fact about them
        for entry, position in self.template.entries:
            if id(values[id(entry.obj)]) in objects.entries:
                continue
            if type(entry.value) is TensorProxy:
                values[id(entry.value)] = objects.make_input(values[id(entry.obj)], paths[position])
            elif entry.value is not entry.obj:
                containers[position] = entry
        for fact, specification in self.template.facts:
            first = specification[0][0]
            if first in self.read_before:
                continue
            if first is not None and first in containers:
                entry = containers.pop(first)
                values[id(entry.value)] = objects.adopt(values[id(entry.obj)], paths[first])
            arguments = [
                self._constant(c) if position is None else paths[position] for position, c in specification
            ]
            objects.note(fact.sym, *arguments, key=fact.key)
        assert not containers, "of each container its type is a fact"
        for entry, position in self.template.entries:
            self._note_entry(entry, position)
        for overlay, position in self.template.overlays:
            self._note_items(overlay, position)

    def _take_known_paths(self) -> None:
        """Use the paths of what the program has reached before, of which facts have been noted."""
        known: dict[int, Path] = {}
        entries: dict[int, ObjectEntry] = {}
        for entry, position in self.template.entries:
            here = self.session.objects.entries.get(id(self.values[id(entry.obj)]))
            if here is not None:
                known[position], entries[position] = here.path, here
                for name, path in here.members.items():
                    if name in entry.members:
                        known[self.template.positions[id(entry.members[name])]] = path
        for position, (path, parent, _) in enumerate(self.template.paths):
            if position in known:
                self.paths[position] = known[position]
            elif parent is not None:
                if self.paths[position].parent is not self.paths[parent]:
                    self.paths[position] = self.paths[parent].step(path.kind, path.key)
                is_read = path.kind == "instance" and parent in entries and path.key in entries[parent].attrs
                if is_read or parent in self.read_before:
                    self.read_before.add(position)

    def _note_entry(self, entry: ObjectEntry, position: int) -> None:
        objects, obj = self.session.objects, self.values[id(entry.obj)]
        here = objects.entries.get(id(obj))
        if here is None:
            here = objects.track(obj, self.paths[position], self._value(entry.value))
        for name, path in entry.members.items():
            here.members.setdefault(name, self.paths[self.template.positions[id(path)]])
        for name, value in entry.attrs.items():
            if name in here.attrs:
                continue
            if self._is_known(value):
                here.attrs[name] = self._value(value)
            elif type(value) is tuple and id(value) not in objects.entries:  # of leaves, each module its own
                here.attrs[name] = lookup_instance(obj, name)

    def _note_items(self, overlay: ItemOverlay, position: int) -> None:
        overlays, original = self.session.objects.item_overlays, self.found[position]
        here = overlays.get(id(original))
        if here is None:
            here = overlays[id(original)] = ItemOverlay(self.values[id(overlay.owner)], self.paths[position])
        for key, item in overlay.items.items():
            if self._is_known(item):
                here.items.setdefault(key, self._value(item))

    def _is_known(self, value: Any) -> bool:
        is_shared = type(value) in LEAVES or value is MISSING or isinstance(value, CODE_TYPES)
        return is_shared or id(value) in self.values

    def _value(self, value: Any) -> Any:
        return self.values.get(id(value), value)

    def record(self, reading: Reading, arguments: dict[int, TensorProxy]) -> Any:
        """Record the statements with other values, and return the result."""
        line = self.session.locate()  # it also notices the handlers around the call
        name = self.session.modules.name
        moved = _MovedSources(name(reading.entry.path), name(self.module.path), reading.line, line)
        trace, hints = self.session.trace, reading.hints_of_results
        values = {key: value for key, value in self.values.items() if type(value) is TensorProxy} | arguments
        for proxy in computed_by(reading.statements):
            if id(proxy) not in values:
                hint = hints.get(id(proxy), proxy.name_hint)
                values[id(proxy)] = proxy.copy(trace.make_name(prefix="t"), hint)
        return StatementCopies(values, moved).recorded(trace, reading.statements, reading.result)


class _MovedSources:
    """The lines of a copy: those of the module's code, with its path, and the line of the call."""

    def __init__(self, first: str, here: str, first_line: Source | None, line: Source | None) -> None:
        self._first, self._here, self._first_line, self._line = first, here, first_line, line
        self._known: dict[int, Source] = {}

    def __call__(self, source: Source | None) -> Source | None:
        if source is None:
            return None
        moved = self._known.get(id(source))
        if moved is None:
            # where the module is one of torch's, the line is its caller's
            own = self._line if source == self._first_line and self._line is not None else source
            moved = Source(own.file, own.line, self(source.inner), self._module(source.module))
            self._known[id(source)] = moved
        return moved

    def _module(self, module: str) -> str:
        if module == self._first:
            return self._here
        is_below = module.startswith((f"{self._first}.", f"{self._first}["))
        return self._here + module[len(self._first) :] if is_below else module
