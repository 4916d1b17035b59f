"""Attributes of the program's objects: reads become facts, writes wait in an overlay."""

from __future__ import annotations

import importlib.util
import sys
import types
from collections.abc import Sequence
from typing import Any

from thunder.base.errors import UnsupportedProgram
from thunder.base.provenance import ABSENT, lookup_instance, own_name, reads_natively
from thunder.frontend.lookasides import imports, module_members
from thunder.frontend.natives.libraries import is_library
from thunder.frontend.objects.callable_kinds import DICT_GETTERS, METHODS
from thunder.frontend.objects.class_attributes import ClassAttributes
from thunder.frontend.objects.class_kinds import is_immutable, is_python_class
from thunder.frontend.objects.object_entry import ObjectEntry
from thunder.frontend.objects.shadow_copies import MAPPINGS, SEQUENCES
from thunder.frontend.session import TracingSession
from thunder.interpreter.frame import Frame
from thunder.interpreter.handlers.calling import CALL
from thunder.interpreter.handlers.expressions import (
    BINARY_OP,
    BINARY_SUBSCR,
    CONTAINS_OP,
    COPY,
    LOAD_ATTR,
    LOAD_ATTR_TO_CALL,
    STORE_ATTR,
    SWAP,
)
from thunder.interpreter.handlers.variables import LOAD_CONST, LOAD_DEREF, LOAD_FAST, LOAD_GLOBAL
from thunder.interpreter.operator_tables import BINARY_OPERATORS
from thunder.interpreter.policy import MISSING, storing_class
from thunder.ir.proxies import TensorProxy

