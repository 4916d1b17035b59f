"""Native callables that call back: which of their arguments are functions of the program, and which are
iterated.

A function argument is handed over as a shim that re-enters the interpreter, an iterable whose iteration is
written in Python as a native generator that interprets it. Everything else about such a call is the native
code's business.
"""

from __future__ import annotations

import bisect
import builtins
import collections
import contextvars
import functools
import itertools
import re
import weakref
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from thunder.interpreter.iteration import is_python_iterable, iterate, native_iterable
from thunder.interpreter.lookup import is_a, python_special
from thunder.interpreter.native_registry import Native
from thunder.interpreter.policy import MISSING

if TYPE_CHECKING:
    from thunder.interpreter.machine import Machine

Arguments: TypeAlias = tuple[tuple[Any, ...], dict[str, Any]]


class Row(NamedTuple):
    """What a native callable does with its arguments, by position (``-1``: all of them) or keyword."""

    fn: Any
    functions: tuple[int | str, ...] = ()
    iterables: tuple[int | str, ...] = ()
    takes_classes: bool = False  # a class among the functions is a class to it, not something to call


ALL: Final = -1

_LRU_CACHE_WRAPPER: Final = type(functools.lru_cache(len))

ROWS: Final = [
    # functions, with the iterables they walk
    Row(map, functions=(0,), iterables=(ALL,)),
    Row(filter, functions=(0,), iterables=(1,)),
    Row(functools.reduce, functions=(0,), iterables=(1,)),
    Row(itertools.accumulate, functions=(1, "func"), iterables=(0,)),
    Row(itertools.dropwhile, functions=(0,), iterables=(1,)),
    Row(itertools.takewhile, functions=(0,), iterables=(1,)),
    Row(itertools.filterfalse, functions=(0,), iterables=(1,)),
    Row(itertools.groupby, functions=(1, "key"), iterables=(0,)),
    Row(itertools.starmap, functions=(0,), iterables=(1,)),
    Row(re.Pattern.sub, functions=(1, "repl")),
    Row(re.Pattern.subn, functions=(1, "repl")),
    Row(bisect.bisect_left, functions=("key",)),
    Row(bisect.bisect_right, functions=("key",)),
    Row(bisect.insort_left, functions=("key",)),
    Row(bisect.insort_right, functions=("key",)),
    Row(functools.cmp_to_key, functions=(0, "mycmp")),
    Row(_LRU_CACHE_WRAPPER, functions=(0,)),
    Row(collections.defaultdict, functions=(0,), iterables=(1,)),
    Row(contextvars.Context.run, functions=(1,)),
    Row(BaseExceptionGroup.split, functions=(1,), takes_classes=True),
    Row(BaseExceptionGroup.subgroup, functions=(1,), takes_classes=True),
    Row(weakref.ref, functions=(1,)),
    Row(weakref.proxy, functions=(1,)),
    # iterables alone
    Row(zip, iterables=(ALL,)),
    Row(enumerate, iterables=(0, "iterable")),
    Row(list, iterables=(0,)),
    Row(tuple, iterables=(0,)),
    Row(set, iterables=(0,)),
    Row(frozenset, iterables=(0,)),
    Row(bytearray, iterables=(0,)),
    Row(collections.deque, iterables=(0, "iterable")),
    Row(list.extend, iterables=(1,)),
    Row(list.__init__, iterables=(1,)),
    Row(set.update, iterables=(ALL,)),
    Row(set.union, iterables=(ALL,)),
    Row(set.intersection, iterables=(ALL,)),
    Row(set.difference, iterables=(ALL,)),
    Row(set.issubset, iterables=(1,)),
    Row(set.issuperset, iterables=(1,)),
    Row(set.isdisjoint, iterables=(1,)),
    Row(frozenset.union, iterables=(ALL,)),
    Row(str.join, iterables=(1,)),
    Row(bytes.join, iterables=(1,)),
    Row(collections.deque.extend, iterables=(1,)),
    Row(collections.deque.extendleft, iterables=(1,)),
    Row(dict.fromkeys, iterables=(0,)),
    Row(itertools.chain, iterables=(ALL,)),
    Row(itertools.combinations, iterables=(0,)),
    Row(itertools.combinations_with_replacement, iterables=(0,)),
    Row(itertools.permutations, iterables=(0,)),
    Row(itertools.product, iterables=(ALL,)),
    Row(itertools.compress, iterables=(0, 1)),
    Row(itertools.cycle, iterables=(0,)),
    Row(itertools.islice, iterables=(0,)),
    Row(itertools.pairwise, iterables=(0,)),
    Row(itertools.tee, iterables=(0,)),
    Row(itertools.zip_longest, iterables=(ALL,)),
]


