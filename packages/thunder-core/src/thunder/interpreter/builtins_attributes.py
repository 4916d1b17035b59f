"""Builtins on attributes and classes: ``getattr``, ``type``, ``isinstance``, ``super``, …"""

from __future__ import annotations

import abc
import builtins
import types
import typing
from typing import TYPE_CHECKING, Any, Final

from thunder.interpreter import attributes, construction
from thunder.interpreter.annotations import ANNOTATE_OF
from thunder.interpreter.lookup import call_special, is_a, python_special
from thunder.interpreter.native_registry import Args, Entries, Kwargs, Native
from thunder.interpreter.operator_protocols import truth
from thunder.interpreter.policy import MISSING

if TYPE_CHECKING:
    from thunder.interpreter.machine import Machine

ENTRIES: Final = Entries()
"""What the interpreter does in place of these builtins."""


def _with_name(machine: Machine, args: Args, kwargs: Kwargs, *counts: int) -> Args | None:
    """Return arguments whose second is the name of an attribute; None if C code judges the call."""
    if kwargs or len(args) not in counts or not is_a(args[1], str):
        return None
    return (args[0], machine.policy.read_text(args[1]), *args[2:])


@ENTRIES.entry(getattr)
def _getattr(machine: Machine, args: Args, kwargs: Kwargs) -> Any:
    named = _with_name(machine, args, kwargs, 2, 3)
    if named is None:
        return machine.policy.call_native(getattr, args, kwargs)
    try:
        return machine.policy.load_attr(named[0], named[1])
    except AttributeError:
        if len(args) == 2:
            raise
    return args[2]


@ENTRIES.entry(hasattr)
def _hasattr(machine: Machine, args: Args, kwargs: Kwargs) -> Any:
    named = _with_name(machine, args, kwargs, 2)
    if named is None:
        return machine.policy.call_native(hasattr, args, kwargs)
    try:
        machine.policy.load_attr(*named)
    except AttributeError:
        return False
    return True


@ENTRIES.entry(setattr)
def _setattr(machine: Machine, args: Args, kwargs: Kwargs) -> Any:
    named = _with_name(machine, args, kwargs, 3)
    if named is None:
        return machine.policy.call_native(setattr, args, kwargs)
    machine.policy.store_attr(*named)


@ENTRIES.entry(delattr)
def _delattr(machine: Machine, args: Args, kwargs: Kwargs) -> Any:
    named = _with_name(machine, args, kwargs, 2)
    if named is None:
        return machine.policy.call_native(delattr, args, kwargs)
    machine.policy.delete_attr(*named)


def _explicit_getattribute(getter: Any, load: Any) -> Native:
    def call(machine: Machine, args: Args, kwargs: Kwargs) -> Any:
        named = _with_name(machine, args, kwargs, 2)
        if named is None or not is_a(args[0], getter.__objclass__):
            return machine.policy.call_native(getter, args, kwargs)
        value = load(machine, *named)
        if value is MISSING:
            raise attributes.no_attribute(*named)
        return value

    return call


ENTRIES.update(
    {id(getter): _explicit_getattribute(getter, load) for getter, load in attributes.GETTERS.items()}
)


def _explicit_store(native: Any, store: Any, count: int) -> Native:
    def call(machine: Machine, args: Args, kwargs: Kwargs) -> Any:
        named = _with_name(machine, args, kwargs, count)
        if named is None or is_a(args[0], type) is not (native.__objclass__ is type):
            return machine.policy.call_native(native, args, kwargs)
        return store(machine, *named)

    return call


ENTRIES.update(
    {
        id(setter): _explicit_store(setter, attributes.store_instance, 3)
        for setter in attributes.GENERIC_SETTERS
    }
)
ENTRIES.update(
    {
        id(deleter): _explicit_store(deleter, attributes.delete_instance, 2)
        for deleter in attributes.GENERIC_DELETERS
    }
)
ENTRIES[id(type.__setattr__)] = _explicit_store(type.__setattr__, attributes.store_class, 3)
ENTRIES[id(type.__delattr__)] = _explicit_store(type.__delattr__, attributes.delete_class, 2)


@ENTRIES.entry(types.GetSetDescriptorType.__get__)
def _get_by_descriptor(machine: Machine, args: Args, kwargs: Kwargs) -> Any:
    """``descriptor.__get__(obj)``, of annotations, which code of the program computes."""
    if kwargs or len(args) < 2 or args[0] not in ANNOTATE_OF or args[1] is None:
        return machine.policy.call_native(types.GetSetDescriptorType.__get__, args, kwargs)
    descriptor, obj = args[:2]
    return machine.bind_attribute(descriptor, obj, type(obj), descriptor.__name__)


# -- classes -------------------------------------------------------------------------------------------------


@ENTRIES.entry(type)
def _type(machine: Machine, args: Args, kwargs: Kwargs) -> Any:
    if len(args) == 1 and not kwargs:
        return machine.policy.class_of(args[0])
    return construction.instantiate(machine, type, args, kwargs)


