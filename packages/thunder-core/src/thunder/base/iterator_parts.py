"""The parts of a native iterator or generator, which tell what it would yield, without advancing it."""

from __future__ import annotations

import gc
import inspect
import itertools
import operator
import types
import warnings
from collections.abc import Callable
from typing import Any, Final

__all__ = [
    "FUNCTION",
    "GETTERS",
    "OF_ELEMENTS",
    "OVER_ITERATORS",
    "OVER_RANGE",
    "POSITION",
    "READABLE",
    "function_of",
    "part_of_iterator",
    "parts_and_position",
    "reduced",
    "set_state",
    "variables_of",
]

#: keys of parts, beside the numbers of the arguments that make an iterator and the variables of a generator
FUNCTION: Final = "<function>"
POSITION: Final = "<position>"

#: the iterators of ranges
OVER_RANGE: Final = type(iter(range(0)))
#: iterators over elements that exist: what makes one, and its position
OF_ELEMENTS: Final = frozenset(
    map(type, (iter([]), iter(()), iter(""), iter("é"), iter(b""), iter(range(0)), reversed([])))
)
#: iterators that only advance others
OVER_ITERATORS: Final = frozenset(
    {zip, map, filter, itertools.starmap, itertools.filterfalse, itertools.compress}
)
#: iterators whose arguments are all that they refer to after their class, in this order; they have no state.
#: From Python 3.14 on the iterators of itertools have no ``__reduce__``: the parts of these alone are known.
_REFERRING: Final[dict[type, Callable[..., tuple[Any, ...]]]] = {
    itertools.starmap: lambda iterator, function: (function, iterator),
    itertools.filterfalse: lambda iterator, function: (function, iterator),
    itertools.compress: lambda data, selectors: (data, selectors),
    itertools.repeat: lambda value: (value,),
}
#: iterators with parts
READABLE: Final = frozenset(
    cls
    for cls in (
        *(*OF_ELEMENTS, *OVER_ITERATORS, enumerate),
        *(itertools.takewhile, itertools.dropwhile, itertools.repeat, itertools.cycle),
    )
    if "__reduce__" in vars(cls) or cls in _REFERRING
)

#: callables with parts that never change
GETTERS: Final = frozenset({operator.attrgetter, operator.itemgetter, operator.methodcaller})


def reduced(iterator: Any) -> Any:
    """Return what makes an iterator, the arguments, and the state, as ``__reduce__`` does."""
    cls = type(iterator)
    if cls not in _REFERRING or "__reduce__" in vars(cls):
        return _called(iterator, "__reduce__")
    args = _REFERRING[cls](*gc.get_referents(iterator)[1:])
    if cls is itertools.repeat and (left := operator.length_hint(iterator, -1)) >= 0:
        args = (*args, left)
    return cls, args


def set_state(iterator: Any, state: Any) -> None:
    """Put an iterator where another one was, whose ``__reduce__`` returned the state."""
    _called(iterator, "__setstate__", state)


def _called(iterator: Any, method: str, *args: Any) -> Any:
    if type(iterator).__module__ != "itertools":
        return getattr(iterator, method)(*args)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of the iterators of itertools, from 3.12 on
        return getattr(iterator, method)(*args)


def parts_and_position(iterator: Any) -> tuple[tuple[Any, ...], Any]:
    """Return the parts of an iterator in ``READABLE``, and its position, or None if it has none.

    Those of a callable in ``GETTERS`` are its arguments; their number and the names of the last are in place
    of the position. The parts of a ``cycle`` are the elements that it keeps, and, until these are all, if
    it is past the first pass, and the iterator that it advances. Of an iterator over a range the part is what
    is left of it, and the position the negative of its length.
    """
    made_by, args, *state = reduced(iterator)
    if type(iterator) in GETTERS:  # keywords are in a partial of the class
        keywords = made_by.keywords if made_by is not type(iterator) else {}
        before = made_by.args if made_by is not type(iterator) else ()
        parts = (*before, *args, *keywords.values())
        return parts, (len(parts), *keywords)
    if type(iterator) in (enumerate, itertools.repeat):  # the position is the second argument
        return args[:1], (args[1] if len(args) > 1 else None)
    if type(iterator) is itertools.cycle:
        kept, is_past = state[0]
        if reduced(iterator)[1][0] is args[0]:
            return (kept, is_past, args[0]), None
        return (kept,), parts_and_position(args[0])[1]  # made by `__reduce__`, to tell the position
    position = state[0] if state else None
    if type(iterator) is OVER_RANGE:  # from Python 3.12 on it tells what is left, and no position
        left = args[0] if position is None else args[0][position:]
        return (left,), -len(left) or None
    return args, position


def function_of(generator: types.GeneratorType[Any, Any, Any]) -> Any:
    """Return the function whose call made a generator, which has not ended, or None."""
    code = generator.gi_code
    functions = (f for f in gc.get_referents(generator) if isinstance(f, types.FunctionType))
    return next((f for f in functions if f.__code__ is code), None)


def variables_of(generator: types.GeneratorType[Any, Any, Any]) -> dict[str, Any]:
    """Return the variables of a generator, which has not ended."""
    frame = generator.gi_frame
    assert frame is not None, "a generator that has not ended has a frame"
    return frame.f_locals


def part_of_iterator(iterator: Any, key: Any, absent: Any) -> Any:
    """Return an argument of an iterator by its number, its position, or a part of a generator.

    Return ``absent`` where there is none, as of a generator whose body has begun.
    """
    if type(iterator) is types.GeneratorType:
        if inspect.getgeneratorstate(iterator) != inspect.GEN_CREATED:
            return absent
        return (
            (function_of(iterator) or absent) if key == FUNCTION else variables_of(iterator).get(key, absent)
        )
    if type(iterator) not in READABLE | GETTERS:
        return absent
    parts, position = parts_and_position(iterator)
    if key == POSITION:
        return position
    return parts[key] if type(key) is int and key < len(parts) else absent
