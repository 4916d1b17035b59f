"""Operators: special methods in Python are interpreted, the rest is called natively.

The orders of calls are those of Objects/abstract.c (``binary_op1``, ``binary_iop1``), Objects/typeobject.c
(``SLOT1BINFULL``) and Objects/object.c (``do_richcompare``).
"""

from __future__ import annotations

import collections
import operator
import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from thunder.interpreter import string_protocols
from thunder.interpreter.lookup import (
    LEAF_TYPES,
    NATIVE_ATTRIBUTES,
    NATIVE_TYPES,
    all_leaves,
    call_special,
    interpreted_special,
    is_a,
    python_special,
    stand_in,
)
from thunder.interpreter.operator_tables import (
    COMPARISON_OPERATORS,
    BinaryOperator,
    ComparisonOperator,
    UnaryOperator,
)
from thunder.interpreter.policy import MISSING
from thunder.interpreter.version_differences import MISSING_CALLS_SETITEM

if TYPE_CHECKING:
    from thunder.interpreter.machine import Machine


# ``sq_concat`` and ``sq_repeat`` come after the number methods of *both* operands (PyNumber_Add), though the
# methods are called ``__add__`` and ``__mul__`` as well.
_SEQUENCE_METHODS: Final = frozenset(
    getattr(cls, name)
    for cls in (list, tuple, str, bytes, bytearray, collections.deque)
    for name in ("__add__", "__mul__", "__rmul__", "__iadd__", "__imul__")
    if hasattr(cls, name)
)


#: the classes with whose objects, and no others, the operators of a builtin class compute
_OPERANDS: Final[dict[type, tuple[type, ...]]] = {
    int: (int,),
    bool: (int,),
    float: (float, int),
    complex: (complex, float, int),
    list: (list,),
    tuple: (tuple,),
    dict: (dict,),
    set: (set, frozenset),
    frozenset: (set, frozenset),
    range: (range,),
}


def binary(machine: Machine, op: BinaryOperator, left: Any, right: Any) -> Any:
    """``left <op> right``, or the in-place form if the row has one."""
    left_type, right_type = type(left), type(right)
    if left_type in LEAF_TYPES and right_type in LEAF_TYPES:
        return op.native(left, right)
    if not _has_python_operator(machine, op, left_type, right_type):
        return machine.policy.call_native(op.native, _native_operands(machine, op, left, right), {})
    policy = machine.policy
    if op.inplace is not None:
        method = policy.type_attr(left_type, op.inplace)
        if method is not MISSING and method is not None and not _is_sequence_method(method):
            result = _call(machine, method, left, right)
            if result is not NotImplemented:
                return result
    forward = policy.type_attr(left_type, op.method)
    backward = MISSING if right_type is left_type else policy.type_attr(right_type, op.reflected)
    if _is_sequence_method(forward):
        forward = MISSING
    if _is_sequence_method(backward):
        backward = MISSING
    is_formatting = left_type is str and op.method == "__mod__"
    operand = string_protocols.percent_operand(machine, right) if is_formatting else right
    attempts = [(forward, left, operand), (backward, right, left)]
    if left_type in right_type.__mro__ and (
        forward is MISSING or policy.type_attr(left_type, op.reflected) is not backward
    ):
        attempts.reverse()  # a subclass that overrides the reflected method goes first
    for method, self, other in attempts:
        if method is not MISSING and not _declines(machine, method, other, (op.method, op.reflected)):
            result = _call(machine, method, self, other)
            if result is not NotImplemented:
                return result
    return _binary_fallback(machine, op, left, right)


def _native_operands(machine: Machine, op: BinaryOperator, left: Any, right: Any) -> tuple[Any, Any]:
    """The operands of an operator that is called natively, as C code may read them."""
    if op.method == "__mod__" and type(left) is str:
        return left, string_protocols.percent_operand(machine, right)
    if op.method == "__mul__":  # the repetition of a sequence
        return _count(machine, left, right), _count(machine, right, left)
    if op.inplace == "__iadd__" and is_a(left, list | bytearray | collections.deque):
        return left, machine.native_iterable(right)
    return left, right


