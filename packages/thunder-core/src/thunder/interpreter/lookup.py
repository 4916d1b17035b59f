"""Special methods: whether a protocol of an object is written in Python."""

from __future__ import annotations

import functools
import re
import types
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final, TypeGuard, TypeVar, overload

from thunder.interpreter.policy import MISSING

if TYPE_CHECKING:
    from thunder.interpreter.machine import Machine

_T = TypeVar("_T")

LEAF_TYPES: Final = frozenset(
    {int, float, complex, bool, str, bytes, type(None), type(...), type(NotImplemented)}
)
"""Exact types whose operators on each other never reach a Python function, nor anything a host must see."""

ITERATOR_TYPES: Final[tuple[type, ...]] = (
    map,
    filter,
    zip,
    enumerate,
    reversed,
    type(iter([])),
    type(iter(())),
    type(iter({})),
    type(iter({}.values())),
    type(iter({}.items())),
    type(iter(set())),
    type(iter("")),
    type(iter("é")),
    type(iter(b"")),
    type(iter(range(0))),
    type(reversed([])),
)
"""Iterators of builtin containers, and the builtins that make one of another."""

NATIVE_TYPES: Final = LEAF_TYPES | {
    *ITERATOR_TYPES,
    list,
    tuple,
    dict,
    set,
    frozenset,
    bytearray,
    memoryview,
    range,
    slice,
    object,
    deque,
    property,
    classmethod,
    staticmethod,
    re.Pattern,
    re.Match,
    types.FunctionType,
    types.MethodType,
    types.BuiltinFunctionType,
    types.MethodDescriptorType,
    types.WrapperDescriptorType,
    types.MethodWrapperType,
    types.GetSetDescriptorType,
    types.MemberDescriptorType,
    types.ClassMethodDescriptorType,
    types.ModuleType,
    types.GeneratorType,
    types.CoroutineType,
    types.AsyncGeneratorType,
    types.CellType,
    types.CodeType,
    types.MappingProxyType,
    type({}.keys()),
    type({}.values()),
    type({}.items()),
    type(OrderedDict().keys()),
}
"""Exact types known to have no special method in Python: a short cut, not a rule."""

NATIVE_ATTRIBUTES: Final = frozenset(
    {
        types.WrapperDescriptorType,
        types.MethodDescriptorType,
        types.BuiltinFunctionType,
        types.ClassMethodDescriptorType,
        types.GetSetDescriptorType,
        types.MemberDescriptorType,
        types.MethodWrapperType,
        type(None),  # ``__hash__ = None`` and the like: the native operation refuses
    }
)
"""Types of class attributes that are implemented in C."""

assert Counter not in NATIVE_TYPES, "Counter.__missing__ and its operators are written in Python"
assert defaultdict not in NATIVE_TYPES, "its factory may be written in Python"


@overload
def is_a(value: Any, kind: type[_T]) -> TypeGuard[_T]: ...
@overload
def is_a(value: Any, kind: types.UnionType) -> bool: ...
def is_a(value: Any, kind: Any) -> bool:
    """Return ``isinstance`` by the real type, without reading ``__class__``."""
    return issubclass(type(value), kind)


def full_name(cls: type) -> str:
    """Return the name of a class in messages, with its module (``PyType_GetFullyQualifiedName``)."""
    return cls.__qualname__ if cls.__module__ in _UNNAMED_MODULES else f"{cls.__module__}.{cls.__qualname__}"


_UNNAMED_MODULES: Final = ("builtins", "__main__")


def all_leaves(values: Iterable[Any]) -> bool:
    """Return whether no operator on these values reaches Python code."""
    return all(type(value) in LEAF_TYPES for value in values)


def python_special(machine: Machine, cls: type, name: str) -> Any:
    """Return a special method of ``cls`` that is not implemented in C, or MISSING."""
    if cls in NATIVE_TYPES:
        return MISSING
    method = machine.policy.type_attr(cls, name)
    if method is MISSING or type(method) in NATIVE_ATTRIBUTES:
        return MISSING
    return MISSING if _is_native_static(method) else method


