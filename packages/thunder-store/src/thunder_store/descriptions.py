"""Descriptions of live objects, by which one of another process is found to be the same.

An object that a guard compares by identity is another object in another process. It is taken for the same if
a name leads to it, or the path where the guard looks, and if its description is equal: a function's has its
code, a class's what it defines. What a program reads of an object beyond that has guards of its own.
"""

from __future__ import annotations

import collections
import enum
import functools
import re
import sys
import types
import typing
from collections.abc import Iterator
from typing import Any, Final

import torch

from thunder.core.entries import (
    CACHED,
    CONTAINERS,
    is_guarded_whole,
    is_immutable,
    is_library_class,
    is_python_class,
    own_name,
)
from thunder_store.digests import class_digest, code_digest, value_text
from thunder_store.reasons import NotKept

__all__ = ["PARTS", "codes_of", "description", "name_of", "named", "parts_of"]

_NATIVE: tuple[type, ...] = (
    types.BuiltinFunctionType,
    types.MethodDescriptorType,
    types.WrapperDescriptorType,
    types.ClassMethodDescriptorType,
    types.GetSetDescriptorType,
    types.MemberDescriptorType,
)

_TUPLE_GETTER = type(collections.namedtuple("_Probe", "field").field)  # type: ignore[attr-defined]
#: types of Python that are not where they say
_OF_TYPES = {v: ("types", name) for name, v in vars(types).items() if isinstance(v, type)}


def description(x: Any) -> str:
    """Return the description of an object; raise NotKept for one that has none."""
    kind = type(x)
    if isinstance(x, type):
        return _of_class(x)
    if kind is types.FunctionType:
        return _of_function(x)
    if kind is types.CodeType:
        return f"code {code_digest(x)}"
    if kind is types.ModuleType or (isinstance(x, types.ModuleType) and sys.modules.get(x.__name__) is x):
        return f"module {x.__name__}"
    if isinstance(x, _NATIVE):
        name = getattr(x, "__name__", ""), getattr(x, "__qualname__", "")
        return f"{kind.__name__} {_owner_of(x)} {' '.join(name)}"
    if kind is types.MethodWrapperType:
        return f"method wrapper {x.__name__} of {description(x.__self__)}"
    if kind is tuple:
        return f"tuple [{', '.join(map(_part, x))}]"
    if isinstance(x, staticmethod | classmethod | property):
        return value_text(x)
    if isinstance(x, functools.cached_property):
        return f"cached_property {x.attrname} {value_text(x.func)}"
    if isinstance(x, enum.Enum):
        return f"member {_of_class(kind)} {x.name}"
    if isinstance(x, torch._ops.OpOverload | torch._ops.OpOverloadPacket):
        return _of_operator(x)
    if kind is re.Pattern:
        return f"pattern {x.pattern!r} {x.flags}"
    if kind in (types.GenericAlias, types.UnionType) or isinstance(x, typing.TypeVar):
        return f"{kind.__name__} {x!r}"
    if kind is CACHED:
        return f"cached {x.cache_parameters()} {description(x.__wrapped__)}"
    if kind in CONTAINERS:  # what is read of it has guards
        return f"container {kind.__module__}:{kind.__qualname__}"
    if kind is torch.Generator:
        return f"generator {x.device}"
    if kind is _TUPLE_GETTER:
        return f"field {x.__reduce__()[1][0]} of a tuple"
    if isinstance(x, torch.nn.Module) or _is_plain_instance(kind):
        return f"instance of {_of_class(kind)}"
    raise NotKept("content", f"an object of type {kind.__module__}.{kind.__qualname__}")


def _of_class(cls: type) -> str:
    name = f"class {cls.__module__}:{cls.__qualname__}"
    if is_immutable(cls):
        if named(*name_of(cls)) is not cls:
            raise NotKept("content", f"{name} of C, which no name leads to")
        return name
    if is_library_class(cls):  # versions and files say what it defines; what is read of it has guards
        return name
    return f"{name} {class_digest(cls)}"


