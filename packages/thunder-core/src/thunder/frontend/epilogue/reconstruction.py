"""Reconstruction: an expression for each kind of value that a program creates.

    out = Out(); out.y = y; return [out, out]   →   c1 = make_instance(Out, {'y': y})
                                                    return [c1, c1]

An object is made without its ``__init__``, which ran while the program was traced: what it did is in the
attributes. So the class has to keep all that an instance has in its ``__dict__``, its slots, or its items.
"""

from __future__ import annotations

import array
import copy
import functools
import itertools
import random
import threading
import types
import weakref
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import torch

from thunder.base.provenance import content_of, proxied
from thunder.frontend.arrays.array_memory import copied, is_plain_array
from thunder.frontend.arrays.traced_arrays import Arrays
from thunder.frontend.custom_gradients.leaf_hooks import HookHandle, register_again
from thunder.frontend.custom_gradients.leaf_nodes import LeafNode, emit_node
from thunder.frontend.epilogue import iterators
from thunder.frontend.host_draws.created_generators import maker_of_unseeded, refuse_shared_bits
from thunder.frontend.host_draws.host_generators import is_host_generator
from thunder.frontend.lookasides.weakrefs import Finalizer, emit_finalizer
from thunder.frontend.objects.class_kinds import (
    CONTAINERS,
    IDENTITY_TYPES,
    LEAVES,
    LOCKS,
    OfTheTrace,
    extended_container,
    is_container,
    is_foreign,
)
from thunder.frontend.objects.shadow_copies import put_items, text_of_bytes, without_unread
from thunder.interpreter.version_differences import templatelib
from thunder.ir.proxies import NumberProxy, TensorProxy
from thunder.ir.symbolic_sizes import SizeTuple
from thunder.polyfills.native_classes import NATIVE_CLASSES

if TYPE_CHECKING:
    from thunder.frontend.epilogue.epilogue_builder import EpilogueBuilder

Reconstruction = Callable[["EpilogueBuilder", Any], str]

#: types of objects that are compared by identity, and that programs create
_CREATED: Final = (torch.nn.Module, types.FunctionType, random.Random)
#: the types of a dict's views → the methods that return them
VIEWS: Final = {
    type(getattr(cls(), name)()): name for cls in (dict, OrderedDict) for name in ("keys", "values", "items")
}


def reconstruction_of(value: Any) -> Reconstruction | None:
    """Return how ``value`` is built; None for leaves, tensors, functions and the unsupported."""
    cls = type(value)
    if (cls in LEAVES and cls is not slice) or isinstance(value, (TensorProxy, NumberProxy)):
        return None
    if is_method_of_container(value):
        return lambda b, value: f"{b.expression(value.__self__)}.{value.__name__}"
    if (isinstance(value, IDENTITY_TYPES) and not isinstance(value, _CREATED)) or cls in NATIVE_CLASSES:
        return None
    return _CONSTRUCTORS.get(cls) or _reconstruction_by_structure(value)


def is_method_of_container(value: Any) -> bool:
    """Return whether a value is such as ``items.append``, whose owner may be a shadow copy."""
    return type(value) is types.BuiltinMethodType and type(value.__self__) in CONTAINERS


def _reconstruction_by_structure(value: Any) -> Reconstruction | None:
    cls = type(value)
    if is_plain_array(value):
        return _array
    if is_host_generator(value):
        return _generator
    if iterators.is_built(value):
        return iterators.iterator
    if isinstance(value, tuple) and hasattr(cls, "_fields"):
        return _namedtuple
    if isinstance(value, tuple) and cls.__module__ == "torch.return_types":
        return _structseq
    if _extended_immutable(cls) is not None:
        return _immutable
    if extended_container(cls) is not None:
        return _extended_container
    if isinstance(getattr(cls, "__del__", None), types.FunctionType):
        return None
    return None if is_foreign(cls) or issubclass(cls, threading.local | OfTheTrace) else _object


def is_plain_object(value: Any) -> bool:
    """Return whether a value is built as an instance of a Python class, of its attributes."""
    return reconstruction_of(value) is _object


