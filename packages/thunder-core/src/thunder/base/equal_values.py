"""Comparisons of guards: values by type and value, keys by identity where needed, numbers by order."""

from __future__ import annotations

import datetime
import math
import operator
import types
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Literal
from zoneinfo import ZoneInfo

Comparison = Literal["==", "!=", "<", "<=", ">", ">="]

#: the function of each operator that a guard may compare by
COMPARISONS: dict[Comparison, Callable[[Any, Any], Any]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def are_distinct(*values: Any) -> bool:
    """Return whether all values are different objects."""
    return len({id(value) for value in values}) == len(values)


def same_leaf(a: Any, b: Any) -> bool:
    """Return whether two leaves are equal by type and value.

    True, 1 and 1.0 differ, so do 0.0 and -0.0, one decimal with more digits, and one time in two zones; NaN
    equals NaN.
    A time whose zone may change equals none.
    """
    if type(a) is not type(b):
        return False
    if isinstance(a, float):
        return (a != a and b != b) or (a == b and math.copysign(1.0, a) == math.copysign(1.0, b))
    if type(a) is complex:
        return same_leaf(a.real, b.real) and same_leaf(a.imag, b.imag)
    if type(a) in (slice, range):
        return same_leaf(a.start, b.start) and same_leaf(a.stop, b.stop) and same_leaf(a.step, b.step)
    if isinstance(a, tuple):
        return len(a) == len(b) and all(map(same_leaf, a, b))
    if type(a) in (frozenset, set):
        return len(a) == len(b) and all(any(same_leaf(x, y) for y in b) for x in a)
    if isinstance(a, datetime.datetime | datetime.time):
        is_fixed = not has_open_zone(a) and not has_open_zone(b)
        return is_fixed and same_leaf(a.__reduce_ex__(4)[1], b.__reduce_ex__(4)[1])
    if isinstance(a, Decimal):  # 1.0 and 1.00 print as they are
        return bool(a.as_tuple() == b.as_tuple())
    return bool(a == b) and (not isinstance(a, datetime.timezone) or repr(a) == repr(b))


def holds_decimal(x: Any) -> bool:
    """Return whether a value is a decimal, or a tuple or set has one."""
    return isinstance(x, Decimal) or (isinstance(x, tuple | frozenset) and any(map(holds_decimal, x)))


#: the types of most values that are asked about: none is a time or a decimal, or has one as an element
WITHOUT_ZONE = frozenset({type(None), bool, int, float, str, type, types.FunctionType, dict})


def has_open_zone(x: Any) -> bool:
    """Return whether a value is, or a tuple or set has, a time in a zone whose offset may change."""
    if type(x) in WITHOUT_ZONE:
        return False
    if isinstance(x, datetime.datetime | datetime.time):
        return type(x.tzinfo) not in (type(None), datetime.timezone, ZoneInfo)
    return isinstance(x, tuple | frozenset) and any(map(has_open_zone, x))


@dataclass(frozen=True, eq=False, slots=True)
class ThisObject:
    """A key that is compared by which object it is."""

    obj: Any


def same_key(a: Any, b: Any) -> bool:
    """Return whether a key or element is the expected one."""
    if type(b) is ThisObject:
        return a is b.obj
    if type(a) is type(b) is tuple:
        return len(a) == len(b) and all(map(same_key, a, b))
    return same_leaf(a, b)


def has_keys(container: Any, keys: tuple[Any, ...]) -> bool:
    """Return whether a dict has these keys, in this order, each of the same type."""
    if len(container) != len(keys):
        return False
    return all(map(operator.is_, container, keys)) or all(map(same_key, container, keys))
