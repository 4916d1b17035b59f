"""The generic attribute protocol, made of the policy's primitive reads and writes.

Mirrors ``PyObject_GenericGetAttr``, ``type_getattro``, ``module_getattro``, ``super_getattro`` and
``slot_tp_getattr_hook``.
"""

from __future__ import annotations

import collections
import functools
import re
import threading
import types
from typing import TYPE_CHECKING, Any, Final

from thunder.interpreter.annotations import ANNOTATE_OF, load_annotations
from thunder.interpreter.lookup import NATIVE_ATTRIBUTES, call_special, is_a
from thunder.interpreter.policy import MISSING
from thunder.interpreter.version_differences import CLASSMETHOD_BINDS_DESCRIPTORS

if TYPE_CHECKING:
    from thunder.interpreter.machine import Machine

_type_getattribute = type.__getattribute__
_object_getattribute = object.__getattribute__

# Types whose ``__getattribute__`` is an own slot wrapper around PyObject_GenericGetAttr.
_GENERIC: Final = (
    object,
    bool,
    int,
    float,
    complex,
    str,
    bytes,
    bytearray,
    list,
    tuple,
    dict,
    set,
    frozenset,
    slice,
    range,
    memoryview,
    property,
    classmethod,
    staticmethod,
    BaseException,
    collections.deque,
    collections.defaultdict,
    collections.OrderedDict,
    functools.partial,
    re.Pattern,
    re.Match,
    types.FunctionType,
    types.BuiltinFunctionType,
    types.GeneratorType,
    types.CoroutineType,
    types.AsyncGeneratorType,
    types.SimpleNamespace,
    types.CodeType,
    types.CellType,
    threading.local,
    type(re.compile("")),
    map,
    filter,
    zip,
    enumerate,
    reversed,
)
GENERIC_GETTERS: Final = frozenset(_type_getattribute(cls, "__getattribute__") for cls in _GENERIC)
GENERIC_SETTERS: Final = frozenset(
    _type_getattribute(cls, "__setattr__") for cls in (*_GENERIC, types.ModuleType)
)
GENERIC_DELETERS: Final = frozenset(
    _type_getattribute(cls, "__delattr__") for cls in (*_GENERIC, types.ModuleType)
)


def load_attribute(machine: Machine, obj: Any, name: str) -> Any:
    """``obj.name``."""
    cls = type(obj)
    getter = _type_getattribute(cls, "__getattribute__")
    load = _LOADERS.get(getter) if type(getter) is types.WrapperDescriptorType else _load_by_python
    try:
        if load is None:
            value = machine.policy.call_native(getattr, (obj, name), {})
        else:
            value = load(machine, obj, name)
        if value is not MISSING:
            return value
        error = None
    except AttributeError as exc:
        error = exc
    return _load_by_hook(machine, obj, name, error)


def _load_by_hook(machine: Machine, obj: Any, name: str, error: AttributeError | None) -> Any:
    """``__getattr__``, after the regular lookup found nothing."""
    hook = machine.policy.type_attr(type(obj), "__getattr__")
    if hook is not MISSING and not _belongs_to_slot(hook, "__getattr__"):
        return call_special(machine, hook, obj, name)
    if error is None:
        raise no_attribute(obj, name)
    try:
        raise error
    finally:
        del error


def _belongs_to_slot(method: Any, name: str) -> bool:
    """Return whether a special method is implemented in C under its own name.

    ``__getattr__ = dict.__getitem__`` in the body of a class gives it another function in C, which is called
    as a method in Python would be.
    """
    return type(method) in NATIVE_ATTRIBUTES and getattr(method, "__name__", name) == name


def no_attribute(obj: Any, name: str) -> AttributeError:
    """The error of a failed attribute lookup."""
    if is_a(obj, type):
        text = f"type object '{obj.__name__}' has no attribute '{name}'"
    elif is_a(obj, types.ModuleType):
        text = f"module '{obj.__dict__.get('__name__', '?')}' has no attribute '{name}'"
    else:
        text = f"'{type(obj).__name__}' object has no attribute '{name}'"
    return AttributeError(text, name=name, obj=obj)


def _load_by_python(machine: Machine, obj: Any, name: str) -> Any:
    method = machine.policy.type_attr(type(obj), "__getattribute__")
    return call_special(machine, method, obj, name)


def load_instance(machine: Machine, obj: Any, name: str) -> Any:
    """``object.__getattribute__(obj, name)``, or MISSING."""
    if obj is None:  # which means a read from the class to ``__get__``
        return _object_getattribute(None, name)
    policy = machine.policy
    cls = type(obj)
    raw = policy.type_attr(cls, name)
    if raw is MISSING:
        return policy.instance_attr(obj, name)
    if type(raw) is types.FunctionType:
        value = policy.instance_attr(obj, name)
        return _method(machine, raw, obj) if value is MISSING else value
    if is_data_descriptor(raw):
        return bind_attribute(machine, raw, obj, cls, name)
    value = policy.instance_attr(obj, name)
    return bind_attribute(machine, raw, obj, cls, name) if value is MISSING else value