def _count(machine: Machine, count: Any, sequence: Any) -> Any:
    """How often C code repeats a sequence; another value as it is."""
    return stand_in(machine, count) if is_a(sequence, _REPEATED) and not is_a(count, _REPEATED) else count


_REPEATED: Final = list | tuple | str | bytes | bytearray | collections.deque


def _declines(machine: Machine, method: Any, other: Any, names: tuple[str, str]) -> bool:
    """Return whether a method of a builtin class returns NotImplemented for an object of a class in Python.

    ``names`` are those of the operator's methods. The number methods and comparisons of Objects/*.c look at
    the class of ``other`` before they look into it.
    """
    is_native = type(method) in NATIVE_ATTRIBUTES
    operands = _OPERANDS.get(getattr(method, "__objclass__", object)) if is_native else None
    cls = type(other)
    return (
        operands is not None
        and not any(base in operands for base in cls.__mro__)
        and any(_defines_in_python(machine, name, cls) for name in names)
    )


def _is_sequence_method(method: Any) -> bool:
    return type(method) in NATIVE_ATTRIBUTES and method in _SEQUENCE_METHODS


def _has_python_operator(machine: Machine, op: BinaryOperator, left_type: type, right_type: type) -> bool:
    if left_type not in NATIVE_TYPES:
        if python_special(machine, left_type, op.method) is not MISSING:
            return True
        if op.inplace is not None and python_special(machine, left_type, op.inplace) is not MISSING:
            return True
    if right_type is left_type:
        return False
    return right_type not in NATIVE_TYPES and python_special(machine, right_type, op.reflected) is not MISSING


def _call(machine: Machine, method: Any, obj: Any, *args: Any) -> Any:
    if method is None:
        return NotImplemented
    if type(method) in NATIVE_ATTRIBUTES:
        return machine.policy.call(method, (obj, *args), {})
    return call_special(machine, method, obj, *args)


#: builtin classes without ``tp_as_sequence``, of those that can stand to the left of ``*=``
_WITHOUT_SEQUENCE_SLOTS: Final = frozenset({int, bool, float, complex, type(None), type(...), slice})


def _binary_fallback(machine: Machine, op: BinaryOperator, left: Any, right: Any) -> Any:
    """Concatenate or repeat sequences after all number methods declined, else TypeError."""
    attempts: list[tuple[Any, Any, tuple[str | None, ...]]] = [(left, right, (op.inplace, op.method))]
    if op.inplace is None or type(left) in _WITHOUT_SEQUENCE_SLOTS:  # PyNumber_InPlaceMultiply
        attempts.append((right, left, (op.reflected,)))
    for self, other, names in attempts:
        for name in names:
            method = MISSING if name is None else machine.policy.type_attr(type(self), name)
            if method is not MISSING and _is_sequence_method(method):
                if op.method == "__mul__" and machine.policy.type_attr(type(other), "__index__") is MISSING:
                    raise TypeError(f"can't multiply sequence by non-int of type '{type(other).__name__}'")
                return machine.policy.call_native(method, _native_operands(machine, op, self, other), {})
    symbol = "** or pow()" if op.symbol == "**" else op.symbol
    raise TypeError(
        f"unsupported operand type(s) for {symbol}: '{type(left).__name__}' and '{type(right).__name__}'"
    )


def unary(machine: Machine, op: UnaryOperator, value: Any) -> Any:
    """``-value`` and its kin."""
    cls = type(value)
    if cls in LEAF_TYPES:
        return op.native(value)
    method = python_special(machine, cls, op.method)
    if method is MISSING:
        return machine.policy.call_native(op.native, (value,), {})
    return call_special(machine, method, value)