def prepare(machine: Machine, row: Row, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Arguments:
    """The arguments as native code may have them."""
    positional = list(args)
    keywords = dict(kwargs)
    for at in row.functions:
        if isinstance(at, str):
            if at in keywords:
                keywords[at] = _function(machine, row, keywords[at])
        elif at < len(positional):
            positional[at] = _function(machine, row, positional[at])
    for at in row.iterables:
        if isinstance(at, str):
            if at in keywords:
                keywords[at] = native_iterable(machine, keywords[at])
        else:
            for i in range(len(positional)) if at == ALL else (at,):
                if i < len(positional) and i not in row.functions:
                    positional[i] = native_iterable(machine, positional[i])
    return tuple(positional), keywords


def _function(machine: Machine, row: Row, fn: Any) -> Any:
    if not callable(fn) or (row.takes_classes and is_a(fn, type)):
        return fn
    return machine.shim(fn)


def _entry(row: Row) -> Native:
    def call(machine: Machine, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        args, kwargs = prepare(machine, row, args, kwargs)
        return machine.policy.call_native(row.fn, args, kwargs)

    return call


def _class_method_entry(row: Row) -> Native:
    """For a method bound to a class (``dict.fromkeys``): the class comes first among the arguments."""
    descriptor = row.fn.__self__.__dict__[row.fn.__name__]

    def call(machine: Machine, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        owner, *rest = args
        positional, keywords = prepare(machine, row, tuple(rest), kwargs)
        return machine.policy.call_native(descriptor.__get__(None, owner), positional, keywords)

    return call


def _is_class_method(fn: Any) -> bool:
    return isinstance(getattr(fn, "__self__", None), type)


def _constructor(row: Row) -> Callable[[Machine, tuple[Any, ...], dict[str, Any]], Arguments]:
    def arguments(machine: Machine, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Arguments:
        return prepare(machine, row, args, kwargs)

    return arguments


def pairs_of_mapping(machine: Machine, source: Any) -> Any:
    """What ``dict(source)`` reads, as something native code can read without running functions of the
    program.
    """
    cls = type(source)
    has_own_keys = cls is not dict and python_special(machine, cls, "keys") is not MISSING
    if has_own_keys and (
        dict not in cls.__mro__ or python_special(machine, cls, "__getitem__") is not MISSING
    ):
        keys = machine.policy.call(machine.policy.load_attr(source, "keys"), (), {})
        return [(key, machine.load_item(source, key)) for key in iterate(machine, keys)]
    if is_python_iterable(machine, source) and not issubclass(cls, dict):
        return [tuple(iterate(machine, pair)) for pair in iterate(machine, source)]
    return source


def _dict_arguments(machine: Machine, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Arguments:
    return tuple(pairs_of_mapping(machine, arg) for arg in args), kwargs


def _dict(machine: Machine, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return machine.policy.call_native(dict, *_dict_arguments(machine, args, kwargs))


def _dict_update(machine: Machine, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    sources = tuple(pairs_of_mapping(machine, arg) for arg in args[1:])
    return machine.policy.call_native(dict.update, (*args[:1], *sources), kwargs)


def _native_each(machine: Machine, outer: Any) -> Iterator[Any]:
    for inner in iterate(machine, outer):
        yield native_iterable(machine, inner)


def _chain_from_iterable(machine: Machine, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    owner, *rest = args
    if len(rest) == 1 and not kwargs:
        # The outer iterable is advanced as lazily as the native function does.
        rest = [_native_each(machine, rest[0])]
    return machine.policy.call_native(owner.from_iterable, tuple(rest), kwargs)


def _referent(machine: Machine, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if len(args) != 1 or kwargs:
        return machine.policy.call_native(weakref.ref.__call__, args, kwargs)
    return machine.policy.referent(args[0])


CALLBACKS: Final[dict[int, Native]] = {
    **{id(row.fn): _entry(row) for row in ROWS if not _is_class_method(row.fn)},
    # Methods bound to a class are bound anew at each read: they are found by their descriptors.
    **{
        id(row.fn.__self__.__dict__[row.fn.__name__]): _class_method_entry(row)
        for row in ROWS
        if _is_class_method(row.fn)
    },
    id(weakref.ref.__call__): _referent,
    id(dict): _dict,
    id(dict.update): _dict_update,
    id(itertools.chain.__dict__["from_iterable"]): _chain_from_iterable,
}
"""Entries by identity of the callable or method descriptor."""

CONSTRUCTORS: Final = {row.fn: _constructor(row) for row in ROWS if is_a(row.fn, type)} | {
    dict: _dict_arguments
}
"""Entries for subclasses of native classes."""

assert builtins.map in CONSTRUCTORS, "classes among the rows also serve their subclasses"
