"""The entry of one object in the table of objects: its path, and what was read and written of it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from types import GetSetDescriptorType, MemberDescriptorType
from typing import TYPE_CHECKING, Any, Final

from thunder.base.errors import ThunderError
from thunder.base.provenance import Path, lookup_type
from thunder.frontend.objects.writes import WrittenNames
from thunder.interpreter.policy import MISSING
from thunder.ir.object_names import is_attribute_name
from thunder.ops import prims

if TYPE_CHECKING:
    from thunder.frontend.epilogue.epilogue_builder import EpilogueBuilder


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

    __slots__ = (
        *("attrs", "begin", "members", "moved", "obj", "own", "path", "reader", "refusal", "value", "writes"),
    )

    def __init__(self, obj: Any, path: Path, value: Any, begin: tuple[int, int] = (0, 0)) -> None:
        self.obj, self.path, self.value = obj, path, value
        self.begin = begin  # how many facts there were before, and how many entries had been made
        self.attrs: dict[str, Any] = {}
        self.writes = WrittenNames()
        self.moved: set[str] = set()  # names deleted before they were written: they come last
        self.members: dict[str, Path] = {}  # paths to the object's own dictionaries
        self.own: dict[str, Any] | None = None  # the shadow of ``__dict__``, once the program has read it
        self.refusal: ThunderError | None = None
        self.reader: Callable[[], Any] | None = None

    def holds(self, name: str, value: Any) -> bool:
        """Return whether an attribute has been read and is this object, as after ``self.items += …``."""
        return name in self.attrs and self.attrs[name] is value and name not in self.writes

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


# -- how an attribute is written again -----------------------------------------------------------------------

#: descriptors whose values are not in the dictionary of an object
_SLOTS: Final = (MemberDescriptorType, GetSetDescriptorType)


def discard_attribute(obj: Any, name: str) -> None:
    """Delete an attribute of the object itself, if there is one."""
    if isinstance(obj, type) or isinstance(lookup_type(type(obj), name), _SLOTS):
        with suppress(AttributeError):
            (type if isinstance(obj, type) else object).__delattr__(obj, name)
    else:
        object.__getattribute__(obj, "__dict__").pop(name, None)


def set_in_dict(obj: Any, name: str, value: Any) -> None:
    """Set an attribute in the dictionary of an object, whatever its class has under the name."""
    object.__getattribute__(obj, "__dict__")[name] = value


def emit_attribute(builder: EpilogueBuilder, entry: ObjectEntry, name: str, value: Any) -> None:
    """Write or delete an attribute of an object, without its descriptor, which ran while tracing."""
    target, is_class = builder.fetched(entry.path, entry.obj), isinstance(entry.obj, type)
    if value is DELETED or name in entry.moved:
        builder.emit(f"{builder.refer(discard_attribute)}({target}, {name!r})")
    if value is DELETED:
        return
    of_class = lookup_type(type(entry.obj), name)
    is_set_by_class = hasattr(of_class, "__set__") or name in builder.session.written_class_attributes
    if is_set_by_class and not is_class and not isinstance(of_class, _SLOTS):
        # a descriptor that the class no longer has in the program, or not yet
        builder.emit(f"{builder.refer(set_in_dict)}({target}, {name!r}, {builder.expression(value)})")
        return
    has_plain_setattr = lookup_type(type(entry.obj), "__setattr__") is object.__setattr__
    is_plain = has_plain_setattr and is_attribute_name(name) and not hasattr(of_class, "__set__")
    by = None if is_plain else "type" if is_class else "object"
    builder.pack(prims.pack_attr, target, name, value, by=by)