def compare(machine: Machine, op: ComparisonOperator, left: Any, right: Any) -> Any:
    """``left <op> right`` of a rich comparison."""
    left_type, right_type = type(left), type(right)
    if left_type in LEAF_TYPES and right_type in LEAF_TYPES:
        return op.native(left, right)
    if not (
        _defines_in_python(machine, op.method, left_type)
        or _defines_in_python(machine, op.swapped, right_type)
    ):
        return _compare_native(machine, op, left, right)
    attempts = [(op.method, left, right), (op.swapped, right, left)]
    if left_type is not right_type and left_type in right_type.__mro__:
        attempts.reverse()
    for name, self, other in attempts:
        result = _compare_one(machine, name, self, other, (op.method, op.swapped))
        if result is not NotImplemented:
            return result
    if op.symbol in ("==", "!="):
        return machine.policy.is_same(left, right) is (op.symbol == "==")
    raise TypeError(
        f"'{op.symbol}' not supported between instances of '{left_type.__name__}' and '{right_type.__name__}'"
    )


def _defines_in_python(machine: Machine, name: str, cls: type) -> bool:
    """Return whether a class in Python defines a method, of a comparison or another operator."""
    if cls in NATIVE_TYPES:
        return False
    if python_special(machine, cls, name) is not MISSING:
        return True
    # object.__ne__ calls __eq__
    return name == "__ne__" and python_special(machine, cls, "__eq__") is not MISSING


def _compare_one(machine: Machine, name: str, obj: Any, other: Any, names: tuple[str, str]) -> Any:
    method = machine.policy.type_attr(type(obj), name)
    if method is object.__ne__:
        result = _compare_one(machine, "__eq__", obj, other, ("__eq__", "__eq__"))
        return result if result is NotImplemented else not truth(machine, result)
    if method is object.__eq__:
        return True if machine.policy.is_same(obj, other) else NotImplemented
    if id(method) in _UNORDERED or _declines(machine, method, other, names):
        return NotImplemented
    return _call(machine, method, obj, other)


#: an object has no order of its own
_UNORDERED: Final = frozenset(id(vars(object)[name]) for name in ("__lt__", "__le__", "__gt__", "__ge__"))


_ELEMENTWISE: Final = frozenset({list, tuple, collections.deque})


def _compare_native(machine: Machine, op: ComparisonOperator, left: Any, right: Any) -> Any:
    cls = type(left)
    if cls is type(right) and cls in _ELEMENTWISE:
        machine.policy.read_items(left)
        machine.policy.read_items(right)
        if _any_python(left) or _any_python(right):
            return _compare_sequences(machine, op, left, right)
    return machine.policy.call_native(op.native, (left, right), {})


def _any_python(items: Any) -> bool:
    return any(type(item) not in LEAF_TYPES for item in items)


def compares_in_python(sequence: Any, item: Any) -> bool:
    """Return whether a search in a sequence of Python may call ``__eq__`` of a class in Python."""
    return type(sequence) in _ELEMENTWISE and (type(item) not in LEAF_TYPES or _any_python(sequence))


def _compare_sequences(machine: Machine, op: ComparisonOperator, left: Any, right: Any) -> Any:
    """Compare lists as list_richcompare does; elements that are one object are equal."""
    if len(left) != len(right) and op.symbol in ("==", "!="):
        return op.symbol == "!="
    equal = COMPARISON_OPERATORS["=="]
    for a, b in zip(left, right, strict=False):
        if a is not b and not truth(machine, compare(machine, equal, a, b)):
            if op.symbol in ("==", "!="):
                return op.symbol == "!="
            return compare(machine, op, a, b)
    return op.native(len(left), len(right))


def truth(machine: Machine, value: Any) -> bool:
    """``bool(value)``."""
    if value is True or value is False:
        return value
    if type(value) in LEAF_TYPES:
        return bool(value)
    return machine.policy.truth(value)


