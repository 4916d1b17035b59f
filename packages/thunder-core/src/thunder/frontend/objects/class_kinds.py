"""Kinds of objects by their class: guarded by value, by identity, or by content."""

from __future__ import annotations

import abc
import dataclasses
import datetime
import enum
import functools
import random
import re
import threading
import types
import typing
import weakref
from collections import Counter, OrderedDict, defaultdict, deque
from contextvars import ContextVar
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import torch

from thunder.base.provenance import lookup_type
from thunder.frontend.natives.libraries import is_library_class
from thunder.ir.proxies import Proxy
from thunder.ir.symbolic_sizes import SizeTuple, SymbolicFloat, SymbolicInt
from thunder.wrappers.compiled_function import CompiledFunction

#: dates and times, whose time zones are of a fixed offset, or of the time zone database
DATES = (datetime.date, datetime.datetime, datetime.time, datetime.timedelta, datetime.timezone)
#: immutable values without identity worth keeping: read once, guarded by type and value
LEAVES: frozenset[type] = frozenset(
    {int, float, complex, bool, str, bytes, type(None), type(...), type(NotImplemented), slice, range}
    | {torch.dtype, torch.device, torch.layout, torch.memory_format, torch.qscheme, torch.Size}
    | {torch.iinfo, torch.finfo}
    | {torch._C._SDPBackend, *DATES, Decimal, ZoneInfo}
)
#: containers of which the program has a copy
CONTAINERS: frozenset[type] = frozenset({dict, OrderedDict, defaultdict, Counter, list, deque, set})
#: parts of a program's text: of these it depends only on which they are, and on what is read of them
CODE_TYPES: tuple[type, ...] = (
    type,
    types.FunctionType,
    types.BuiltinFunctionType,
    types.MethodDescriptorType,
    types.WrapperDescriptorType,
    types.MethodWrapperType,
    types.ClassMethodDescriptorType,
    types.GetSetDescriptorType,
    types.MemberDescriptorType,
    types.ModuleType,
    types.CodeType,
    types.GenericAlias,
    types.UnionType,
    typing.TypeVar,
    typing.ParamSpec,
    typing.TypeVarTuple,
    property,
    staticmethod,
    classmethod,
    enum.Enum,
    torch._ops.OpOverload,
    torch._ops.OpOverloadPacket,
    torch.torch_version.TorchVersion,
    re.Pattern,
    CompiledFunction,
    functools.cached_property,
    functools.partialmethod,
    functools.singledispatchmethod,
    torch.jit.ScriptFunction,
    type(abc.ABC.__dict__["_abc_impl"]),
)
#: objects of which the program depends on *which* they are: guarded by identity
IDENTITY_TYPES: tuple[type, ...] = (
    *CODE_TYPES,
    torch.nn.Module,
    random.Random,
    type(functools.lru_cache(len)),
    ContextVar,
)
#: locks, of which only the program's own calls matter
LOCKS: frozenset[type] = frozenset({type(threading.Lock()), type(threading.RLock())})
#: objects that have state which Python code cannot read in full, or that reading consumes
OPAQUE: tuple[type, ...] = (
    types.GeneratorType,
    types.CoroutineType,
    types.AsyncGeneratorType,
    types.FrameType,
)


class OfTheTrace:
    """The base class of objects that a program has only while it is traced: none leaves it."""

    __slots__ = ()

    def description(self) -> str:
        """Return the object in words."""
        raise NotImplementedError


def is_plain(value: Any) -> bool:
    """Return whether a value is a leaf; a slice is one if its bounds are."""
    cls = type(value)
    return cls in LEAVES and (
        cls is not slice or all(type(bound) in LEAVES for bound in (value.start, value.stop, value.step))
    )


def plain_base(cls: type) -> type:
    """Return the builtin that ``cls`` derives from without adding anything, or ``object``."""
    base = _plain_bases.get(cls)
    if base is None:
        base = _plain_bases[cls] = _find_plain_base(cls)
    return base


def extended_container(cls: type) -> type | None:
    """Return the builtin container that a Python class extends by methods or attributes, or None."""
    found = _extended_containers.get(cls, cls)
    if found is cls:  # not asked before
        found = _extended_containers[cls] = _find_extended_container(cls)
    return found


_extended_containers: weakref.WeakKeyDictionary[type, type | None] = weakref.WeakKeyDictionary()


def _find_extended_container(cls: type) -> type | None:
    base = next((b for b in cls.__mro__ if b in _EXTENDED), None)
    if base is None or cls is base:
        return None
    is_open = all(b is base or b in base.__mro__ or is_python_class(b) for b in cls.__mro__)
    return base if is_open else None


def is_container(cls: type) -> bool:
    """Return whether objects of a class are shadowed: a builtin container's, or an extended one's."""
    return cls in CONTAINERS or extended_container(cls) is not None


_EXTENDED: frozenset[type] = frozenset({dict, OrderedDict, defaultdict, list, deque, set})
#: what Python's operators, on which guards and statements rely, call of a container
_OF_CONTENT = ("__getitem__", "__missing__", "__iter__", "__len__", "__contains__", "__eq__")


