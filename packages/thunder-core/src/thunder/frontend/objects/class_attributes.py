"""Attributes of classes in the traced program: reads become facts, writes wait.

type(self).calls += 1   →   a fact about Counter.calls; epilogue: type.__setattr__(Counter, 'calls', 4)
"""

from __future__ import annotations

from typing import Any

from thunder.base.errors import UnsupportedProgram
from thunder.base.provenance import ABSENT, Path, lookup_type
from thunder.frontend.objects.class_kinds import is_immutable
from thunder.frontend.objects.object_entry import DELETED
from thunder.frontend.session import TracingSession
from thunder.frontend.types import patches
from thunder.interpreter.policy import MISSING
from thunder.ir.proxies import TensorProxy
from thunder.ops import prims


class ClassAttributes:
    """The attributes of classes that an acquisition has read or written."""

    def __init__(self, session: TracingSession) -> None:
        self.session = session
        self.values: dict[tuple[type, str], Any] = {}
        self.written = session.written_class_attributes
        self._namespaces: dict[type, tuple[Any, Path]] = {}
        self._ordered: set[type] = set()  # classes of which the order of bases is a fact

    def forget(self) -> None:
        """Release the classes."""
        self.values.clear()
        self._namespaces.clear()
        self._ordered.clear()

    # -- reads -----------------------------------------------------------------------------------------------

    def find(self, cls: type, name: str) -> Any:
        """Return the raw value of the first class in the MRO that has one, or MISSING; guard it."""
        if id(cls) in self.session.created_by_program or name in self.written:
            value = self.find_in(cls.__mro__, name)
        elif is_immutable(cls) or cls is TensorProxy:
            raw = lookup_type(cls, name)
            if cls is TensorProxy:
                raw = patches.special_method(self.session, name) or raw
            value = MISSING if raw is ABSENT else raw
        else:
            value = self._adopt(cls, name, lookup_type(cls, name))
        self.values[cls, name] = value
        return value

    def find_in(self, bases: tuple[type, ...], name: str) -> Any:
        """Return the value of the first of these classes that has one, or MISSING, with the facts."""
        for base in bases:
            entry = self.session.entry_of(base) if name in self.written else None
            written = MISSING if entry is None else entry.writes.get(name, MISSING)
            if written is not MISSING and written is not DELETED:
                return written
            if written is MISSING and name in base.__dict__:
                return self._own(base, name)
            if written is MISSING and not self._is_certain(base):
                self.session.note(prims.check_contains, self._namespace(base), name, False, key=name)
        return MISSING

    def _own(self, cls: type, name: str) -> Any:
        raw = cls.__dict__[name]
        return raw if self._is_certain(cls) else self._adopt(cls, name, raw)

    def _is_certain(self, cls: type) -> bool:
        """Return whether only the program can change a class."""
        return is_immutable(cls) or cls is TensorProxy or id(cls) in self.session.created_by_program

    def _adopt(self, cls: type, name: str, raw: Any) -> Any:
        objects = self.session.objects
        root = objects.object_root(cls, cls.__qualname__)
        if cls not in self._ordered:  # the guard of an attribute looks along the bases as they are now
            self._ordered.add(cls)
            objects.note(prims.check_same_object, root.step("attribute", "__mro__"), cls.__mro__)
        path = root.step("typeattr", name)
        if raw is ABSENT:
            objects.note(prims.check_same_object, path, ABSENT)
            return MISSING
        value = objects.adopt(raw, path)
        return MISSING if value is ABSENT else value

    def _namespace(self, cls: type) -> Path:
        namespace = self._namespaces.get(cls)
        if namespace is None:
            view = cls.__dict__
            path = self.session.object_root(view, f"{cls.__qualname__}.__dict__")
            namespace = self._namespaces[cls] = (view, path)
        return namespace[1]

    # -- writes ----------------------------------------------------------------------------------------------

    def write(self, cls: type, name: str, value: Any) -> None:
        """``type.__setattr__``."""
        if self._is_certain(cls):
            type.__setattr__(cls, name, value)
        else:
            self._refuse_unless_plain(cls, name)
            self.session.resolve_entry(cls).write(name, value)  # type: ignore[union-attr]
        self._changed(name)

    def delete(self, cls: type, name: str) -> None:
        """``type.__delattr__``."""
        if self._is_certain(cls):
            type.__delattr__(cls, name)
        else:
            self._refuse_unless_plain(cls, name)
            if self.find_in((cls,), name) is MISSING:
                raise AttributeError(f"type object {cls.__name__!r} has no attribute {name!r}")
            self.session.resolve_entry(cls).delete(name)  # type: ignore[union-attr]
        self._changed(name)

    def _changed(self, name: str) -> None:
        self.written.add(name)
        for key in [key for key in self.values if key[1] == name]:
            del self.values[key]

    def _refuse_unless_plain(self, cls: type, name: str) -> None:
        """Refuse writes to special attributes, and to a class whose ``__dict__`` was read."""
        special = name.startswith("__") and name.endswith("__")
        entry = self.session.resolve_entry(cls)
        if special or entry is None or "__dict__" in entry.attrs:
            raise UnsupportedProgram(
                f"the program writes the class attribute {cls.__qualname__}.{name}",
                hint="Write it before the compiled call.",
            )
