"""Checks of the arguments of native code: it must not read or call user code unseen."""

from __future__ import annotations

import collections
import operator
import types
import weakref
from collections.abc import Iterable
from decimal import Decimal
from typing import Any

import torch

from thunder.base.errors import UnsupportedProgram
from thunder.base.provenance import content_of
from thunder.frontend.arrays.array_memory import is_array
from thunder.frontend.natives.descriptors import descriptor_of
from thunder.frontend.natives.key_protocols import settle, settle_pairs
from thunder.frontend.natives.libraries import is_numpy_function, is_numpy_scalar
from thunder.frontend.natives.native_tables import (
    compares_leaves,
    compares_values,
    is_value_preserving,
    looks_up_keys,
    searches,
)
from thunder.frontend.natives.unread_items import readable_keys
from thunder.frontend.objects.class_kinds import (
    IDENTITY_TYPES,
    LEAVES,
    OfTheTrace,
    extended_container,
    has_python_key,
    plain_base,
)
from thunder.frontend.objects.object_table import describe
from thunder.frontend.session import TracingSession
from thunder.interpreter.lookup import READING_METHODS, StandIn
from thunder.interpreter.operator_tables import BINARY_OPERATORS, COMPARISON_OPERATORS
from thunder.ir.proxies import Proxy, TensorProxy
from thunder.ir.symbolic_sizes import SizeTuple


def note_keys(session: TracingSession, keys: Iterable[Any]) -> None:
    """Note that native code observed the identity of keys, if one is an object of the user's."""
    session.objects.identity_observed |= any(id(key) in session.objects.entries for key in keys)
    if session.objects.unread:
        readable_keys(session, keys)


#: values that no call changes
_UNCHANGED = LEAVES | {TensorProxy, SizeTuple, type, type(torch.Tensor), types.FunctionType}
#: natives that change nothing of what they take, advance nothing, and do not look up by identity
_ONLY_READING = frozenset(
    {id(fn) for fn in (bool, callable, len, operator.getitem, operator.contains)}
    | {
        id(vars(dict)[name])
        for name in ("get", "keys", "values", "items", "__getitem__", "__contains__", "copy")
    }
)
_READ = frozenset({dict, list, set, collections.OrderedDict, types.MappingProxyType})
_EMPTY: dict[Any, Any] = {}
#: what natives iterate over from its beginning
_ITERATED = (
    _READ | {type(view) for view in (_EMPTY.keys(), _EMPTY.values(), _EMPTY.items())} | {collections.deque}
)