def is_read_plainly(cls: type) -> bool:
    """Return whether the items of a container that a class extends are read as those of the builtin."""
    base: Any = extended_container(cls)
    return all(lookup_type(cls, name) is lookup_type(base, name) for name in _OF_CONTENT)


_plain_bases: weakref.WeakKeyDictionary[type, type] = weakref.WeakKeyDictionary()


def _find_plain_base(cls: type) -> type:
    for base in cls.__mro__:
        if base in LEAVES or base in CONTAINERS:
            return base
        if not is_python_class(base) or set(base.__dict__) - _HARMLESS:
            return object
    return object


#: what a class statement and ``typing.Generic`` put into a class by themselves, and what copyreg caches there
_HARMLESS = frozenset(
    {
        "__slotnames__",
        "__module__",
        "__doc__",
        "__dict__",
        "__weakref__",
        "__static_attributes__",
        "__firstlineno__",
        "__orig_bases__",
        "__parameters__",
    }
)


def is_foreign(t: type, past: type = object) -> bool:
    """Return whether instances of a class may have state outside their dict and slots.

    A class implemented in C may, and a class derived from one other than ``past``.
    """
    return not all(base in _OPEN_BASES or base is past or is_python_class(base) for base in t.__mro__)


def is_python_class(cls: type) -> bool:
    """Return whether a class was created by a class statement.

    C code can create heap types too, but with native methods that are not those of a base (``__hash__ =
    object.__hash__``).
    """
    is_python = _python_classes.get(cls)
    if is_python is None:
        is_python = _python_classes[cls] = _has_no_native_methods(cls)
    return is_python


_python_classes: weakref.WeakKeyDictionary[type, bool] = weakref.WeakKeyDictionary()


def _has_no_native_methods(cls: type) -> bool:
    native = (types.MethodDescriptorType, types.WrapperDescriptorType, types.BuiltinFunctionType)
    return bool(cls.__flags__ & _HEAPTYPE) and not any(
        (isinstance(v, native) and getattr(v, "__objclass__", cls) not in cls.__mro__[1:])
        or type(v).__name__ == "instancemethod"
        for v in cls.__dict__.values()
    )


_OPEN_BASES = frozenset({object, types.SimpleNamespace, threading.local})
_HEAPTYPE = 1 << 9  # Py_TPFLAGS_HEAPTYPE: made by a class statement (or by C code that imitates one)


def is_compared_by_parts(cls: type) -> bool:
    """Return whether objects of a class are compared by their parts: frozenset, named tuples."""
    equality: Any = cls.__eq__
    return cls is frozenset or (issubclass(cls, tuple) and equality is tuple.__eq__)


def has_python_key(value: Any) -> bool:
    """Return whether hashing or comparing a value calls Python code of a class, of itself or of its parts."""
    cls = type(value)
    if cls in LEAVES or isinstance(value, IDENTITY_TYPES):
        return False
    if isinstance(value, tuple | frozenset) and is_compared_by_parts(cls):
        return any(map(has_python_key, value))
    own = _python_keys.get(cls)
    if own is None:
        methods = (cls.__hash__, cls.__eq__)
        own = any(isinstance(m, types.FunctionType) for m in methods) and not _is_library_value(cls)
        _python_keys[cls] = own
    return own


_python_keys: weakref.WeakKeyDictionary[type, bool] = weakref.WeakKeyDictionary()


def _is_library_value(cls: type) -> bool:
    """Return whether a class is one of typing's forms, or of the trace, whose methods read nothing else."""
    is_of_trace = issubclass(cls, torch.Tensor | Proxy | OfTheTrace)
    return is_of_trace or (cls.__module__ == "typing" and is_library_class(cls))


def is_compared_natively(cls: type) -> bool:
    """Return whether comparing keys of this class runs no code of the user.

    Such an object equals itself alone, or others of its class by fields that cannot change.
    """
    if is_foreign(cls):
        return False
    equality: Any = cls.__eq__
    hashing: Any = cls.__hash__
    if equality is object.__eq__ and hashing is object.__hash__:
        return True
    written = getattr(equality, "__code__", None)  # by dataclasses, into a text of their own
    is_frozen = dataclasses.is_dataclass(cls) and cls.__dataclass_params__.frozen  # type: ignore[attr-defined]
    return is_frozen and written is not None and written.co_filename == "<string>"


def is_immutable(cls: type) -> bool:
    """Return whether the attributes of a class and its bases are fixed: it is written in C."""
    return bool(cls.__flags__ & _IMMUTABLETYPE) or cls in _OF_SIZES


#: the classes of symbolic sizes, which a program sees as int, float and torch.Size
_OF_SIZES = frozenset({*SymbolicInt.__mro__, *SymbolicFloat.__mro__, SizeTuple})
_IMMUTABLETYPE = 1 << 8  # Py_TPFLAGS_IMMUTABLETYPE
