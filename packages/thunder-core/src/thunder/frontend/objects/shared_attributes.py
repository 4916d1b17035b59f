"""Objects that share their attributes: two with one ``__dict__``."""

from __future__ import annotations

from collections.abc import Iterable

from thunder.base.errors import UnsupportedProgram
from thunder.frontend.objects.object_entry import ObjectEntry

__all__ = ["refuse_shared_attributes"]


def refuse_shared_attributes(entries: Iterable[ObjectEntry]) -> None:
    """Raise UnsupportedProgram if an object was written that shares its ``__dict__`` with another one.

    What is written to one would be read from the other.
    """
    distinct = {id(entry): entry for entry in entries}.values()
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
