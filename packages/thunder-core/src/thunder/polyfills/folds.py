"""``functools.reduce``, ``functools.cmp_to_key`` and the counting of ``collections.Counter``."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any


class _None:
    """In the place of an argument that is not passed."""


def reduce(function: Callable[[Any, Any], Any], iterable: Iterable[Any], /, initial: Any = _None) -> Any:
    """Return ``function(function(first, second), third)`` and so on."""
    iterator = iter(iterable)
    value = next(iterator, _None) if initial is _None else initial
    if value is _None:
        raise TypeError("reduce() of empty iterable with no initial value")
    for element in iterator:
        value = function(value, element)
    return value


def count_elements(mapping: Any, iterable: Iterable[Any], /) -> None:
    """Add one to the item of each element."""
    get = mapping.get
    for element in iterable:
        mapping[element] = get(element, 0) + 1


def cmp_to_key(mycmp: Callable[[Any, Any], Any]) -> KeyMaker:
    """``functools.cmp_to_key``."""
    return KeyMaker(mycmp)


class KeyMaker:
    """A function that makes keys of objects, which a function of two objects compares."""

    __slots__ = ("mycmp",)

    def __init__(self, mycmp: Callable[[Any, Any], Any]) -> None:
        self.mycmp = mycmp

    def __call__(self, obj: Any) -> Key:
        return Key(self.mycmp, obj)


class Key:
    """A key, which is compared as its object is."""

    __slots__ = ("mycmp", "obj")
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, mycmp: Callable[[Any, Any], Any], obj: Any) -> None:
        self.mycmp, self.obj = mycmp, obj

    def compared(self, other: Any) -> Any:
        """Return a number that is compared with 0."""
        if type(other) is not Key:
            raise TypeError("other argument must be K instance")
        return self.mycmp(self.obj, other.obj)

    def __lt__(self, other: Any) -> Any:
        return self.compared(other) < 0

    def __le__(self, other: Any) -> Any:
        return self.compared(other) <= 0

    def __gt__(self, other: Any) -> Any:
        return self.compared(other) > 0

    def __ge__(self, other: Any) -> Any:
        return self.compared(other) >= 0

    def __eq__(self, other: Any) -> Any:
        return self.compared(other) == 0