def _load_class(machine: Machine, cls: Any, name: str) -> Any:
    """``type.__getattribute__(cls, name)``, or MISSING."""
    policy = machine.policy
    meta = type(cls)
    of_meta = policy.type_attr(meta, name)
    if of_meta is not MISSING and is_data_descriptor(of_meta):
        return bind_attribute(machine, of_meta, cls, meta, name)
    raw = policy.type_attr(cls, name)
    if raw is not MISSING:
        return bind_attribute(machine, raw, None, cls, name)
    return MISSING if of_meta is MISSING else bind_attribute(machine, of_meta, cls, meta, name)


def _load_module(machine: Machine, module: Any, name: str) -> Any:
    """``module.name``, or MISSING; PEP 562's ``__getattr__`` of the module included."""
    value = load_instance(machine, module, name)
    if value is not MISSING:
        return value
    hook = machine.policy.instance_attr(module, "__getattr__")
    return MISSING if hook is MISSING else machine.policy.call(hook, (name,), {})


def _load_super(machine: Machine, proxy: Any, name: str) -> Any:
    """``super(...).name``, or MISSING."""
    start = _object_getattribute(proxy, "__self_class__")
    if start is not None and name != "__class__":
        after = _object_getattribute(proxy, "__thisclass__")
        raw = machine.policy.super_attr(start, after, name)
        if raw is not MISSING:
            obj = _object_getattribute(proxy, "__self__")
            return bind_attribute(machine, raw, None if obj is start else obj, start, name)
    return _load_super_itself(machine, proxy, name)


def _load_super_itself(machine: Machine, proxy: Any, name: str) -> Any:
    value = load_instance(machine, proxy, name)
    if value is MISSING:
        raise AttributeError(f"'super' object has no attribute '{name}'", name=name, obj=proxy)
    return value


def _load_method_attribute(machine: Machine, method: Any, name: str) -> Any:
    """Attributes of a bound method are its own, then those of its function."""
    seen = machine.policy.class_of(method)
    if seen is not type(method) and machine.policy.type_attr(seen, name) is MISSING:
        return MISSING
    raw = machine.policy.type_attr(type(method), name)
    if raw is not MISSING:
        return bind_attribute(machine, raw, method, type(method), name)
    return machine.policy.load_attr(method.__func__, name)


_LOADERS: Final = {getter: load_instance for getter in GENERIC_GETTERS} | {
    type.__getattribute__: _load_class,
    types.ModuleType.__getattribute__: _load_module,
    super.__getattribute__: _load_super,
    types.MethodType.__getattribute__: _load_method_attribute,
}
GETTERS: Final = {**_LOADERS}
"""What an explicit call of such a ``__getattribute__`` does, by slot wrapper."""


def is_data_descriptor(attribute: Any) -> bool:
    """Return whether ``attribute`` precedes the instance's own dictionary."""
    kind = type(attribute)
    if kind in _DATA_DESCRIPTORS:
        return True
    if kind in _NON_DATA:
        return False
    return any("__set__" in base.__dict__ or "__delete__" in base.__dict__ for base in kind.__mro__)


_DATA_DESCRIPTORS: Final = frozenset({property, types.GetSetDescriptorType, types.MemberDescriptorType})
_NON_DATA: Final = frozenset(
    {
        types.FunctionType,
        classmethod,
        staticmethod,
        types.MethodDescriptorType,
        types.WrapperDescriptorType,
        types.BuiltinFunctionType,
        types.ClassMethodDescriptorType,
        int,
        float,
        str,
        bool,
        tuple,
        list,
        dict,
        type,
        type(None),
    }
)


def _method(machine: Machine, function: Any, obj: Any) -> Any:
    method = types.MethodType(function, obj)
    return method if machine.on_make is None else machine.on_make(method)


def bind_attribute(machine: Machine, attribute: Any, obj: Any, owner: type, name: str = "") -> Any:
    """Return ``attribute.__get__(obj, owner)``; ``obj`` is None for a read from a class."""
    kind = type(attribute)
    if kind is types.FunctionType:
        return attribute if obj is None else _method(machine, attribute, obj)
    if kind is property:
        return attribute if obj is None else _get_property(machine, attribute, obj, name)
    if kind is staticmethod:
        return attribute.__func__
    if kind is classmethod:
        return _get_classmethod(machine, attribute, owner)
    getter = machine.policy.type_attr(kind, "__get__")
    if getter is MISSING:
        return attribute
    if type(getter) in NATIVE_ATTRIBUTES:
        if is_a(attribute, property) and obj is not None:
            return _get_property(machine, attribute, obj, name)
        if kind is types.GetSetDescriptorType and attribute in ANNOTATE_OF and obj is not None:
            return load_annotations(machine, attribute, obj, owner, name)
        return machine.policy.native_get(attribute, obj, owner, name)
    return call_special(machine, getter, attribute, obj, owner)


