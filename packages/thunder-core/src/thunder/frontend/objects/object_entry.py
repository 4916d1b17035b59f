"""The entry of one object in the table of objects: its path, and what was read and written of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from thunder.base.errors import ThunderError
from thunder.base.provenance import Path
from thunder.interpreter.policy import MISSING


@dataclass(frozen=True, eq=False)
class Deleted:
    """The marker of a deleted attribute in an overlay."""


DELETED: Final = Deleted()


class ObjectEntry:
    """The entry of one object: its path, the attributes read, and the attributes written.

    ``attrs`` has the attributes that were read or written, ``writes`` the written ones alone, in order.
    ``refusal`` is the error of a program that looks into the object, if it may only pass it on; ``reader`` is
    called before native code looks into an array or a text, and returns what is in its place, or None.
    """

    __slots__ = ("attrs", "members", "moved", "obj", "own", "path", "reader", "refusal", "value", "writes")

    def __init__(self, obj: Any, path: Path, value: Any) -> None:
        self.obj, self.path, self.value = obj, path, value
        self.attrs: dict[str, Any] = {}
        self.writes: dict[str, Any] = {}
        self.moved: set[str] = set()  # names deleted before they were written: they come last
        self.members: dict[str, Path] = {}  # paths to the object's own dictionaries
        self.own: dict[str, Any] | None = None  # the shadow of ``__dict__``, once the program has read it
        self.refusal: ThunderError | None = None
        self.reader: Callable[[], Any] | None = None

    def write(self, name: str, value: Any) -> None:
        """Set an attribute in the overlay."""
        if self.writes.get(name) is DELETED:
            del self.writes[name]
            self.moved.add(name)
        self.attrs[name] = self.writes[name] = value

    def delete(self, name: str) -> None:
        """Delete an attribute in the overlay."""
        self.writes.pop(name, None)
        self.attrs[name], self.writes[name] = MISSING, DELETED
