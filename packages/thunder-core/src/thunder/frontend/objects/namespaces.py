"""The variables of a program: globals of modules, builtins, and cells of closures.

A variable is read once and guarded then; what the program writes is kept, and written by the epilogue.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from thunder.base.provenance import ABSENT, Path, cell_content
from thunder.frontend.objects.object_table import ObjectTable
from thunder.frontend.objects.writes import Write, WrittenNames
from thunder.interpreter.policy import MISSING
from thunder.ops import prims

if TYPE_CHECKING:
    from thunder.frontend.epilogue.epilogue_builder import EpilogueBuilder


class Variables:
    """The variables of one acquisition: what was read of them, and what the program wrote.

    Args:
        objects: the objects that were reached from the inputs.
        note_write: called before each write.
    """

    def __init__(self, objects: ObjectTable, note_write: Callable[[], None]) -> None:
        self.objects, self.note_write = objects, note_write
        self.globals: dict[tuple[int, str], Any] = {}
        #: (namespace, value) by the id of the namespace and the name
        self.global_writes = WrittenNames()
        self._moved: set[tuple[int, str]] = set()  # those deleted before they were written: they come last
        self.namespaces: dict[int, dict[str, Any]] = {}  # that the program made for ``exec`` and ``eval``
        self.cell_paths: dict[int, tuple[Any, Path]] = {}
        self.cells: dict[int, Any] = {}
        self.cell_writes = WrittenNames()  # (path, value) by the cell's id

    def forget(self) -> None:
        """Release the user's objects, when the program has been traced."""
        for table in (self.globals, self.global_writes, self.namespaces):
            table.clear()
        self.cell_paths.clear()
        self.cells.clear()
        self.cell_writes.clear()
        self._moved.clear()

    def forget_reads(self) -> None:
        """Let variables be read again, except for what the program has written."""
        self.globals = {key: v for key, v in self.globals.items() if key in self.global_writes}
        self.cells = {key: v for key, v in self.cells.items() if key in self.cell_writes}

    # -- globals and builtins --------------------------------------------------------------------------------

    def load_global(self, namespace: dict[str, Any], builtin_names: Mapping[str, Any], name: str) -> Any:
        """Return a global or builtin, or MISSING."""
        own = id(namespace) in self.namespaces
        value = namespace.get(name, MISSING) if own else self._load_variable(namespace, name)
        return self._load_variable(builtin_names, name) if value is MISSING else value

    def _load_variable(self, namespace: Any, name: str) -> Any:
        """Return a global of a module, or a builtin, or MISSING."""
        value = self.globals.get((id(namespace), name), self)
        if value is not self:
            return value
        held = self.objects.entries.get(id(namespace))
        if held is not None:  # the program reads the dictionary itself
            return held.value.get(name, MISSING)
        path = self.namespace_path(namespace).step("global", name)
        raw = namespace.get(name, ABSENT)
        if raw is ABSENT:
            self.objects.note(prims.check_same_object, path, ABSENT)
            value = MISSING
        else:
            value = self.objects.adopt(raw, path)
        self.globals[id(namespace), name] = value
        return value

    def namespace_path(self, namespace: dict[str, Any]) -> Path:
        """Return the root of a module's globals."""
        name = namespace.get("__name__", "?")
        return self.objects.object_root(namespace, name if name == "builtins" else f"globals of {name}")

    def adopt_namespace(self, namespace: dict[str, Any], shadow: dict[str, Any]) -> dict[str, Any]:
        """Return the shadow of a module's globals, which takes over what the program wrote."""
        for key in [key for key in self.globals if key[0] == id(namespace)]:
            del self.globals[key]
        for key in [key for key in self.global_writes if key[0] == id(namespace)]:
            value = self.global_writes.pop(key)[1]
            shadow.pop(key[1], None) if value is MISSING else shadow.__setitem__(key[1], value)
        return shadow

    def store_global(self, namespace: dict[str, Any], name: str, value: Any) -> None:
        """Set a global; MISSING deletes it."""
        if id(namespace) in self.namespaces:
            self.objects.own_effects += 1
            namespace[name] = value
            return
        self.note_write()
        held = self.objects.entries.get(id(namespace))
        if held is not None:
            held.value.pop(name, None) if value is MISSING else held.value.__setitem__(name, value)
            return
        self.namespace_path(namespace)  # holds the namespace, so that its id stays its own
        key = id(namespace), name
        if value is MISSING or self.global_writes.get(key, (None, None))[1] is MISSING:
            self.global_writes.pop(key, None)
            self._moved.add(key)
        self.globals[key], self.global_writes[key] = value, (namespace, value)

    def delete_global(self, namespace: dict[str, Any], name: str) -> None:
        """Delete a global. Raises KeyError if there is none."""
        if id(namespace) in self.namespaces:
            self.objects.own_effects += 1
            del namespace[name]
            return
        if self._load_variable(namespace, name) is MISSING:
            raise KeyError(name)
        self.store_global(namespace, name, MISSING)

    # -- cells -----------------------------------------------------------------------------------------------

    def load_cell(self, cell: types.CellType) -> Any:
        """Return the content of a closure cell, or MISSING if it is empty."""
        tracked = self.cell_paths.get(id(cell))
        if tracked is None:
            content = cell_content(cell)
            return MISSING if content is ABSENT else content
        value = self.cells.get(id(cell), self)
        if value is not self:
            return value
        raw = cell_content(cell)
        if raw is ABSENT:
            self.objects.note(prims.check_same_object, tracked[1], ABSENT)
            return MISSING
        value = self.cells[id(cell)] = self.objects.adopt(raw, tracked[1])
        return value

    def store_cell(self, cell: types.CellType, value: Any) -> None:
        """Set the content of a closure cell; MISSING empties it."""
        tracked = self.cell_paths.get(id(cell))
        if tracked is None:
            cell.cell_contents = value
            return
        self.note_write()
        self.cells[id(cell)] = value
        self.cell_writes[id(cell)] = (tracked[1], value)

    def delete_cell(self, cell: types.CellType) -> None:
        """Empty a closure cell."""
        if id(cell) in self.cell_paths:
            self.store_cell(cell, MISSING)
        else:
            del cell.cell_contents

    # -- writes ----------------------------------------------------------------------------------------------

    def writes(self) -> Iterator[Write]:
        """Yield the variables that the program has written."""
        for (_, name), (namespace, value) in self.global_writes.items():
            yield self._written_global(namespace, name, value)
        for key, (path, value) in self.cell_writes.items():
            yield _written_cell(self.cell_paths[key][0], path, value, self.cell_writes.moments[key])

    def _written_global(self, namespace: dict[str, Any], name: str, value: Any) -> Write:
        key = id(namespace), name
        is_moved = key in self._moved

        def emit(builder: EpilogueBuilder) -> None:
            module = builder.refer(namespace)
            if is_moved:  # it comes last
                builder.emit(f"{module}.pop({name!r}, None)")
            if value is not MISSING:
                builder.emit(f"{module}[{name!r}] = {builder.expression(value)}")

        return Write(
            name=name,
            emit=emit,
            variable=key,
            path=self.namespace_path(namespace),
            keys=(name,),
            content=(value,),
            values=() if value is MISSING else (value,),
            moment=self.global_writes.moments[key],
        )


def _written_cell(cell: types.CellType, path: Path, value: Any, moment: int) -> Write:
    return Write(
        name=path.source,
        emit=partial(_emit_cell, path, value),
        owner=cell,
        path=path,
        content=(value,),
        values=() if value is MISSING else (value,),
        moment=moment,
    )


def _emit_cell(path: Path, value: Any, builder: EpilogueBuilder) -> None:
    """Write or empty a closure cell."""
    assert path.parent is not None, "a cell's content is reached through the cell"
    name = builder.fetched_cell(path.parent)
    builder.emit(
        f"del {name}.cell_contents"
        if value is MISSING
        else f"{name}.cell_contents = {builder.expression(value)}"
    )
