"""``bisect``: positions in sorted sequences, found by halving the part in which they are."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

Key = Callable[[Any], Any] | None


def bisect_left(a: Any, x: Any, lo: Any = 0, hi: Any = None, *, key: Key = None) -> int:
    """Return the first position at which ``a`` has no element below ``x``."""
    first, end = _bounds(a, lo, hi)
    while first < end:
        middle = (first + end) // 2
        element = a[middle]
        if (element if key is None else key(element)) < x:
            first = middle + 1
        else:
            end = middle
    return first


def bisect_right(a: Any, x: Any, lo: Any = 0, hi: Any = None, *, key: Key = None) -> int:
    """Return the first position at which ``a`` has an element above ``x``."""
    first, end = _bounds(a, lo, hi)
    while first < end:
        middle = (first + end) // 2
        element = a[middle]
        if x < (element if key is None else key(element)):
            end = middle
        else:
            first = middle + 1
    return first


def insort_left(a: Any, x: Any, lo: Any = 0, hi: Any = None, *, key: Key = None) -> None:
    """Insert ``x`` before the elements that equal it."""
    lo, hi = operator.index(lo), None if hi is None else operator.index(hi)
    position = bisect_left(a, x if key is None else key(x), lo, hi, key=key)
    a.insert(position, x)


def insort_right(a: Any, x: Any, lo: Any = 0, hi: Any = None, *, key: Key = None) -> None:
    """Insert ``x`` after the elements that equal it."""
    lo, hi = operator.index(lo), None if hi is None else operator.index(hi)
    position = bisect_right(a, x if key is None else key(x), lo, hi, key=key)
    a.insert(position, x)


def _bounds(a: Any, lo: Any, hi: Any) -> tuple[int, int]:
    first = operator.index(lo)
    if first < 0:
        raise ValueError("lo must be non-negative")
    end = -1 if hi is None else operator.index(hi)
    return first, len(a) if end == -1 else end