@ENTRIES.entry(type.__call__)
def _type_call(machine: Machine, args: Args, kwargs: Kwargs) -> Any:
    if args and is_a(args[0], type) and args[0] is not type:
        return construction.instantiate(machine, args[0], args[1:], kwargs)
    return machine.policy.call_native(type.__call__, args, kwargs)


ENTRIES[id(type.__new__)] = construction.type_new
ENTRIES[id(builtins.__build_class__)] = construction.build_class


@ENTRIES.entry(isinstance)
def _isinstance(machine: Machine, args: Args, kwargs: Kwargs) -> Any:
    if kwargs or len(args) != 2:
        return machine.policy.call_native(isinstance, args, kwargs)
    return _check_class(machine, args[0], args[1], isinstance, "__instancecheck__")


@ENTRIES.entry(issubclass)
def _issubclass(machine: Machine, args: Args, kwargs: Kwargs) -> Any:
    if kwargs or len(args) != 2:
        return machine.policy.call_native(issubclass, args, kwargs)
    return _check_class(machine, args[0], args[1], issubclass, "__subclasscheck__")


def _check_class(machine: Machine, obj: Any, classes: Any, native: Any, name: str) -> bool:
    seen = machine.policy.class_of(obj) if native is isinstance else type(obj)
    if native is isinstance and seen is classes:
        return True
    if type(classes) is types.UnionType and all(is_a(cls, type) for cls in classes.__args__):
        classes = classes.__args__
    if type(classes) is tuple:
        return any(_check_class(machine, obj, cls, native, name) for cls in classes)
    method = python_special(machine, type(classes), name) if type(classes) is not type else MISSING
    if method is MISSING:
        if seen is not type(obj):
            native, obj = issubclass, seen
        is_one: bool = machine.policy.call_native(native, (obj, classes), {})
        return is_one
    return truth(machine, call_special(machine, method, classes, obj))


def _asked_of_class(native: Any, of_class: Any) -> Native:
    """Return the entry of ``native(cls, obj)``, which looks at the class of an object in C."""

    def call(machine: Machine, args: Args, kwargs: Kwargs) -> Any:
        seen = machine.policy.class_of(args[1]) if len(args) == 2 and not kwargs else None
        if seen is None or seen is type(args[1]):
            return machine.policy.call_native_from(machine.globals, native, args, kwargs)
        return machine.policy.call_native(of_class, (args[0], seen), {})

    return call


ENTRIES[id(type.__instancecheck__)] = _asked_of_class(type.__instancecheck__, type.__subclasscheck__)
_OF_ABC: Final = tuple(vars(abc)[f"_abc_{name}check"] for name in ("instance", "subclass"))
ENTRIES[id(_OF_ABC[0])] = _asked_of_class(*_OF_ABC)


def _seeing_caller(native: Any) -> Native:
    """Return the entry of native code that asks which module has called it."""

    def call(machine: Machine, args: Args, kwargs: Kwargs) -> Any:
        return machine.policy.call_native_from(machine.globals, native, args, kwargs)

    return call


#: protocols let ``abc`` ask more than a program; type variables keep the module that made them
ENTRIES[id(_OF_ABC[1])] = _seeing_caller(_OF_ABC[1])
for _variable in (typing.TypeVar, typing.ParamSpec, typing.TypeVarTuple):
    if "__init__" not in vars(_variable):  # in C, from 3.12 on
        ENTRIES[id(_variable)] = _seeing_caller(_variable)


@ENTRIES.entry(callable)
def _callable(machine: Machine, args: Args, kwargs: Kwargs) -> bool:
    seen = machine.policy.class_of(args[0]) if len(args) == 1 and not kwargs else None
    if seen is None or seen is type(args[0]):
        is_callable: bool = machine.policy.call_native(callable, args, kwargs)
        return is_callable
    return machine.policy.type_attr(seen, "__call__") is not MISSING


@ENTRIES.entry(super)
def _super(machine: Machine, args: Args, kwargs: Kwargs) -> Any:
    if args or kwargs:
        return machine.policy.call_native(super, args, kwargs)
    frame = machine.frame
    code = frame.code
    if not code.co_argcount:
        raise RuntimeError("super(): no arguments")
    names = frame.decoded.localsplus
    first = frame.fast[0]
    if type(first) is types.CellType and names[0] in code.co_cellvars:
        first = machine.policy.load_cell(first)
    if first is MISSING:
        raise RuntimeError("super(): arg[0] deleted")
    if "__class__" not in code.co_freevars:
        raise RuntimeError("super(): __class__ cell not found")
    cls = machine.policy.load_cell(frame.fast[names.index("__class__", frame.decoded.first_free)])
    if cls is MISSING:
        raise RuntimeError("super(): empty __class__ cell")
    return machine.policy.call_native(super, (cls, first), {})