def _get_property(machine: Machine, attribute: property, obj: Any, name: str) -> Any:
    if attribute.fget is None:
        raise AttributeError(
            f"property {_property_name(attribute, name)} of {type(obj).__qualname__!r} object has no getter"
        )
    return machine.policy.call(attribute.fget, (obj,), {})


def _property_name(attribute: property, name: str) -> str:
    return repr(getattr(attribute, "__name__", name) or name)


def _get_classmethod(machine: Machine, attribute: Any, owner: type) -> Any:
    function = attribute.__func__
    if (
        CLASSMETHOD_BINDS_DESCRIPTORS
        and type(function) is not types.FunctionType
        and machine.policy.type_attr(type(function), "__get__") is not MISSING
    ):
        return bind_attribute(machine, function, owner, type(owner))
    return _method(machine, function, owner)


# -- stores and deletions ------------------------------------------------------------------------------------


def store_attribute(machine: Machine, obj: Any, name: str, value: Any) -> None:
    """``obj.name = value``."""
    setter = _type_getattribute(type(obj), "__setattr__")
    if setter in GENERIC_SETTERS:
        store_instance(machine, obj, name, value)
    elif setter is type.__setattr__:
        store_class(machine, obj, name, value)
    elif _belongs_to_slot(setter, "__setattr__"):
        machine.policy.call_native(setattr, (obj, name, value), {})
    else:
        method = machine.policy.type_attr(type(obj), "__setattr__")
        call_special(machine, method, obj, name, value)


def store_instance(machine: Machine, obj: Any, name: str, value: Any) -> None:
    """``object.__setattr__(obj, name, value)``."""
    raw = machine.policy.type_attr(type(obj), name)
    if raw is not MISSING and is_data_descriptor(raw):
        _set_descriptor(machine, raw, obj, value, name)
    else:
        machine.policy.set_instance_attr(obj, name, value)


def store_class(machine: Machine, cls: Any, name: str, value: Any) -> None:
    """``type.__setattr__(cls, name, value)``."""
    raw = machine.policy.type_attr(type(cls), name)
    if raw is not MISSING and is_data_descriptor(raw):
        _set_descriptor(machine, raw, cls, value, name)
    else:
        machine.policy.set_type_attr(cls, name, value)


def _set_descriptor(machine: Machine, raw: Any, obj: Any, value: Any, name: str) -> None:
    setter = machine.policy.type_attr(type(raw), "__set__")
    if setter is MISSING:
        raise AttributeError("__set__")
    if type(setter) not in NATIVE_ATTRIBUTES:
        call_special(machine, setter, raw, obj, value)
    elif is_a(raw, property):
        if raw.fset is None:
            raise AttributeError(
                f"property {_property_name(raw, name)} of {type(obj).__qualname__!r} object has no setter"
            )
        machine.policy.call(raw.fset, (obj, value), {})
    else:
        machine.policy.native_set(raw, obj, value, name)


def delete_attribute(machine: Machine, obj: Any, name: str) -> None:
    """``del obj.name``."""
    deleter = _type_getattribute(type(obj), "__delattr__")
    if deleter in GENERIC_DELETERS:
        delete_instance(machine, obj, name)
    elif deleter is type.__delattr__:
        delete_class(machine, obj, name)
    elif _belongs_to_slot(deleter, "__delattr__"):
        machine.policy.call_native(delattr, (obj, name), {})
    else:
        call_special(machine, machine.policy.type_attr(type(obj), "__delattr__"), obj, name)


def delete_instance(machine: Machine, obj: Any, name: str) -> None:
    """``object.__delattr__(obj, name)``."""
    raw = machine.policy.type_attr(type(obj), name)
    if raw is not MISSING and is_data_descriptor(raw):
        _delete_descriptor(machine, raw, obj, name)
    else:
        machine.policy.delete_instance_attr(obj, name)


def delete_class(machine: Machine, cls: Any, name: str) -> None:
    """``type.__delattr__(cls, name)``."""
    raw = machine.policy.type_attr(type(cls), name)
    if raw is not MISSING and is_data_descriptor(raw):
        _delete_descriptor(machine, raw, cls, name)
    else:
        machine.policy.delete_type_attr(cls, name)


def _delete_descriptor(machine: Machine, raw: Any, obj: Any, name: str) -> None:
    deleter = machine.policy.type_attr(type(raw), "__delete__")
    if deleter is MISSING:
        raise AttributeError("__delete__")
    if type(deleter) not in NATIVE_ATTRIBUTES:
        call_special(machine, deleter, raw, obj)
    elif is_a(raw, property):
        if raw.fdel is None:
            raise AttributeError(
                f"property {_property_name(raw, name)} of {type(obj).__qualname__!r} object has no deleter"
            )
        machine.policy.call(raw.fdel, (obj,), {})
    else:
        machine.policy.native_delete(raw, obj, name)
