"""Attributes of the program's objects: reads become facts, writes wait in an overlay."""

from __future__ import annotations

import importlib.util
import sys
import types
from typing import Any

from thunder.base.errors import UnsupportedProgram
from thunder.base.provenance import ABSENT, lookup_instance, own_name, reads_natively
from thunder.frontend.lookasides import imports
from thunder.frontend.natives.libraries import is_library
from thunder.frontend.objects.callable_kinds import DICT_GETTERS, METHODS
from thunder.frontend.objects.class_attributes import ClassAttributes
from thunder.frontend.objects.class_kinds import is_immutable, is_python_class
from thunder.frontend.objects.object_entry import ObjectEntry
from thunder.frontend.session import TracingSession
from thunder.frontend.types import module_members
from thunder.interpreter.coming_uses import key_of_lookup
from thunder.interpreter.policy import MISSING, storing_class
from thunder.ir.proxies import TensorProxy
from thunder.ops import prims

#: types of objects that are roots where the program reaches them by no path
_ROOT_TYPES = (type, types.FunctionType, types.ModuleType, types.CodeType)
_NAMES = ("__qualname__", "co_qualname", "__name__")
_CLASS = vars(object)["__class__"]


class AttributePolicy(TracingSession):
    """The part of the tracing policy that reads and writes attributes.

    Within a backward each read of state ends its tracing first, see
    :mod:`~thunder.frontend.custom_gradients.backward_policy`.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.classes = ClassAttributes(self)

    def type_attr(self, cls: type, name: str) -> Any:
        value = self.classes.values.get((cls, name), self)
        return value if value is not self else self.classes.find(cls, name)

    def forget_reads(self) -> None:
        self.objects.forget_reads()
        self.variables.forget_reads()
        self.classes.values.clear()

    def super_attr(self, start: type, after: type, name: str) -> Any:
        mro = start.__mro__
        return self.classes.find_in(mro[mro.index(after) + 1 :], name)

    def instance_attr(self, obj: Any, name: str) -> Any:
        entry = self.resolve_entry(obj)
        if entry is None:
            value = lookup_instance(obj, name)
            return MISSING if value is ABSENT else value
        if entry.own is not None:
            return entry.own.get(name, MISSING)
        if issubclass(type(entry.obj), types.ModuleType):
            return self.module_attr(entry, name)
        if name in entry.attrs:
            return entry.attrs[name]
        value = self.read_instance(entry, name)
        entry.attrs[name] = value
        return value

    def resolve_entry(self, obj: Any) -> ObjectEntry | None:
        """Return the entry of an object.

        A class, function, module or code object that the program reached by no path becomes a root.
        """
        entry = self.objects.entries.get(id(obj))
        if entry is not None and entry.refusal is not None:
            if entry.reader is not None:  # a text, which has no attributes of its own
                return None
            raise entry.refusal
        if entry is not None or not isinstance(obj, _ROOT_TYPES) or id(obj) in self.created_by_program:
            return entry
        if isinstance(obj, type) and (is_immutable(obj) or obj is TensorProxy):
            return None
        self.adopt(obj, self.object_root(obj, own_name(obj, *_NAMES) or "module"))
        return self.objects.entries[id(obj)]

    def read_instance(self, entry: ObjectEntry, name: str) -> Any:
        """Return an attribute of the instance itself as it was when the call began, or MISSING."""
        raw = lookup_instance(entry.obj, name)
        if raw is not ABSENT:
            return self.adopt(raw, entry.path.step("instance", name))
        if type(entry.obj).__dictoffset__:
            self.note(prims.check_has_attr, entry.path, name, False, key=name)
        return MISSING

    def module_attr(self, entry: ObjectEntry, name: str) -> Any:
        """Return a variable of a module, which is a global of its functions."""
        key = (id(entry.obj.__dict__), name)
        value = self.variables.globals.get(key, self)
        if value is self and entry.obj is sys and name == "modules":
            asked = key_of_lookup(self.machine.frames[-1], name) if self.machine.frames else None
            if type(asked) is str and id(sys.modules) not in self.objects.entries:
                return imports.with_one_module(self, asked)
        if value is self:
            self.variables.namespace_path(
                entry.obj.__dict__
            )  # holds the namespace, so that its id stays its own
            _load_submodule(entry.obj, name)
            value = self.variables.globals[key] = self.read_instance(entry, name)
        return value

    def set_instance_attr(self, obj: Any, name: str, value: Any) -> None:
        entry = self.resolve_entry(obj)
        if entry is None:
            self.objects.own_effects += 1
            storing_class(obj).__setattr__(obj, name, value)
            return
        if entry.own is None and not type(entry.obj).__dictoffset__:
            raise AttributeError(f"{type(obj).__name__!r} object has no attribute {name!r}")
        self.note_write()
        if entry.own is not None:
            entry.own[name] = value
        elif entry.holds(name, value):
            return
        elif issubclass(type(entry.obj), types.ModuleType):
            self.variables.store_global(entry.obj.__dict__, name, value)
        else:
            entry.write(name, value)

    def delete_instance_attr(self, obj: Any, name: str) -> None:
        entry = self.resolve_entry(obj)
        if entry is None:
            self.objects.own_effects += 1
            storing_class(obj).__delattr__(obj, name)
            return
        if self.instance_attr(obj, name) is MISSING:
            raise AttributeError(f"{type(obj).__name__!r} object has no attribute {name!r}")
        self.note_write()
        if entry.own is not None:
            del entry.own[name]
        elif issubclass(type(entry.obj), types.ModuleType):
            self.variables.store_global(entry.obj.__dict__, name, MISSING)
        else:
            entry.delete(name)

    def set_type_attr(self, cls: type, name: str, value: Any) -> None:
        self.note_write()
        self.classes.write(cls, name, value)

    def delete_type_attr(self, cls: type, name: str) -> None:
        self.note_write()
        self.classes.delete(cls, name)

    def interprets_annotations(self, obj: Any) -> bool:
        # Those of the caller's objects are computed once, by eager too: no later call may do it again.
        return id(obj) in self.created_by_program

    def native_get(self, descriptor: Any, obj: Any, owner: type, name: str) -> Any:
        if descriptor is _CLASS:
            return self.class_of(obj)
        entry = self.resolve_entry(obj)
        if entry is not None and name == "__dict__" and isinstance(descriptor, DICT_GETTERS):
            return module_members.instance_dict(self, entry)
        is_fixed = entry is None or type(entry.obj) is types.CodeType  # whose identity is known
        if entry is None or is_fixed or _reads_shadow(entry, descriptor) or isinstance(descriptor, METHODS):
            return type(descriptor).__get__(descriptor, obj, owner)
        if name in entry.attrs:
            if entry.attrs[name] is MISSING:
                raise AttributeError(name)
            return entry.attrs[name]
        path = entry.path.step("attribute" if reads_natively(type(entry.obj)) else "slot", name)
        try:
            raw = type(descriptor).__get__(descriptor, entry.obj, owner)
        except AttributeError:  # a slot that holds nothing
            self.note(prims.check_same_object, path, ABSENT)
            raise
        value = self.adopt(raw, path)
        if name == "__globals__":
            self.variables.adopt_namespace(raw, value)
        entry.attrs[name] = value
        return value

    def native_set(self, descriptor: Any, obj: Any, value: Any, name: str) -> None:
        entry = self.resolve_entry(obj)
        if entry is None:
            self.objects.own_effects += 1
            type(descriptor).__set__(descriptor, obj, value)
            return
        if not isinstance(descriptor, types.MemberDescriptorType):
            raise UnsupportedProgram(f"the program writes {entry.path.source}.{name}")
        self.note_write()
        if _reads_shadow(entry, descriptor):
            type(descriptor).__set__(descriptor, entry.value, value)
        entry.write(name, value)

    def native_delete(self, descriptor: Any, obj: Any, name: str) -> None:
        self.note_write()
        entry = self.resolve_entry(obj)
        if entry is None:
            type(descriptor).__delete__(descriptor, obj)
            return
        if not isinstance(descriptor, types.MemberDescriptorType):
            raise UnsupportedProgram(f"the program deletes {entry.path.source}.{name}")
        self.native_get(descriptor, obj, type(obj), name)  # raises AttributeError of an empty slot
        entry.delete(name)

    def forget(self) -> None:
        self.classes.forget()
        super().forget()


def _reads_shadow(entry: ObjectEntry, descriptor: Any) -> bool:
    """Return whether a descriptor's value is in the shadow: it is no slot of a Python class."""
    is_slot = type(descriptor) is types.MemberDescriptorType and is_python_class(descriptor.__objclass__)
    return entry.value is not entry.obj and not is_slot


def _load_submodule(module: types.ModuleType, name: str) -> None:
    """Load a submodule that a library's ``__getattr__`` imports at its first use, as ``numpy.random``."""
    names = vars(module)
    if name in names or not names.keys() >= {"__getattr__", "__path__"} or not is_library(names):
        return
    if importlib.util.find_spec(f"{module.__name__}.{name}") is not None:
        getattr(module, name, None)