def children(value: Any) -> Iterable[Any]:
    """Return the parts that a value is built of."""
    if is_method_of_container(value):
        return [value.__self__, value.__self__]  # twice: it is a variable of the epilogue
    if isinstance(value, tuple | frozenset):
        return [*value, *getattr(value, "__dict__", {}).values()]
    if is_container(type(value)):
        content, state = content_of(value), _state_beside_items(value) or {}
        keys = (key for key in content if isinstance(content, dict) and type(key) is not str)
        items = content.values() if isinstance(content, dict) else without_unread(content)
        return [*keys, *items, *state.values()]
    if isinstance(value, weakref.ref):
        return [weakref.ref.__call__(value), *_callback_of(value)]
    if iterators.is_built(value):
        return iterators.parts_of(value)
    if type(value) in VIEWS:
        return [viewed(value)]
    if isinstance(value, functools.partial):
        return [value.func, *value.args, *value.keywords.values()]
    if type(value) in _TEMPLATES:
        return value if hasattr(value, "interpolations") else [value.value]
    if isinstance(value, types.MethodType):
        return [value.__func__, value.__self__]
    if is_host_generator(value):
        return ()
    if isinstance(value, (bytearray, array.array, types.FunctionType, itertools.count, *LOCKS)):
        return ()
    return () if isinstance(value, slice) else state_of(value).values()


def viewed(view: Any) -> dict[Any, Any]:
    """Return the dict of a view."""
    return proxied(view.mapping)  # type: ignore[no-any-return]


def description(value: Any) -> str:
    """Return a value in words."""
    if isinstance(value, types.FunctionType):
        return f"the function {value.__qualname__}, made by the program"
    if isinstance(value, type):
        return f"the class {value.__qualname__}, made by the program"
    if isinstance(value, types.GeneratorType):
        return "a generator that has begun"
    if isinstance(value, OfTheTrace):
        return value.description()
    return f"an object of class {NATIVE_CLASSES.get(type(value), type(value)).__qualname__}"


# -- containers ----------------------------------------------------------------------------------------------


def _tuple(b: EpilogueBuilder, value: tuple[Any, ...]) -> str:
    return b.items("(", value, ",)" if len(value) == 1 else ")")


def _size(b: EpilogueBuilder, value: SizeTuple) -> str:
    return f"{b.refer(torch.Size)}({b.items('[', value, ']')})"


def _list(b: EpilogueBuilder, value: list[Any]) -> str:
    return b.shared(value, b.items("[", value, "]"))


def _dict(b: EpilogueBuilder, value: dict[Any, Any]) -> str:
    return b.shared(value, b.pairs(value.items()))


def _partial(b: EpilogueBuilder, value: functools.partial[Any]) -> str:
    args, keywords = b.items("*[", value.args, "]"), b.pairs(value.keywords.items())
    func = b.expression(iterators.original(value.func))
    return b.shared(value, f"{b.refer(functools.partial)}({func}, {args}, **{keywords})")


def _method(b: EpilogueBuilder, value: types.MethodType) -> str:
    parts = f"{b.expression(value.__func__)}, {b.expression(value.__self__)}"
    return b.shared(value, f"{b.refer(types.MethodType)}({parts})")


def _array(b: EpilogueBuilder, value: Any) -> str:
    """Build an array of NumPy that the program has computed."""
    b.session.state(Arrays).refuse_shared(value)
    return b.shared(value, f"{b.refer(copied)}({b.constant('array', copied(value))})")


def _generator(b: EpilogueBuilder, value: Any) -> str:
    """Build a generator of Python or NumPy that the program has created, in its last state.

    The state of one without a seed is any: a new one is made in each call.
    """
    make = maker_of_unseeded(b.session, value)
    if make is not None:
        return b.shared(value, f"{b.refer(make)}()")
    refuse_shared_bits(b.session, value)
    return b.shared(value, f"{b.refer(copy.deepcopy)}({b.constant('generator', copy.deepcopy(value))})")


def _of_bytes(b: EpilogueBuilder, value: bytearray | array.array[Any]) -> str:
    return b.shared(value, text_of_bytes(b, value))


def _set(b: EpilogueBuilder, value: set[Any]) -> str:
    return b.shared(value, b.items("set([", value, "])"))


def _frozenset(b: EpilogueBuilder, value: frozenset[Any]) -> str:
    return b.items("frozenset([", value, "])")


def _ordered(b: EpilogueBuilder, value: Any) -> str:
    items = ", ".join(f"({b.expression(k)}, {b.expression(v)})" for k, v in value.items())
    cls = b.refer(type(value))
    if isinstance(value, defaultdict):
        return b.shared(value, f"{cls}({b.expression(iterators.original(value.default_factory))}, [{items}])")
    if isinstance(value, Counter):
        return b.shared(value, f"{cls}(dict([{items}]))")
    return b.shared(value, f"{cls}([{items}])")