def _is_native_static(method: Any) -> bool:
    return type(method) is staticmethod and type(method.__func__) in NATIVE_ATTRIBUTES


def interpreted_special(machine: Machine, cls: type, name: str) -> Any:
    """Return a special method of ``cls`` that the interpreter runs, or MISSING for the host's own and C's."""
    method = python_special(machine, cls, name)
    is_of_host = type(method) is types.FunctionType and machine.policy.is_native(method)
    return MISSING if is_of_host else method


def has_python_special(machine: Machine, obj: Any, *names: str) -> bool:
    """Return whether one of these special methods of ``obj`` is not implemented in C."""
    cls = type(obj)
    return cls not in NATIVE_TYPES and any(
        python_special(machine, cls, name) is not MISSING for name in names
    )


def optional_attribute(machine: Machine, obj: Any, name: str) -> Any:
    """``obj.name``, or MISSING."""
    try:
        return machine.policy.load_attr(obj, name)
    except AttributeError:
        return MISSING


def call_special(machine: Machine, method: Any, obj: Any, *args: Any) -> Any:
    """Call a special method of the class of ``obj``, bound as an attribute is."""
    if type(method) is types.FunctionType:
        return machine.policy.call(method, (obj, *args), {})
    return machine.policy.call(machine.bind_attribute(method, obj, type(obj)), args, {})


# -- objects as arguments of native code ---------------------------------------------------------------------


class StandIn:
    """An object in native code in the place of another, whose special methods are interpreted."""

    _machine: Machine
    _value: Any

    @classmethod
    def of(cls, machine: Machine, value: Any, *number: Any) -> Any:
        """Return the stand-in of a value; ``number`` is that of a class derived from a number's."""
        shown = cls.__new__(cls, *number)
        shown._machine, shown._value = machine, value
        return shown


def interpreted_method(name: str) -> Callable[..., Any]:
    """Return the method of a stand-in that interprets the object's special method."""

    def call(self: Any, *args: Any) -> Any:
        machine, value = self._machine, self._value
        return call_special(machine, machine.policy.type_attr(type(value), name), value, *args)

    return call


#: the special methods by which C code reads an argument as a number, a truth value, a sequence or a path
READING_METHODS: Final = {
    name: interpreted_method(name)
    for name in (
        *("__index__", "__int__", "__float__", "__complex__", "__trunc__", "__bool__"),
        *("__len__", "__length_hint__", "__iter__", "__next__", "__getitem__", "__contains__"),
        *("__missing__", "__bytes__", "__fspath__"),
    )
}
#: builtin classes of which C code reads the value of an object itself, whose subclasses stay subclasses
_NUMBERS: Final[dict[type, Callable[[Any], Any]]] = {
    int: int.__index__,
    float: float.__float__,
    complex: complex.__pos__,
}


@functools.cache
def _stand_in_class(name: str, bases: tuple[type, ...], methods: tuple[str, ...]) -> type[StandIn]:
    return type(name, (StandIn, *bases), {method: READING_METHODS[method] for method in methods})


def stand_in(machine: Machine, value: Any) -> Any:
    """Return a value as an argument of native code that reads it, and keeps it nowhere.

    For an object with special methods in Python it is one of a class of the same name, of which these
    re-enter the interpreter: native code calls those that it needs, as often as it does. The parts of a slice
    are read in the same way. Objects of classes derived from other classes in C stay as they are.
    """
    cls = type(value)
    if cls is slice:
        return slice(*(stand_in(machine, part) for part in (value.start, value.stop, value.step)))
    if cls in NATIVE_TYPES:
        return value
    methods = tuple(n for n in READING_METHODS if interpreted_special(machine, cls, n) is not MISSING)
    bases = tuple(base for base in cls.__mro__ if not base.__flags__ & _HEAPTYPE and base is not object)
    if not methods or len(bases) > 1 or not _NUMBERS.keys() >= set(bases):
        return value
    number = [_NUMBERS[base](value) for base in bases]
    return _stand_in_class(cls.__name__, bases, methods).of(machine, value, *number)


_HEAPTYPE: Final = 1 << 9  # Py_TPFLAGS_HEAPTYPE: made by a class statement
