"""``heapq``: lists in which no element comes before its parent, that of position ``(i - 1) // 2``.

An element moves down to a leaf by the first of two children, and then up to its place, as R. W. Floyd does it
(D. E. Knuth, The Art of Computer Programming 3, 5.2.3, exercise 18).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Order = Callable[[Any, Any], Any]


def _below(a: Any, b: Any) -> Any:
    return a < b


def _above(a: Any, b: Any) -> Any:
    return b < a


def _comes_first(heap: list[Any], order: Order, a: Any, b: Any) -> bool:
    """Return whether one element comes before another; RuntimeError if this changes the heap."""
    length = len(heap)
    answer = bool(order(a, b))
    if len(heap) != length:
        raise RuntimeError("list changed size during iteration")
    return answer


def _rise(heap: list[Any], top: int, position: int, order: Order) -> None:
    """Move an element up, at most to ``top``, until its parent comes first."""
    while position > top:
        parent = (position - 1) // 2
        if not _comes_first(heap, order, heap[position], heap[parent]):
            return
        heap[position], heap[parent] = heap[parent], heap[position]
        position = parent


def _sink(heap: list[Any], top: int, order: Order) -> None:
    """Move an element down by the first children to a leaf, and then up."""
    position = top
    while 2 * position + 1 < len(heap):
        child = 2 * position + 1
        if child + 1 < len(heap) and not _comes_first(heap, order, heap[child], heap[child + 1]):
            child += 1
        heap[position], heap[child] = heap[child], heap[position]
        position = child
    _rise(heap, top, position, order)


def _order(heap: list[Any], order: Order) -> None:
    for position in range(len(heap) // 2 - 1, -1, -1):
        _sink(heap, position, order)


def _pop(heap: list[Any], order: Order) -> Any:
    if not heap:
        raise IndexError("index out of range")
    last = heap.pop()
    return _replace(heap, last, order) if heap else last


def _replace(heap: list[Any], item: Any, order: Order) -> Any:
    if not heap:
        raise IndexError("index out of range")
    first = heap[0]
    heap[0] = item
    _sink(heap, 0, order)
    return first


def heapify(heap: list[Any], /) -> None:
    """Order a list as a heap."""
    _order(heap, _below)


def heappush(heap: list[Any], item: Any, /) -> None:
    """Add an element."""
    heap.append(item)
    _rise(heap, 0, len(heap) - 1, _below)


def heappop(heap: list[Any], /) -> Any:
    """Remove the smallest element and return it."""
    return _pop(heap, _below)


def heapreplace(heap: list[Any], item: Any, /) -> Any:
    """Remove the smallest element and return it, and add another."""
    return _replace(heap, item, _below)


def heappushpop(heap: list[Any], item: Any, /) -> Any:
    """Add an element, and remove the smallest one and return it."""
    if not heap or not heap[0] < item:
        return item
    return _replace(heap, item, _below)


def heappush_max(heap: list[Any], item: Any, /) -> None:
    """Add an element to a heap whose first element is the largest."""
    heap.append(item)
    _rise(heap, 0, len(heap) - 1, _above)


def heappushpop_max(heap: list[Any], item: Any, /) -> Any:
    """Add an element, and remove the largest one and return it."""
    if not heap or not item < heap[0]:
        return item
    return _replace(heap, item, _above)


def heapify_max(heap: list[Any], /) -> None:
    """Order a list as a heap whose first element is the largest."""
    _order(heap, _above)


def heappop_max(heap: list[Any], /) -> Any:
    """Remove the largest element and return it."""
    return _pop(heap, _above)


def heapreplace_max(heap: list[Any], item: Any, /) -> Any:
    """Remove the largest element and return it, and add another."""
    return _replace(heap, item, _above)