def _deque(b: EpilogueBuilder, value: deque[Any]) -> str:
    return b.shared(value, f"{b.refer(deque)}({b.items('[', value, ']')}, {value.maxlen})")


def _view(b: EpilogueBuilder, value: Any) -> str:
    return b.shared(value, f"{b.expression(viewed(value))}.{VIEWS[type(value)]}()")


def _slice(b: EpilogueBuilder, value: slice) -> str:
    return b.items("slice(", (value.start, value.stop, value.step), ")")


def _template(b: EpilogueBuilder, value: Any) -> str:
    """Build a template string of its texts and interpolations."""
    return b.shared(value, f"{b.refer(type(value))}({b.items('*[', value, ']')})")


def _interpolation(b: EpilogueBuilder, value: Any) -> str:
    parts = (value.value, value.expression, value.conversion, value.format_spec)
    return b.shared(value, b.items(f"{b.refer(type(value))}(", parts, ")"))


#: the classes of template strings → how their objects are built; there are none before 3.14
_TEMPLATES: Final[dict[type, Reconstruction]] = {
    getattr(templatelib, name): build
    for name, build in (("Template", _template), ("Interpolation", _interpolation))
    if templatelib is not None
}


def _reference(b: EpilogueBuilder, value: weakref.ref[Any]) -> str:
    if weakref.ref.__call__(value) is None and type(value) is weakref.ref:
        return b.shared(value, f"{b.refer(dead_reference)}()")
    parts = [weakref.ref.__call__(value), *_callback_of(value)]
    return b.shared(value, f"{b.refer(type(value))}({', '.join(map(b.expression, parts))})")


def dead_reference() -> weakref.ref[Any]:
    """Return a weak reference to an object that is gone."""
    return weakref.ref(type("Gone", (), {})())


def _callback_of(reference: weakref.ref[Any]) -> list[Any]:
    """Return the callback of a weak reference, and the key of one that a ``WeakValueDictionary`` holds."""
    callback = reference.__callback__
    key = [reference.key] if isinstance(reference, weakref.KeyedRef) else []
    return [iterators.original(callback), *key] if callback is not None else []


def make_function(
    code: types.CodeType, namespace: dict[str, Any], state: dict[str, Any], cells: list[types.CellType]
) -> types.FunctionType:
    """Return a function with these closure cells and attributes."""
    new = types.FunctionType(code, namespace, state["__name__"], None, tuple(cells))
    for name, value in state.items():
        setattr(new, name, value)
    return new


_OF_FUNCTIONS = ("__name__", "__qualname__", "__module__", "__doc__", "__defaults__", "__kwdefaults__")


def _function(b: EpilogueBuilder, value: types.FunctionType) -> str:
    """Build a function that the program made, with its defaults and the variables that it closes over.

    It runs as it is when the caller calls it. A function that refers to itself is refused.
    """
    state = {name: getattr(value, name) for name in _OF_FUNCTIONS} | value.__dict__
    cells = ", ".join(map(b.cell, value.__closure__ or ()))
    code, namespace = b.constant("code", value.__code__), b.constant("namespace", value.__globals__)
    return b.shared(value, f"{b.refer(make_function)}({code}, {namespace}, {b.parts(state)}, [{cells}])")


_CONSTRUCTORS: dict[type, Reconstruction] = {
    tuple: _tuple,
    SizeTuple: _size,
    list: _list,
    dict: _dict,
    set: _set,
    frozenset: _frozenset,
    OrderedDict: _ordered,
    defaultdict: _ordered,
    Counter: _ordered,
    deque: _deque,
    **dict.fromkeys(VIEWS, _view),
    slice: _slice,
    **_TEMPLATES,
    weakref.ref: _reference,
    weakref.KeyedRef: _reference,
    functools.partial: _partial,
    types.MethodType: _method,
    bytearray: _of_bytes,
    array.array: _of_bytes,
    types.FunctionType: _function,
    HookHandle: register_again,
    Finalizer: emit_finalizer,
    LeafNode: emit_node,
    itertools.count: lambda b, value: b.shared(value, f"{b.refer(itertools.count)}{repr(value)[5:]}"),
    type(threading.Lock()): lambda b, value: b.shared(value, f"{b.refer(threading.Lock)}()"),
    type(threading.RLock()): lambda b, value: b.shared(value, f"{b.refer(threading.RLock)}()"),
}


def _namedtuple(b: EpilogueBuilder, value: Any) -> str:
    items = b.items("[", tuple.__iter__(value), "]")
    return b.shared(value, f"tuple.__new__({b.refer(type(value))}, {items})")