#: types of objects that are roots where the program reaches them by no path
_ROOT_TYPES = (type, types.FunctionType, types.ModuleType, types.CodeType)
#: instructions that read a name and push nothing but its value
_LOADS = frozenset({LOAD_ATTR, LOAD_GLOBAL})
#: instructions that push a key and nothing else
_KEYS = frozenset({LOAD_CONST, LOAD_FAST})
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
        raw = lookup_instance(entry.obj, name)
        if type(raw) in SEQUENCES and (self.is_appended(name) or self.is_counted(raw, name)):
            return self.objects.appended_lists.adopt(raw, entry.path.step("instance", name))
        if type(raw) in MAPPINGS and self._is_appended_item(name):
            return self.objects.appended_lists.adopt_dict(raw, entry.path.step("instance", name))
        value = self.read_instance(entry, name)
        entry.attrs[name] = value
        return value

    def is_appended(self, name: str | None) -> bool:
        """Return whether the running instruction reads ``name`` for a call of ``append`` or ``extend`` of it.

        ``owner.name += …`` extends it too. ``name`` is None for a cell.
        """
        frame = self._frame_that_reads(name)
        if frame is None:
            return False
        call, method = frame.decoded.instructions[frame.pc + 1]
        if call is LOAD_ATTR_TO_CALL and method in ("append", "extend"):
            return True
        is_attribute = frame.decoded.instructions[frame.pc][0] is LOAD_ATTR
        return is_attribute and _is_extended(frame.decoded.instructions, frame.pc)

    def is_counted(self, raw: Any, name: str | None) -> bool:
        """Return whether the running instruction reads a list for its length, or an item that was appended.

        These are ``len(owner.name)``, and ``owner.name[-1]`` after ``owner.name.append(…)``.
        """
        frame = self._frame_that_reads(name) if type(raw) is list else None
        if frame is None:
            return False
        constant, index = frame.decoded.instructions[frame.pc + 1]
        if constant is LOAD_CONST:
            is_item = frame.decoded.instructions[frame.pc + 2][0] is BINARY_SUBSCR
            return is_item and self.objects.appended_lists.has_appended(raw, index)
        owner = 1 if frame.decoded.instructions[frame.pc][0] is LOAD_ATTR else 0
        end = len(frame.stack) - owner
        callee = frame.stack[end - 2 : end]
        is_len = len(callee) == 2 and any(x is len for x in callee) and any(x is MISSING for x in callee)
        return is_len and frame.decoded.instructions[frame.pc + 1] == (CALL, 1)

    def _is_appended_item(self, name: str) -> bool:
        """Return whether the running instruction reads ``name`` for ``owner.name[key].append(…)``."""
        frame = self._frame_that_reads(name)
        rows = () if frame is None else frame.decoded.instructions[frame.pc : frame.pc + 4]
        if len(rows) < 4 or rows[0] != (LOAD_ATTR, name) or rows[1][0] not in _KEYS:
            return False
        is_call = rows[3][0] is LOAD_ATTR_TO_CALL and rows[3][1] in ("append", "extend")
        return is_call and rows[2][0] is BINARY_SUBSCR

    def _looked_up(self, name: str) -> Any:
        """Return the key that the running instructions look up in the dict ``name``, or None.

        These are ``key in owner.name``, ``owner.name[key]`` and ``owner.name.get(key)``.
        """
        frame = self._frame_that_reads(name)
        rows = () if frame is None else frame.decoded.instructions[frame.pc : frame.pc + 3]
        if frame is None or len(rows) < 3 or rows[0][0] is not LOAD_ATTR:
            return None
        if rows[1][0] is CONTAINS_OP:
            return frame.stack[-2]
        load, argument = rows[2] if rows[1] == (LOAD_ATTR_TO_CALL, "get") else rows[1]
        if load not in _KEYS or (load is rows[1][0] and rows[2][0] is not BINARY_SUBSCR):
            return None
        return argument if load is LOAD_CONST else frame.fast[argument]

    def _frame_that_reads(self, name: str | None) -> Frame | None:
        """Return the running frame if its instruction reads ``name``, a cell if that is None.

        None where the program is in a part whose effects are compared: all containers are read there.
        """
        if self.reads_all_lists or not self.machine.frames:
            return None
        frame = self.machine.frames[-1]
        load, argument = frame.decoded.instructions[frame.pc]
        reads = load is LOAD_DEREF if name is None else load in _LOADS and argument == name
        return frame if reads else None

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
            self.note("lacks", entry.path, name, key=name)
        return MISSING

    def module_attr(self, entry: ObjectEntry, name: str) -> Any:
        """Return a variable of a module, which is a global of its functions."""
        key = (id(entry.obj.__dict__), name)
        value = self.variables.globals.get(key, self)
        if value is self and entry.obj is sys and name == "modules":
            looked_up = self._looked_up(name)
            if type(looked_up) is str and id(sys.modules) not in self.objects.entries:
                return imports.with_one_module(self, looked_up)
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
            storing_class(obj).__setattr__(obj, name, value)
            return
        if entry.own is None and not type(entry.obj).__dictoffset__:
            raise AttributeError(f"{type(obj).__name__!r} object has no attribute {name!r}")
        self.note_write()
        appended = self.objects.appended_lists
        if appended.shadows and appended.holds(lookup_instance(entry.obj, name), value):
            return  # the list itself, after ``+=``
        if entry.own is not None:
            entry.own[name] = value
        elif issubclass(type(entry.obj), types.ModuleType):
            self.variables.store_global(entry.obj.__dict__, name, value)
        else:
            entry.write(name, value)

    def delete_instance_attr(self, obj: Any, name: str) -> None:
        entry = self.resolve_entry(obj)
        if entry is None:
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

    def native_get(self, descriptor: Any, obj: Any, owner: type, name: str) -> Any:
        if descriptor is _CLASS:
            return self.class_of(obj)
        entry = self.resolve_entry(obj)
        if entry is not None and name == "__dict__" and isinstance(descriptor, DICT_GETTERS):
            return module_members.instance_dict(self, entry)
        if entry is None or _reads_shadow(entry, descriptor) or isinstance(descriptor, METHODS):
            return type(descriptor).__get__(descriptor, obj, owner)
        if name in entry.attrs:
            if entry.attrs[name] is MISSING:
                raise AttributeError(name)
            return entry.attrs[name]
        path = entry.path.step("attribute" if reads_natively(type(entry.obj)) else "slot", name)
        try:
            raw = type(descriptor).__get__(descriptor, entry.obj, owner)
        except AttributeError:  # a slot that holds nothing
            self.note("is", path, ABSENT)
            raise
        value = self.adopt(raw, path)
        if name == "__globals__":
            self.variables.adopt_namespace(raw, value)
        entry.attrs[name] = value
        return value

    def native_set(self, descriptor: Any, obj: Any, value: Any, name: str) -> None:
        entry = self.resolve_entry(obj)
        if entry is None:
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


def _is_extended(instructions: Sequence[tuple[Any, Any]], position: int) -> bool:
    """Return whether an instruction reads an attribute for ``owner.name += …``.

    owner.name += [x]    →    owner; COPY; LOAD_ATTR name; x; …; BINARY_OP +=; SWAP; STORE_ATTR name
    """
    name = instructions[position][1]
    if instructions[position - 1][0] is not COPY:
        return False
    store = next((i for i, row in enumerate(instructions) if i > position and row == (STORE_ATTR, name)), 0)
    return (
        store > position + 2
        and instructions[store - 1][0] is SWAP
        and instructions[store - 2] == (BINARY_OP, BINARY_OPERATORS["+="])
    )
