"""Objects and variables of the program that its backwards read and write when they run, after the program.

They are as the program has left them. One that it has changed since a backward was recorded, or returns, or
keeps, is built at the end of the call, and the backwards find it by its number:

    got = []; y.register_hook(got.append); return y * 2, got     →     objects[0] = c1 = []; return (y2, c1)

Others are rebuilt by the first backward that needs them
(:mod:`~thunder.frontend.custom_gradients.rebuilding`).
"""

from __future__ import annotations

import types
from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from thunder.base.errors import UnsupportedProgram
from thunder.base.provenance import cell_content
from thunder.frontend.custom_gradients.backward_state import BackwardState
from thunder.frontend.custom_gradients.leaf_hooks import HookHandle
from thunder.frontend.epilogue.reconstruction import children
from thunder.frontend.session import TracingSession

if TYPE_CHECKING:
    from thunder.frontend.epilogue.epilogue_builder import EpilogueBuilder

__all__ = ["changed_objects", "emit_objects", "objects_that_leave"]


def changed_objects(session: TracingSession) -> list[Any]:
    """Return the objects and variables that have changed since a backward that needs them was recorded.

    Among them are those that only the end of the program can build.
    """
    state = session.state(BackwardState)
    objects = [
        value
        for key, (value, parts, _) in state.rebuilt.items()
        if key in state.late or list(map(id, children(value))) != parts
    ]
    return [
        *objects,
        *(cell for cell, content, _ in state.cells.values() if cell_content(cell) is not content),
    ]


def objects_that_leave(session: TracingSession, built: Collection[int]) -> list[Any]:
    """Return the objects that backwards need and that are built at the end: ``built`` are the ids of all."""
    return [value for key, (value, _, _) in session.state(BackwardState).rebuilt.items() if key in built]


def emit_objects(session: TracingSession, builder: EpilogueBuilder) -> None:
    """Let the epilogue give the backwards the objects and variables that are built, or have changed."""
    state = session.state(BackwardState)
    changed = set(map(id, changed_objects(session)))
    for value, number in list(state.numbers.values()):
        is_shared = id(value) in state.rebuilt or id(value) in state.cells
        if not is_shared or not (
            id(value) in changed or id(value) in builder.uses or id(value) in builder.built
        ):
            continue
        if isinstance(value, types.CellType):
            content = cell_content(value)
            if isinstance(content, HookHandle):
                raise UnsupportedProgram(
                    "a hook that the program registers removes a hook when the backward runs",
                    where=state.cells[id(value)][2],
                    hint="Let the hook return None when it is not needed.",
                )
            text = builder.cell(value)
        else:
            text = builder.expression(value)
        builder.emit(f"{builder.expression(state.shared())}[{number}] = {text}")
