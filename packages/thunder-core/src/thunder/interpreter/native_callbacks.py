"""Native callables that call back: which arguments are functions, which are iterated.

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
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from thunder.interpreter import operator_protocols
from thunder.interpreter.iteration import is_python_iterable, iterate, native_iterable, unpack
from thunder.interpreter.lookup import has_python_special, is_a, optional_attribute, python_special
from thunder.interpreter.native_registry import Native
from thunder.interpreter.operator_protocols import contains
from thunder.interpreter.policy import MISSING

if TYPE_CHECKING:
    from thunder.interpreter.machine import Machine

Arguments: TypeAlias = tuple[tuple[Any, ...], dict[str, Any]]


class CallbackRow(NamedTuple):
    """The arguments of a native callable by use: positions (``-1``: all) or keywords."""

    fn: Any
    functions: tuple[int | str, ...] = ()
    iterables: tuple[int | str, ...] = ()
    takes_classes: bool = False  # a class among the functions is a class to it, not something to call


ALL: Final = -1

_LRU_CACHE_WRAPPER: Final = type(functools.lru_cache(len))

ROWS: Final = [
    # functions, with the iterables they walk
    CallbackRow(map, functions=(0,), iterables=(ALL,)),
    CallbackRow(filter, functions=(0,), iterables=(1,)),
    CallbackRow(functools.reduce, functions=(0,), iterables=(1,)),
    CallbackRow(itertools.accumulate, functions=(1, "func"), iterables=(0,)),
    CallbackRow(itertools.dropwhile, functions=(0,), iterables=(1,)),
    CallbackRow(itertools.takewhile, functions=(0,), iterables=(1,)),
    CallbackRow(itertools.filterfalse, functions=(0,), iterables=(1,)),
    CallbackRow(itertools.groupby, functions=(1, "key"), iterables=(0,)),
    CallbackRow(itertools.starmap, functions=(0,), iterables=(1,)),
    CallbackRow(re.Pattern.sub, functions=(1, "repl")),
    CallbackRow(re.Pattern.subn, functions=(1, "repl")),
    CallbackRow(bisect.bisect_left, functions=("key",)),
    CallbackRow(bisect.bisect_right, functions=("key",)),
    CallbackRow(bisect.insort_left, functions=("key",)),
    CallbackRow(bisect.insort_right, functions=("key",)),
    CallbackRow(functools.cmp_to_key, functions=(0, "mycmp")),
    CallbackRow(_LRU_CACHE_WRAPPER, functions=(0,)),
    CallbackRow(collections.defaultdict, functions=(0,), iterables=(1,)),
    CallbackRow(contextvars.Context.run, functions=(1,)),
    CallbackRow(BaseExceptionGroup.split, functions=(1,), takes_classes=True),
    CallbackRow(BaseExceptionGroup.subgroup, functions=(1,), takes_classes=True),
    CallbackRow(weakref.ref, functions=(1,)),
    CallbackRow(weakref.proxy, functions=(1,)),
    # iterables alone
    CallbackRow(zip, iterables=(ALL,)),
    CallbackRow(enumerate, iterables=(0, "iterable")),
    CallbackRow(list, iterables=(0,)),
    CallbackRow(tuple, iterables=(0,)),
    CallbackRow(set, iterables=(0,)),
    CallbackRow(frozenset, iterables=(0,)),
    CallbackRow(bytearray, iterables=(0,)),
    CallbackRow(collections.deque, iterables=(0, "iterable")),
    CallbackRow(list.extend, iterables=(1,)),
    CallbackRow(list.__init__, iterables=(1,)),
    CallbackRow(collections.deque.__init__, iterables=(1, "iterable")),
    CallbackRow(collections.defaultdict.__init__, functions=(1,), iterables=(2,)),
    CallbackRow(set.__init__, iterables=(1,)),
    CallbackRow(set.update, iterables=(ALL,)),
    CallbackRow(set.union, iterables=(ALL,)),
    CallbackRow(set.intersection, iterables=(ALL,)),
    CallbackRow(set.difference, iterables=(ALL,)),
    CallbackRow(set.issubset, iterables=(1,)),
    CallbackRow(set.issuperset, iterables=(1,)),
    CallbackRow(set.isdisjoint, iterables=(1,)),
    CallbackRow(frozenset.union, iterables=(ALL,)),
    CallbackRow(str.join, iterables=(1,)),
    CallbackRow(bytes.join, iterables=(1,)),
    CallbackRow(collections.deque.extend, iterables=(1,)),
    CallbackRow(collections.deque.extendleft, iterables=(1,)),
    CallbackRow(itertools.chain, iterables=(ALL,)),
    CallbackRow(itertools.combinations, iterables=(0,)),
    CallbackRow(itertools.combinations_with_replacement, iterables=(0,)),
    CallbackRow(itertools.permutations, iterables=(0,)),
    CallbackRow(itertools.product, iterables=(ALL,)),
    CallbackRow(itertools.compress, iterables=(0, 1)),
    CallbackRow(itertools.cycle, iterables=(0,)),
    CallbackRow(itertools.islice, iterables=(0,)),
    CallbackRow(itertools.pairwise, iterables=(0,)),
    CallbackRow(itertools.tee, iterables=(0,)),
    CallbackRow(itertools.zip_longest, iterables=(ALL,)),
]


def prepare(machine: Machine, row: CallbackRow, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Arguments:
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


def _function(machine: Machine, row: CallbackRow, fn: Any) -> Any:
    if not callable(fn) or (row.takes_classes and is_a(fn, type)):
        return fn
    return machine.shim(fn)


def _entry(row: CallbackRow) -> Native:
    def call(machine: Machine, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        args, kwargs = prepare(machine, row, args, kwargs)
        return machine.policy.call_native(row.fn, args, kwargs)

    return call


def _class_method_entry(row: CallbackRow) -> Native:
    """Return the entry of a class method (``dict.fromkeys``), whose class comes first."""
    descriptor = row.fn.__self__.__dict__[row.fn.__name__]

    def call(machine: Machine, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        owner, *rest = args
        positional, keywords = prepare(machine, row, tuple(rest), kwargs)
        return machine.policy.call_native(descriptor.__get__(None, owner), positional, keywords)

    return call


def _is_class_method(fn: Any) -> bool:
    return isinstance(getattr(fn, "__self__", None), type)


def _constructor(row: CallbackRow) -> Callable[[Machine, tuple[Any, ...], dict[str, Any]], Arguments]:
    def arguments(machine: Machine, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Arguments:
        return prepare(machine, row, args, kwargs)

    return arguments


def pairs_of_mapping(machine: Machine, source: Any) -> Any:
    """Return the source of a ``dict(source)`` call in a form that native code can read."""
    cls = type(source)
    if cls is dict or (is_a(source, dict) and machine.policy.type_attr(cls, "__iter__") is dict.__iter__):
        return source  # native code reads the items of such a subclass without its methods
    names = ("keys", "__getitem__", "__iter__") if is_a(source, dict) else ("keys",)
    if any(python_special(machine, cls, name) is not MISSING for name in names):
        keys = machine.policy.call(machine.policy.load_attr(source, "keys"), (), {})
        return [(key, machine.load_item(source, key)) for key in iterate(machine, keys)]
    if is_python_iterable(machine, source):
        return [tuple(iterate(machine, pair)) for pair in iterate(machine, source)]
    return source


def _dict_arguments(machine: Machine, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Arguments:
    return tuple(pairs_of_mapping(machine, arg) for arg in args), kwargs


def _dict(machine: Machine, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return machine.policy.call_native(dict, *_dict_arguments(machine, args, kwargs))


def _dict_init(machine: Machine, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    sources = tuple(pairs_of_mapping(machine, arg) for arg in args[1:])
    return machine.policy.call_native(dict.__init__, (*args[:1], *sources), kwargs)


def _dict_update(machine: Machine, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    sources = tuple(pairs_of_mapping(machine, arg) for arg in args[1:])
    return machine.policy.call_native(dict.update, (*args[:1], *sources), kwargs)


def _dict_copy(machine: Machine, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    sources = tuple(pairs_of_mapping(machine, arg) for arg in args)
    is_listed = len(args) == 1 and sources[0] is not args[0]
    return machine.policy.call_native(dict if is_listed else dict.copy, sources, kwargs)


# -- what native code does by methods of the class, if a class is derived from the builtin -------------------


def _fill(machine: Machine, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """``OrderedDict.update`` and ``OrderedDict.__init__``, which store items by ``__setitem__``."""
    mapping, *sources = args
    if len(sources) > 1 or python_special(machine, type(mapping), "__setitem__") is MISSING:
        sources = [pairs_of_mapping(machine, source) for source in sources]
        machine.policy.call_native(OrderedDict.update, (mapping, *sources), kwargs)
        return
    for source in (*sources, kwargs):
        for key, value in _pairs(machine, source):
            machine.store_item(mapping, key, value)


def _pairs(machine: Machine, source: Any) -> Iterator[Any]:
    """Yield the pairs of a mapping, or of an iterable of pairs."""
    keys = MISSING if type(source) is dict else optional_attribute(machine, source, "keys")
    if type(source) is dict:
        yield from source.items()
    elif keys is not MISSING:
        for key in iterate(machine, machine.policy.call(keys, (), {})):
            yield key, machine.load_item(source, key)
    else:
        for pair in iterate(machine, source):
            yield unpack(machine, pair, 2)


def _ordered_setdefault(machine: Machine, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    names = ("__contains__", "__getitem__", "__setitem__")
    if not args or not has_python_special(machine, args[0], *names) or len(args) + len(kwargs) > 3:
        return machine.policy.call_native(OrderedDict.setdefault, args, kwargs)
    given = dict(zip(("key", "default"), args[1:], strict=False)) | kwargs
    mapping, key, value = args[0], given["key"], given.get("default")
    if contains(machine, mapping, key):
        return machine.load_item(mapping, key)
    machine.store_item(mapping, key, value)
    return value


def _ordered_copy(machine: Machine, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if not args or type(args[0]) is OrderedDict:
        return machine.policy.call_native(OrderedDict.copy, args, kwargs)
    copied = machine.policy.call(type(args[0]), (), {})
    for key in machine.policy.call_native(list, (OrderedDict.keys(args[0]),), {}):
        machine.store_item(copied, key, machine.load_item(args[0], key))
    return copied


def _from_keys(machine: Machine, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """``cls.fromkeys(keys, value=None)``: a class in Python creates the dict and stores its items."""
    cls, *rest = args
    if cls in (dict, OrderedDict):
        rest = [native_iterable(machine, rest[0]), *rest[1:]] if rest else rest
        return machine.policy.call_native(cls.fromkeys, tuple(rest), kwargs)
    mapping = machine.policy.call(cls, (), {})
    for key in iterate(machine, rest[0]):
        machine.store_item(mapping, key, rest[1] if len(rest) > 1 else kwargs.get("value"))
    return mapping


def _default_copy(machine: Machine, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if not args or type(args[0]) is collections.defaultdict:
        return machine.policy.call_native(collections.defaultdict.copy, args, kwargs)
    factory = machine.policy.load_attr(args[0], "default_factory")
    return machine.policy.call(type(args[0]), (factory, args[0]), {})


def _deque_copy(machine: Machine, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if not args or type(args[0]) is collections.deque:
        return machine.policy.call_native(collections.deque.copy, args, kwargs)
    length = machine.policy.load_attr(args[0], "maxlen")
    return machine.policy.call(type(args[0]), (args[0],) if length is None else (args[0], length), {})


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
    # Methods bound to a class are created at each read: they are found by their descriptors.
    **{
        id(row.fn.__self__.__dict__[row.fn.__name__]): _class_method_entry(row)
        for row in ROWS
        if _is_class_method(row.fn)
    },
    id(weakref.ref.__call__): _referent,
    id(dict): _dict,
    id(dict.update): _dict_update,
    id(dict.__init__): _dict_init,
    id(dict.copy): _dict_copy,
    id(dict.__dict__["fromkeys"]): _from_keys,
    id(OrderedDict.__dict__["fromkeys"]): _from_keys,
    id(OrderedDict.__init__): _fill,
    id(OrderedDict.update): _fill,
    id(OrderedDict.setdefault): _ordered_setdefault,
    id(OrderedDict.copy): _ordered_copy,
    id(collections.defaultdict.copy): _default_copy,
    id(collections.defaultdict.__copy__): _default_copy,
    id(collections.deque.copy): _deque_copy,
    id(collections.deque.__copy__): _deque_copy,
    id(collections.defaultdict.__missing__): operator_protocols.missing_of_defaultdict,
    id(itertools.chain.__dict__["from_iterable"]): _chain_from_iterable,
}
"""Entries by identity of the callable or method descriptor."""

CONSTRUCTORS: Final = {row.fn: _constructor(row) for row in ROWS if is_a(row.fn, type)} | {
    dict: _dict_arguments
}
"""Entries for subclasses of native classes."""

assert builtins.map in CONSTRUCTORS, "classes among the rows also serve their subclasses"