def _of_function(fn: types.FunctionType) -> str:
    text = f"function {fn.__module__}:{fn.__qualname__} {code_digest(fn.__code__)}"
    text += f" of {fn.__globals__.get('__name__')}"
    if is_guarded_whole(fn.__globals__):  # without guards on its defaults
        text += f" {value_text(fn.__defaults__)}"
        text += f" {sorted((k, value_text(v)) for k, v in (fn.__kwdefaults__ or {}).items())}"
    return text


def _part(x: Any) -> str:
    text = value_text(x)
    if not text.startswith(("object of", "class ", "function ", "tuple [")):
        return text
    return description(x)


def _owner_of(x: Any) -> str:
    owner = getattr(x, "__objclass__", None)
    if owner is None:
        owner = getattr(x, "__self__", None)
    if owner is None:
        return str(getattr(x, "__module__", None))
    if isinstance(owner, types.ModuleType):
        return f"module {owner.__name__}"
    if isinstance(owner, type):
        return f"class {owner.__module__}:{owner.__qualname__}"
    return f"object of {type(owner).__module__}:{type(owner).__qualname__}"


def _of_operator(x: Any) -> str:
    text = str(x)
    if text.partition(".")[0] not in ("aten", "prim", "prims"):
        raise NotKept("content", f"the operator {text} of torch.library")
    return f"operator {text}"


def _is_plain_instance(kind: type) -> bool:
    """Return whether all state of instances is in attributes that programs read by name."""
    return all(is_python_class(cls) or cls is object for cls in kind.__mro__)


# -- names ---------------------------------------------------------------------------------------------------


def name_of(x: Any) -> tuple[str, str]:
    """Return the module and the qualified name that an object says of itself; empty texts without one."""
    if isinstance(x, types.ModuleType):
        return x.__name__, ""
    if isinstance(x, type) and x in _OF_TYPES:
        return _OF_TYPES[x]
    if isinstance(x, enum.Enum):
        return type(x).__module__, f"{type(x).__qualname__}.{x._name_}"
    module, name = own_name(x, "__module__"), own_name(x, "__qualname__")
    return (module, name) if module and name else ("", "")


def named(module: str, name: str) -> Any:
    """Return the object of a loaded module under a qualified name, or None; no code of the user's runs."""
    value: Any = sys.modules.get(module)
    if value is None or not isinstance(value, types.ModuleType):
        return None
    for part in name.split(".") if name else ():
        if isinstance(value, enum.EnumMeta) and part in value._member_map_:
            value = value._member_map_[part]
        elif isinstance(value, types.ModuleType | type):
            value = value.__dict__.get(part)
        else:
            return None
        if isinstance(value, staticmethod | classmethod):
            value = value.__func__
    return value


#: the attributes of objects that hold functions
PARTS: Final = ("fget", "fset", "fdel", "func", "__func__", "__wrapped__")


def parts_of(x: Any) -> Iterator[tuple[str, Any]]:
    """Yield the functions that a property, a method of a class, or a decorated function holds."""
    if isinstance(x, property | staticmethod | classmethod | functools.cached_property | types.FunctionType):
        for name in PARTS:
            part = getattr(x, name, None)
            if isinstance(part, types.FunctionType):
                yield name, part


def codes_of(x: Any) -> Iterator[types.CodeType]:
    """Yield the code that the description of an object has the digest of."""
    if isinstance(x, types.CodeType):
        yield x
    elif isinstance(x, types.FunctionType):
        yield x.__code__
    elif isinstance(x, staticmethod | classmethod):
        yield from codes_of(x.__func__)
    elif isinstance(x, property):
        yield from (c for f in (x.fget, x.fset, x.fdel) for c in codes_of(f))
    elif isinstance(x, functools.cached_property):
        yield from codes_of(x.func)
    elif type(x) is CACHED:
        yield from codes_of(x.__wrapped__)
    elif isinstance(x, type) and not is_immutable(x):
        for value in vars(x).values():
            if not isinstance(value, type):
                yield from codes_of(value)
