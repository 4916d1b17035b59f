"""Lists to which a program has only appended: their content is neither read nor guarded."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from thunder.base.provenance import Path, is_weak
from thunder.frontend.objects.object_entry import ObjectEntry
from thunder.frontend.objects.shadow_copies import SEQUENCES, Shadow
from thunder.ops import prims

if TYPE_CHECKING:
    from thunder.frontend.objects.object_table import ObjectTable

__all__ = ["AppendedLists"]


class AppendedLists:
    """The lists and deques of one acquisition to which the program has only appended.

    The program has a shadow without content of each. A read of the list adds the content to the shadow, and
    the facts about it. Its length alone is a fact, or an input (Note [Numbers that vary]).
    """

    def __init__(self, table: ObjectTable) -> None:
        self.table = table
        self.shadows: dict[int, Shadow] = {}  # by id of the list
        #: the shadows of dicts whose lists may have shadows without content, by id of the dict
        self.dicts: dict[int, Shadow] = {}

    def adopt(self, raw: Any, path: Path) -> Any:
        """Return the shadow of a list or deque to which the program appends, without its content."""
        table = self.table
        if id(raw) in table.entries:
            return table.adopt(raw, path)
        shadow = self.shadows.get(id(raw))
        if shadow is None:
            shadow = self.shadows[id(raw)] = Shadow.of(raw, path)
            shadow.fill([])
            table.shadows.append(shadow)
            table.entries[id(shadow.copy)] = ObjectEntry(raw, path, shadow.copy)
            if path.parent is not None:
                table.note(prims.check_type, path, type(raw))
        elif shadow.path is not path:
            table.note(prims.check_same_object, path, shadow.path)
        return shadow.copy

    def adopt_dict(self, raw: Any, path: Path) -> Any:
        """Return the shadow of a dict, to one of whose lists the program appends, without their content."""
        table = self.table
        if id(raw) in table.entries:
            return table.adopt(raw, path)
        shadow = self.dicts.get(id(raw))
        if shadow is not None:
            if shadow.path is not path:
                table.note(prims.check_same_object, path, shadow.path)
            return shadow.copy
        if path.parent is not None:
            table.note(prims.check_type, path, type(raw))
        copy = table.adopt_container(raw, path, adopt_list=self.adopt)
        del table.entries[id(raw)]  # another read finds it in the table of these
        self.dicts[id(raw)] = next(s for s in reversed(table.shadows) if s.copy is copy)
        return copy

    def holds(self, raw: Any, value: Any) -> bool:
        """Return whether a value is the shadow of this list, whose content has not been read."""
        shadow = self.shadows.get(id(raw))
        return shadow is not None and shadow.original is raw and shadow.copy is value

    def length(self, copy: Any) -> Any:
        """Return the length of a list whose content has not been read, by its shadow; None for others."""
        shadow = next((s for s in self.shadows.values() if s.copy is copy), None)
        if shadow is None:
            return None
        raw: list[Any] = shadow.original
        before: Any = len(raw)
        if shadow.path.source in self.table.varying:
            before = self.table.adopt_number(before, shadow.path.step("length", "len"))
        else:
            self.table.note(prims.check_len, shadow.path, before)
        return before + len(copy)

    def has_appended(self, raw: Any, index: Any) -> bool:
        """Return whether an index, from the end, is that of an item that the program has appended."""
        shadow = self.shadows.get(id(raw))
        return shadow is not None and type(index) is int and -len(shadow.copy) <= index < 0

    def read(self, raw: Any) -> None:
        """Add the content of a list, or of the lists of a dict, if the program has not read it before."""
        if id(raw) in self.shadows:
            self._read_list(raw)
        if id(raw) in self.dicts:
            shadow = self.dicts.pop(id(raw))
            self.table.entries[id(raw)] = self.table.entries[id(shadow.copy)]
            for item in dict.values(raw):
                if id(item) in self.shadows:
                    self._read_list(item)

    def _read_list(self, raw: list[Any]) -> None:
        """Add the content of a list to its shadow, before what the program has appended."""
        table, shadow = self.table, self.shadows.pop(id(raw))
        entry = table.entries[id(raw)] = table.entries[id(shadow.copy)]
        added = list(shadow.copy)
        shadow.copy.clear()
        table.note(prims.check_len, entry.path, len(raw))
        shadow.fill([table.adopt_item(v, entry.path.step("index", i)) for i, v in enumerate(raw)])
        shadow.copy.extend(added)

    def guard(self) -> None:
        """Guard that a list whose content is not read is none of the other lists."""
        if self.shadows:
            entries = (e for e in self.table.entries.values() if type(e.obj) in SEQUENCES)
            held = {id(e): e.path for e in entries if not is_weak(e.path)}
            if len(held) > 1:
                first, *others = held.values()
                self.table.note(prims.check_different, first, *others)

    def forget(self) -> None:
        """Release the user's objects."""
        self.shadows.clear()
        self.dicts.clear()