def _structseq(b: EpilogueBuilder, value: Any) -> str:
    cls = f"torch.return_types.{type(value).__name__}"  # the text of an epilogue imports torch
    return b.shared(value, f"{cls}({b.items('[', value, ']')})")


# -- objects -------------------------------------------------------------------------------------------------


def make_instance(cls: type, state: dict[str, Any]) -> Any:
    """Return an instance of a Python class with these attributes, without its ``__init__``."""
    base = types.SimpleNamespace if issubclass(cls, types.SimpleNamespace) else object
    new: Any = base.__new__(cls)
    for name, value in state.items():
        object.__setattr__(new, name, value)
    return new


def make_immutable(base: type, cls: type, content: Any, state: dict[str, Any]) -> Any:
    """Return an object of a Python class derived from ``base``, such as ``str``, with its attributes."""
    new: Any = base.__new__(cls, content)
    if state:
        new.__dict__.update(state)
    return new


def make_container(base: Any, cls: type, items: Any, state: dict[str, Any] | None, *settings: Any) -> Any:
    """Return a container of a Python class with these items and attributes; no method of it runs.

    Args:
        base: the builtin that the class extends.
        cls: the class.
        items: the items as a dict or a list.
        state: the attributes; None if the items are the attributes (``self.__dict__ = self``).
        settings: the factory of a ``defaultdict``, or the greatest length of a ``deque``.
    """
    new = base.__new__(cls)
    if settings:
        base.__init__(new, *(() if base is defaultdict else ((),)), *settings)
    put_items(new, items)
    if state is None:
        object.__setattr__(new, "__dict__", new)
    for name, value in (state or {}).items():
        object.__setattr__(new, name, value)
    return new


#: immutable builtins → the plain value of an instance of a derived class
_CONTENT: dict[type, Callable[[Any], Any]] = {
    int: int.__int__,
    float: float.__float__,
    str: str.__str__,
    bytes: bytes.__bytes__,
    tuple: lambda value: tuple(tuple.__iter__(value)),
    frozenset: lambda value: frozenset(frozenset.__iter__(value)),
}


def _extended_immutable(cls: type) -> type | None:
    """Return the immutable builtin that a Python class derives from directly, or None."""
    base = next((b for b in cls.__mro__ if b in _CONTENT), None)
    if base is None or cls is base or is_foreign(cls, base):
        return None
    return base


def state_of(value: Any) -> dict[str, Any]:
    """Return all attributes of an instance itself: those of its dictionary and its slots."""
    state: dict[str, Any] = {}
    for cls in reversed(type(value).__mro__):
        for name, slot in cls.__dict__.items():
            if isinstance(slot, types.MemberDescriptorType) and name != "__dict__":
                with suppress(AttributeError):  # it holds nothing
                    state[name] = iterators.original(slot.__get__(value))
    return state | getattr(value, "__dict__", {})


def _object(b: EpilogueBuilder, value: Any) -> str:
    state = b.parts(state_of(value))
    return b.shared(value, f"{b.refer(make_instance)}({b.refer(type(value))}, {state})")


def _immutable(b: EpilogueBuilder, value: Any) -> str:
    base = _extended_immutable(type(value))
    assert base is not None, "the class derives from a builtin"
    content = b.expression(_CONTENT[base](value))
    state = b.parts(getattr(value, "__dict__", {}))
    classes = f"{b.refer(base)}, {b.refer(type(value))}"
    return b.shared(value, f"{b.refer(make_immutable)}({classes}, {content}, {state})")


def _extended_container(b: EpilogueBuilder, value: Any) -> str:
    """Build a container of a Python class, such as a Hugging Face output: items may be attributes as well."""
    base, content, state = extended_container(type(value)), content_of(value), _state_beside_items(value)
    items = b.pairs(content.items()) if isinstance(content, dict) else b.items("[", content, "]")
    parts = [b.refer(base), b.refer(type(value)), items, "None" if state is None else b.parts(state)]
    if isinstance(value, defaultdict):
        parts.append(b.expression(iterators.original(value.default_factory)))
    elif isinstance(value, deque):
        parts.append(repr(value.maxlen))
    return b.shared(value, f"{b.refer(make_container)}({', '.join(parts)})")


def _state_beside_items(value: Any) -> dict[str, Any] | None:
    """Return the attributes of a container, or None if they are its items."""
    return None if getattr(value, "__dict__", None) is value else state_of(value)
