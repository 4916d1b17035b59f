"""Functions in C in whose place Python functions are interpreted, where they may run code of the program.

heapq.heappush(heap, task)   →   Task.__lt__ is called: polyfills.heaps.heappush is interpreted
heapq.heappush(heap, 3)      →   in a heap of numbers, C code does it
"""

from __future__ import annotations

import bisect
import collections
import functools
import heapq
import itertools
import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from thunder.interpreter.lookup import LEAF_TYPES, all_leaves, stand_in
from thunder.interpreter.native_registry import Args, Entries, Kwargs
from thunder.interpreter.operator_protocols import compares_in_python
from thunder.interpreter.version_differences import REDUCE_TAKES_KEYWORD
from thunder.polyfills import folds, groups, heaps, searches, sorted_lists

if TYPE_CHECKING:
    from thunder.interpreter.machine import Machine

ENTRIES: Final = Entries()
"""What the interpreter does in place of these functions."""


def _may_run_code(args: Args, kwargs: Kwargs) -> bool:
    return bool(kwargs) or not all(map(_is_plain, args))


def _is_plain(value: Any) -> bool:
    """Return whether C code compares and orders a value, and the elements of a list, without code."""
    cls = type(value)
    if cls is list or cls is range:
        return all(type(item) in LEAF_TYPES or (type(item) is tuple and all_leaves(item)) for item in value)
    return cls in LEAF_TYPES or (cls is tuple and all_leaves(value))


def _is_of_heap(args: Args, kwargs: Kwargs) -> bool:
    return bool(args) and type(args[0]) is list and _may_run_code(args, kwargs)


def _is_fold(args: Args, kwargs: Kwargs) -> bool:
    return _may_run_code(args, kwargs) and (REDUCE_TAKES_KEYWORD or not kwargs)


def _is_search(args: Args, kwargs: Kwargs) -> bool:
    is_right = len(args) > 1 and all(type(bound) is int for bound in args[2:])
    return is_right and not kwargs and compares_in_python(*args[:2])


def _polyfill(native: Any, python: Any, is_needed: Callable[[Args, Kwargs], bool]) -> None:
    most = python.__code__.co_argcount

    @ENTRIES.entry(native)
    def call(machine: Machine, args: Args, kwargs: Kwargs) -> Any:
        if len(args) <= most and is_needed(args, kwargs):  # else C code raises
            return machine.policy.call(python, args, kwargs)
        bounds = (stand_in(machine, bound) for bound in args[2:])
        return machine.policy.call_native(native, (*args[:2], *bounds), kwargs)


#: those of heaps whose first element is the largest: all five are public from 3.14 on, three private before
_OF_HEAPS: Final = {
    "heapify": heaps.heapify,
    "heappop": heaps.heappop,
    "heappush": heaps.heappush,
    "heappushpop": heaps.heappushpop,
    "heapreplace": heaps.heapreplace,
    "_heapify_max": heaps.heapify_max,
    "_heappop_max": heaps.heappop_max,
    "_heapreplace_max": heaps.heapreplace_max,
    "heappush_max": heaps.heappush_max,
    "heappushpop_max": heaps.heappushpop_max,
}
_native: Any
_python: Any
for _name, _python in _OF_HEAPS.items():
    if hasattr(heapq, _name):
        _polyfill(getattr(heapq, _name), _python, _is_of_heap)

for _native, _python in {
    bisect.bisect_left: sorted_lists.bisect_left,
    bisect.bisect_right: sorted_lists.bisect_right,
    bisect.insort_left: sorted_lists.insort_left,
    bisect.insort_right: sorted_lists.insort_right,
    functools.cmp_to_key: folds.cmp_to_key,
    vars(collections)["_count_elements"]: folds.count_elements,
    itertools.groupby: groups.groupby,
}.items():
    _polyfill(_native, _python, _may_run_code)

_polyfill(functools.reduce, folds.reduce, _is_fold)

for _native, _python in {
    list.index: searches.list_index,
    collections.deque.index: searches.deque_index,
    tuple.index: searches.tuple_index,
    operator.indexOf: searches.index_of,
    list.remove: searches.list_remove,
    collections.deque.remove: searches.deque_remove,
    list.count: searches.count,
    collections.deque.count: searches.count,
    tuple.count: searches.count,
    operator.countOf: searches.count,
}.items():
    _polyfill(_native, _python, _is_search)