def count_effects(session: TracingSession, fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Count a call of native code that may change what it gets, advance it, or look for an object in it."""
    if fn is isinstance or fn is issubclass or fn is super:
        return
    owner = getattr(fn, "__self__", None) if isinstance(fn, _BOUND) else None
    values = (*args, *kwargs.values())
    if owner is not None and not _is_module(owner):
        values = (owner, *values)
    if _UNCHANGED.issuperset(map(type, values)):
        return
    others = [v for v in values if not _is_unchanged(v)]
    types_of_others = set(map(type, others))
    if fn is iter:
        only_reads = types_of_others <= _ITERATED
    else:
        only_reads = id(descriptor_of(fn)) in _ONLY_READING and types_of_others <= _READ
    if others and not only_reads:
        objects = session.objects
        objects.own_effects += 1
        objects.effects += any(id(v) in objects.entries for v in others)


def _is_module(owner: Any) -> bool:
    return type(owner) is types.ModuleType or type(owner).__module__ == "pybind11_builtins"


def _is_unchanged(value: Any) -> bool:
    if type(value) is tuple or type(value) is frozenset:
        return all(map(_is_unchanged, value))
    return type(value) in _UNCHANGED or isinstance(value, Proxy)


_BOUND = (types.BuiltinFunctionType, types.MethodWrapperType)
#: methods that C code calls on the objects it works with
_PROTOCOLS = (
    *READING_METHODS,
    *(name for row in COMPARISON_OPERATORS.values() for name in (row.method, row.swapped)),
    *(name for row in BINARY_OPERATORS.values() for name in (row.method, row.reflected, row.inplace) if name),
    *("__hash__", "__neg__", "__abs__", "__round__", "__divmod__", "__array__", "__array_ufunc__"),
)
#: those that a new dict calls on a mapping, whose items it copies
_OF_ITEMS = tuple(name for name in _PROTOCOLS if name != "__missing__")


def read_values(descriptor: Any, values: list[Any]) -> list[Any]:
    """Return the values that native code reads by their special methods.

    Code that stores or passes on its arguments reads none, unless an operator or an index is one of NumPy or
    torch, which makes arrays of objects and looks into sequences.
    """
    if (
        isinstance(descriptor, types.FunctionType)
        or (isinstance(descriptor, types.WrapperDescriptorType) and descriptor.__objclass__ in _DECLINING)
        or id(descriptor) in _MAKING_DECIMALS
    ):  # functions of thunder, numbers and None decline objects unread
        return []
    if not is_value_preserving(descriptor):
        return values
    if id(descriptor) in _INDEXING:
        owners = values[:1]
        return values[1:] if any(isinstance(o, TensorProxy) or _is_of_numpy(o) for o in owners) else []
    return values if id(descriptor) in _ARITHMETIC and any(map(_is_of_numpy, values)) else []


_DECLINING = frozenset({int, float, complex, bool, type(None)})
_MAKING_DECIMALS = frozenset(map(id, (Decimal, vars(Decimal)["__new__"])))
_INDEXING = frozenset(map(id, (operator.getitem, operator.setitem, operator.delitem)))
_ARITHMETIC = frozenset(map(id, (operator.add, operator.iadd, operator.mul, operator.concat)))


def _is_of_numpy(x: Any) -> bool:
    return is_array(x) or is_numpy_scalar(x)


def check_protocols(session: TracingSession, fn: Any, descriptor: Any, values: list[Any]) -> None:
    """Refuse native code that would call, unseen, methods written in Python.

    These are methods of its arguments and of their elements: elements at any depth where native code
    compares, because equal containers have equal elements.
    """
    if compares_leaves(descriptor):
        return
    is_comparison = compares_values(descriptor)
    if values and _is_owner(values[0], descriptor):
        own = values[0]
        values = [tuple(tuple.__iter__(own)) if isinstance(own, tuple) else content_of(own), *values[1:]]
    searched = values[0] if values and searches(descriptor) else None
    is_of_items = isinstance(descriptor, type) and issubclass(descriptor, dict)
    methods = _OF_ITEMS if is_of_items else _PROTOCOLS
    seen: set[int] = set()
    compared: list[Any] = []  # objects whose __eq__ is interpreted before
    everything: list[Any] = []
    pending = [(value, 0) for value in values]
    while pending:
        value, depth = pending.pop()
        cls = type(value)
        everything.append(value)
        if cls in LEAVES or cls is TensorProxy:
            continue
        if cls not in _COLLECTIONS and isinstance(value, _NOT_READ):
            continue
        if cls.__module__ == "typing":  # a form such as Union[int, str], whose methods read its arguments
            continue
        if cls in _COLLECTIONS:
            if (is_comparison or depth < 2) and id(value) not in seen:
                seen.add(id(value))
                with_values = is_comparison and value is not searched
                pending += ((element, depth + 1) for element in _elements(value, with_values))
        elif type(searched) in _KEYED_COLLECTIONS and not has_python_key(value):
            session.objects.identity_observed |= id(value) in session.objects.entries
        elif (is_comparison or is_value_preserving(descriptor)) and _is_only_compared(
            value, descriptor, searched
        ):
            compared.append(value)
        elif any(isinstance(getattr(cls, name, None), types.FunctionType) for name in methods):
            raise UnsupportedProgram(
                f"{getattr(fn, '__qualname__', fn)} is implemented in C and would call methods of the class "
                f"{cls.__qualname__}, which thunder does not see",
                hint="Write the loop or comparison in Python, or mark the function around it by "
                "thunder.opaque.",
            )
        elif is_comparison and id(value) in session.objects.entries:
            session.objects.identity_observed = True
    if compared and isinstance(searched, dict | set | frozenset):
        settle(session, everything, searched)
    elif compared:
        settle_pairs(session, everything)


def _is_owner(value: Any, descriptor: Any) -> bool:
    """Return whether native code is a method of the builtin that the class of a value extends.

    It works on the items, and calls no method of the class.
    """
    extends_tuple = isinstance(value, tuple) and type(value) is not tuple
    base = tuple if extends_tuple else extended_container(type(value))
    if base is None or descriptor is operator.contains:
        return base is not None
    is_method = isinstance(descriptor, types.MethodDescriptorType | types.WrapperDescriptorType)
    if base is collections.deque and is_method and descriptor.__name__ in _COMPARING:
        return False
    return is_method and descriptor.__name__ not in _CALLING and descriptor.__objclass__ in base.__mro__


#: methods of containers that call methods of the class: they create an object of it, or iterate over a deque
_CALLING = frozenset(
    {"copy", "__copy__", "__reduce__", "__reduce_ex__", "__repr__"}
    | {f"__{name}__" for name in ("or", "ror", "add", "mul", "rmul")}
)
_COMPARING = frozenset(f"__{name}__" for name in ("eq", "ne", "lt", "le", "gt", "ge"))
_COPYING = frozenset({operator.or_, operator.add, operator.mul})


def refuse_unseen_copy(fn: Any, values: Iterable[Any]) -> None:
    """Refuse an operator by which native code would create an object of a Python class, by its methods."""
    if type(fn) is not types.BuiltinFunctionType or fn not in _COPYING:
        return
    for cls in map(type, values):
        if extended_container(cls) not in (
            collections.OrderedDict,
            collections.defaultdict,
            collections.deque,
        ):
            continue
        if any(isinstance(getattr(cls, name), types.FunctionType) for name in ("__new__", "__init__")):
            raise UnsupportedProgram(
                f"operator.{fn.__name__} is implemented in C and would create an object of the class "
                f"{cls.__qualname__} by its __init__, which thunder does not see",
                hint="Create the object in Python, and update it.",
            )


def _is_only_compared(value: Any, descriptor: Any, searched: Any) -> bool:
    """Return whether the only methods in Python that C code may call of an object are of equality."""
    cls = type(value)
    if descriptor is operator.eq or descriptor is operator.ne:
        return True
    if type(searched) in _KEYED_COLLECTIONS and has_python_key(value):
        return True
    others = (name for name in _PROTOCOLS if name not in _OF_EQUALITY)
    if any(isinstance(getattr(cls, name, None), types.FunctionType) for name in others):
        return False
    return has_python_key(value)


_OF_EQUALITY = frozenset({"__eq__", "__ne__", "__hash__"})


def _elements(container: Any, with_values: bool) -> list[Any]:
    elements = list(container)
    return (
        elements + list(dict.values(container)) if with_values and isinstance(container, dict) else elements
    )


#: values of which native code calls no method that a program has written, or that thunder follows
_NOT_READ = (TensorProxy, Proxy, StandIn, OfTheTrace, SizeTuple, *IDENTITY_TYPES)
#: values of the program that have no state, or of which the parts are values of their own
_WITHOUT_STATE = (TensorProxy, tuple, frozenset, *IDENTITY_TYPES)
_KEYED_COLLECTIONS = frozenset({dict, set, frozenset, collections.OrderedDict, collections.Counter})
_COLLECTIONS = _KEYED_COLLECTIONS | {list, tuple, collections.deque}


def check_arguments(session: TracingSession, fn: Any, descriptor: Any, args: Iterable[Any]) -> None:
    """Refuse native code that would look into a tracked object.

    Where it can only observe which object an argument is, the identity is guarded instead.
    """
    entries = session.objects.entries
    args = tuple(args)
    refuse_unseen_copy(fn, args)
    is_lookup = descriptor is operator.contains and type(args[0]) in _KEYED_COLLECTIONS
    for a in () if compares_leaves(descriptor) else args:
        if isinstance(a, weakref.ref) and (is_lookup or looks_up_keys(descriptor)):
            session.guard_identity(weakref.ref.__call__(a))  # by which it is compared
        entry = entries.get(id(a))
        if (
            entry is None
            or entry.value is not entry.obj
            or isinstance(a, _WITHOUT_STATE)
            or plain_base(type(a)) in LEAVES
            or is_numpy_scalar(a)
            or is_array(a)  # it has been read
            or is_numpy_function(a)
        ):
            continue
        if is_lookup or is_value_preserving(descriptor):
            session.objects.identity_observed |= is_lookup or looks_up_keys(descriptor)
            continue
        protocol: tuple[Any, Any] = type(a).__eq__, type(a).__hash__
        if protocol == (object.__eq__, object.__hash__):
            session.guard_identity(a)
            session.objects.identity_observed = True
            continue
        raise UnsupportedProgram(
            f"{entry.path.source} is passed to {getattr(fn, '__qualname__', fn)}, which is implemented in C, "
            "so that thunder does not see what it reads",
            found={entry.path.source: describe(a)},
            hint="Mark the function around the call by thunder.opaque.",
        )