def generic_truth(machine: Machine, value: Any) -> bool:
    """``bool(value)`` by the special methods of an object's class."""
    cls = type(value)
    method = python_special(machine, cls, "__bool__")
    if method is not MISSING:
        result = call_special(machine, method, value)
        if type(result) is not bool:
            raise TypeError(f"__bool__ should return bool, returned {type(result).__name__}")
        return result
    if cls not in NATIVE_TYPES and machine.policy.type_attr(cls, "__bool__") is MISSING:
        method = python_special(machine, cls, "__len__")
        if method is not MISSING:
            return length(machine, value) != 0
    native: bool = machine.policy.call_native(bool, (value,), {})
    return native


def length(machine: Machine, value: Any) -> int:
    """``len(value)``."""
    method = python_special(machine, type(value), "__len__")
    if method is MISSING:
        size: int = machine.policy.call_native(len, (value,), {})
        return size
    result = index(machine, call_special(machine, method, value))
    if result < 0:
        raise ValueError("__len__() should return >= 0")
    return result


def index(machine: Machine, value: Any) -> int:
    """``operator.index(value)``, which asks no object of a subclass of ``int``."""
    method = python_special(machine, type(value), "__index__")
    if method is MISSING or is_a(value, int):
        native: int = machine.policy.call_native(operator.index, (value,), {})
        return native
    result = call_special(machine, method, value)
    if not is_a(result, int):
        raise TypeError(f"__index__ returned non-int (type {type(result).__name__})")
    number: int = result
    return number


_INDEXED: Final = frozenset({list, tuple, str, bytes, bytearray, range, collections.deque, memoryview})
#: builtin classes whose keys are not positions
_KEYED: Final = dict | types.MappingProxyType | set | frozenset | type


def _native_key(machine: Machine, obj: Any, key: Any) -> Any:
    """A key of an object in C that is not a mapping, its ``__index__`` interpreted."""
    if type(key) in LEAF_TYPES:
        return key
    if type(obj) in _INDEXED:
        return _position(machine, key, python_special)
    return key if is_a(obj, _KEYED) else _position(machine, key, interpreted_special)


def _position(machine: Machine, key: Any, find: Callable[[Machine, type, str], Any]) -> Any:
    """A position, or a slice or tuple of positions; ``find`` finds the method that is interpreted."""
    cls = type(key)
    if cls is slice:
        parts = (key.start, key.stop, key.step)
        return key if all_leaves(parts) else slice(*(_position(machine, part, find) for part in parts))
    if cls is tuple:
        return key if all_leaves(key) else tuple(_position(machine, part, find) for part in key)
    return key if find(machine, cls, "__index__") is MISSING else index(machine, key)


def load_item(machine: Machine, obj: Any, key: Any) -> Any:
    """``obj[key]``."""
    cls = type(obj)
    if cls in NATIVE_TYPES:
        return machine.policy.call_native(operator.getitem, (obj, _native_key(machine, obj, key)), {})
    method = python_special(machine, cls, "__getitem__")
    if method is not MISSING:
        return call_special(machine, method, obj, key)
    if is_a(obj, type):
        return _load_class_item(machine, obj, key)
    if is_a(obj, dict):
        return load_dict_item(machine, obj, key)
    return machine.policy.call_native(operator.getitem, (obj, _native_key(machine, obj, key)), {})


def _load_class_item(machine: Machine, cls: type, key: Any) -> Any:
    """``cls[key]`` by ``__class_getitem__``, for a metaclass without ``__getitem__``."""
    if machine.policy.type_attr(type(cls), "__getitem__") is MISSING:
        method = machine.policy.type_attr(cls, "__class_getitem__")
        if method is not MISSING and type(method) not in NATIVE_ATTRIBUTES:
            return machine.policy.call(machine.bind_attribute(method, None, cls), (key,), {})
    return machine.policy.call_native(operator.getitem, (cls, key), {})


def load_dict_item(machine: Machine, obj: dict[Any, Any], key: Any) -> Any:
    """``dict.__getitem__(obj, key)`` of a subclass of dict that may define ``__missing__``."""
    missing = python_special(machine, type(obj), "__missing__")
    if missing is MISSING and is_a(obj, collections.defaultdict):
        missing = collections.defaultdict.__missing__
    overridden = python_special(machine, type(obj), "__contains__") is not MISSING
    has_key = dict.__contains__ if overridden else operator.contains
    if missing is MISSING or machine.policy.call_native(has_key, (obj, key), {}):
        overridden = python_special(machine, type(obj), "__getitem__") is not MISSING
        native = dict.__getitem__ if overridden else operator.getitem
        return machine.policy.call_native(native, (obj, key), {})
    return call_special(machine, missing, obj, key)


def missing_of_defaultdict(machine: Machine, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """``defaultdict.__missing__(obj, key)``: what the factory returns is stored as an item."""
    if kwargs or len(args) != 2 or not is_a(args[0], collections.defaultdict):
        return machine.policy.call_native(collections.defaultdict.__missing__, args, kwargs)
    obj, key = args
    factory = machine.policy.load_attr(obj, "default_factory")
    if factory is None:
        raise KeyError(key)
    value = machine.policy.call(factory, (), {})
    if not MISSING_CALLS_SETITEM:  # an item that the factory has stored stays
        return machine.policy.call(dict.setdefault, (obj, key, value), {})
    machine.store_item(obj, key, value)
    return value


def store_item(machine: Machine, obj: Any, key: Any, value: Any) -> None:
    """``obj[key] = value``."""
    method = python_special(machine, type(obj), "__setitem__")
    if method is not MISSING:
        call_special(machine, method, obj, key, value)
    else:
        store_natively(machine, operator.setitem, obj, key, value)


def store_natively(machine: Machine, native: Any, obj: Any, key: Any, value: Any) -> None:
    """Store an item by code in C, which reads the key, and iterates over what replaces a slice."""
    if type(key) is slice and is_a(obj, list | bytearray) and not is_a(value, list | tuple):
        value = machine.native_iterable(value)
    machine.policy.call_native(native, (obj, _native_key(machine, obj, key), value), {})


def delete_item(machine: Machine, obj: Any, key: Any) -> None:
    """``del obj[key]``."""
    method = python_special(machine, type(obj), "__delitem__")
    if method is not MISSING:
        call_special(machine, method, obj, key)
    else:
        machine.policy.call_native(operator.delitem, (obj, _native_key(machine, obj, key)), {})


def contains(machine: Machine, container: Any, item: Any) -> bool:
    """``item in container``."""
    cls = type(container)
    if cls in _ELEMENTWISE:
        machine.policy.read_items(container)
        if compares_in_python(container, item):
            return _is_among(machine, container, item)
        is_in: bool = machine.policy.call_native(operator.contains, (container, item), {})
        return is_in
    if cls in _WITH_SEARCH or (cls is range and type(item) in LEAF_TYPES):
        is_in = machine.policy.call_native(operator.contains, (container, item), {})
        return is_in
    if cls is range:
        return _is_among(machine, container, item)
    method = machine.policy.type_attr(cls, "__contains__")
    if method is None:
        raise TypeError(f"'{cls.__name__}' object is not a container")
    if method is MISSING:
        return _is_among(machine, machine.native_iterable(container, asked="in"), item)
    if type(method) in NATIVE_ATTRIBUTES:
        is_in = machine.policy.call_native(operator.contains, (container, item), {})
        return is_in
    return truth(machine, call_special(machine, method, container, item))


#: builtin classes that search by themselves; in a range by its bounds, except for objects
_WITH_SEARCH: Final = frozenset(cls for cls in NATIVE_TYPES if hasattr(cls, "__contains__")) - {range}


def _is_among(machine: Machine, items: Any, item: Any) -> bool:
    return any(is_or_equals(machine, element, item) for element in items)


def is_or_equals(machine: Machine, element: Any, item: Any) -> bool:
    """Return ``element is item or element == item``, which is the question of every search."""
    if machine.policy.is_same(element, item):
        return True
    return truth(machine, compare(machine, COMPARISON_OPERATORS["=="], element, item))
