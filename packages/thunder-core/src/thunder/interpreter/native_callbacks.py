"""Native callables that call back: which arguments are functions, which are iterated.

A function argument is handed over as a shim that re-enters the interpreter, an iterable whose iteration is
written in Python as a native generator that interprets it. Everything else about such a call is the native
code's business.
"""

from __future__ import annotations

import _struct
import builtins
import cmath
import collections
import contextvars
import functools
import itertools
import math
import operator
import os
import re
import types
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from thunder.interpreter import operator_protocols
from thunder.interpreter.iteration import is_python_iterable, iterate, native_iterable, unpack
from thunder.interpreter.lookup import (
    ITERATOR_TYPES,
    all_leaves,
    has_python_special,
    is_a,
    optional_attribute,
    python_special,
    stand_in,
)
from thunder.interpreter.native_registry import Native
from thunder.interpreter.operator_protocols import contains, truth
from thunder.interpreter.policy import MISSING

if TYPE_CHECKING:
    from thunder.interpreter.machine import Machine

Arguments: TypeAlias = tuple[tuple[Any, ...], dict[str, Any]]


class CallbackRow(NamedTuple):
    """The arguments of a native callable by use: positions (``-1``: all) or keywords.

    ``predicates`` are functions of whose answers C code asks the truth, ``values`` what it reads by special
    methods and keeps nowhere, and ``elements`` iterables of such values.
    """

    fn: Any
    functions: tuple[int | str, ...] = ()
    iterables: tuple[int | str, ...] = ()
    predicates: tuple[int | str, ...] = ()
    values: tuple[int | str, ...] = ()
    elements: tuple[int | str, ...] = ()
    takes_classes: bool = False  # a class among the functions is a class to it, not something to call


ALL: Final = -1

_LRU_CACHE_WRAPPER: Final = type(functools.lru_cache(len))


def _functions(*modules: Any) -> list[Any]:
    """Return the functions of modules in C."""
    members = (value for module in modules for value in vars(module).values())
    return [fn for fn in members if isinstance(fn, types.BuiltinFunctionType)]


def _methods(cls: type, *names: str) -> list[Any]:
    """Return the descriptors that a class in C has for methods, except constructors and comparisons."""
    kinds = (types.MethodDescriptorType, types.WrapperDescriptorType)
    own = {name: method for name, method in vars(cls).items() if isinstance(method, kinds)}
    return [own[name] for name in names or own if name in own and name not in _OTHER_METHODS]


#: methods that read no argument, that make texts of them, or that have rows or entries of their own
_OTHER_METHODS: Final = frozenset(
    {f"__{name}__" for name in ("init", "iter", "repr", "str", "hash", "format", "mod", "rmod", "contains")}
    | {f"__{name}__" for name in ("eq", "ne", "lt", "le", "gt", "ge", "getattribute", "setattr", "delattr")}
    | {"format", "format_map", "join", "extend"}
)
#: functions that compute with numbers and texts, and keep no argument
_COMPUTING: Final = [
    *_functions(math, cmath, _struct),
    *(m for cls in (int, float, complex, str, bytes, bytearray, slice, range) for m in _methods(cls)),
    *(chr, bin, oct, hex, range, operator.length_hint, os.fspath),
]
#: methods of sequences that take a position or a count first
_OF_SEQUENCES: Final = ("getitem", "delitem", "setitem", "mul", "rmul", "imul")
#: those with entries of their own, or with rows for sequences of numbers
_OTHERS: Final = (math.floor, math.ceil, math.trunc, math.prod, math.fsum, math.dist)
ROWS: Final = [
    # functions, with the iterables they walk
    CallbackRow(map, functions=(0,), iterables=(ALL,)),
    CallbackRow(filter, predicates=(0,), iterables=(1,)),
    CallbackRow(itertools.dropwhile, predicates=(0,), iterables=(1,)),
    CallbackRow(itertools.takewhile, predicates=(0,), iterables=(1,)),
    CallbackRow(itertools.filterfalse, predicates=(0,), iterables=(1,)),
    CallbackRow(itertools.starmap, functions=(0,), iterables=(1,)),
    CallbackRow(re.Pattern.sub, functions=(1, "repl"), values=(3, "count")),
    CallbackRow(re.Pattern.subn, functions=(1, "repl"), values=(3, "count")),
    CallbackRow(_LRU_CACHE_WRAPPER, functions=(0,)),
    CallbackRow(collections.defaultdict, functions=(0,), iterables=(1,)),
    CallbackRow(collections.deque, iterables=(0, "iterable"), values=(1, "maxlen")),
    CallbackRow(contextvars.Context.run, functions=(1,)),
    CallbackRow(BaseExceptionGroup.split, functions=(1,), takes_classes=True),
    CallbackRow(BaseExceptionGroup.subgroup, functions=(1,), takes_classes=True),
    CallbackRow(weakref.ref, functions=(1,)),
    CallbackRow(weakref.proxy, functions=(1,)),
    # iterables alone
    CallbackRow(zip, iterables=(ALL,)),
    CallbackRow(enumerate, iterables=(0, "iterable"), values=(1, "start")),
    CallbackRow(list, iterables=(0,)),
    CallbackRow(tuple, iterables=(0,)),
    CallbackRow(set, iterables=(0,)),
    CallbackRow(frozenset, iterables=(0,)),
    CallbackRow(bytes, elements=(0,)),
    CallbackRow(bytearray, elements=(0,)),
    CallbackRow(bytearray.extend, elements=(1,)),
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
    CallbackRow(set.symmetric_difference, iterables=(1,)),
    CallbackRow(set.difference_update, iterables=(ALL,)),
    CallbackRow(set.intersection_update, iterables=(ALL,)),
    CallbackRow(set.symmetric_difference_update, iterables=(1,)),
    CallbackRow(frozenset.union, iterables=(ALL,)),
    CallbackRow(frozenset.intersection, iterables=(ALL,)),
    CallbackRow(frozenset.difference, iterables=(ALL,)),
    CallbackRow(frozenset.symmetric_difference, iterables=(1,)),
    CallbackRow(frozenset.issubset, iterables=(1,)),
    CallbackRow(frozenset.issuperset, iterables=(1,)),
    CallbackRow(frozenset.isdisjoint, iterables=(1,)),
    CallbackRow(str.join, iterables=(1,)),
    CallbackRow(bytes.join, iterables=(1,)),
    CallbackRow(collections.deque.extend, iterables=(1,)),
    CallbackRow(collections.deque.extendleft, iterables=(1,)),
    CallbackRow(itertools.chain, iterables=(ALL,)),
    CallbackRow(itertools.combinations, iterables=(0,), values=(1, "r")),
    CallbackRow(itertools.combinations_with_replacement, iterables=(0,), values=(1, "r")),
    CallbackRow(itertools.permutations, iterables=(0,), values=(1, "r")),
    CallbackRow(itertools.product, iterables=(ALL,), values=("repeat",)),
    CallbackRow(itertools.compress, iterables=(0,), elements=(1,)),
    CallbackRow(itertools.cycle, iterables=(0,)),
    CallbackRow(itertools.islice, iterables=(0,), values=(1, 2, 3)),
    CallbackRow(itertools.pairwise, iterables=(0,)),
    CallbackRow(itertools.repeat, values=(1, "times")),
    CallbackRow(itertools.tee, iterables=(0,), values=(1,)),
    CallbackRow(itertools.zip_longest, iterables=(ALL,)),
    # values that are read and not kept
    *(CallbackRow(fn, values=(ALL,)) for fn in _COMPUTING if fn not in _OTHERS),
    CallbackRow(math.fsum, elements=(0,)),
    CallbackRow(math.dist, elements=(ALL,)),
    *(
        CallbackRow(method, values=(1,))
        for cls in (list, tuple, collections.deque)
        for method in _methods(cls, *(f"__{name}__" for name in _OF_SEQUENCES))
        if method is not list.__setitem__
    ),
    *(CallbackRow(m, values=(1,)) for m in (list.insert, collections.deque.insert, collections.deque.rotate)),
    CallbackRow(list.pop, values=(1,)),
    *(
        CallbackRow(method, values=(2, 3, "pos", "endpos"))
        for method in _methods(re.Pattern, "match", "search", "fullmatch", "findall", "finditer")
    ),
    CallbackRow(re.Pattern.split, values=(2, "maxsplit")),
]


def prepare(machine: Machine, row: CallbackRow, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Arguments:
    """The arguments as native code may have them."""
    positional = list(args)
    keywords = dict(kwargs)
    uses = (row.functions, row.iterables, row.predicates, row.values, row.elements)
    for places, convert in zip(uses, _CONVERSIONS, strict=True):
        for at in places:
            if isinstance(at, str):
                if at in keywords:
                    keywords[at] = convert(machine, row, keywords[at])
                continue
            for i in range(len(positional)) if at == ALL else (at,):
                if i < len(positional) and not (at == ALL and i in row.functions):
                    positional[i] = convert(machine, row, positional[i])
            if at == ALL and convert is _value:
                keywords = {name: _value(machine, row, value) for name, value in keywords.items()}
    return tuple(positional), keywords


def _function(machine: Machine, row: CallbackRow, fn: Any) -> Any:
    if not callable(fn) or (row.takes_classes and is_a(fn, type)):
        return fn
    return machine.shim(fn)


def _iterable(machine: Machine, row: CallbackRow, obj: Any) -> Any:
    return native_iterable(machine, obj)


def _predicate(machine: Machine, row: CallbackRow, fn: Any) -> Any:
    is_truth = fn is None and row.fn in (filter, itertools.filterfalse)
    return machine.shim(bool if is_truth else fn, truth) if is_truth or callable(fn) else fn


def _value(machine: Machine, row: CallbackRow, value: Any) -> Any:
    return stand_in(machine, value)


def _elements(machine: Machine, row: CallbackRow, obj: Any) -> Any:
    cls = type(obj)
    machine.policy.read_items(obj)
    if cls is list or cls is tuple:
        return obj if all_leaves(obj) else cls(stand_in(machine, value) for value in obj)
    if issubclass(cls, _ITERABLES) or (
        is_python_iterable(machine, obj) and not has_python_special(machine, obj, "__index__", "__bytes__")
    ):
        return (stand_in(machine, value) for value in iterate(machine, obj))
    return stand_in(machine, obj)


_ITERABLES: Final = (*ITERATOR_TYPES, types.GeneratorType, set, frozenset, dict, collections.deque)
_CONVERSIONS: Final = (_function, _iterable, _predicate, _value, _elements)


def _entry(row: CallbackRow) -> Native:
    def call(machine: Machine, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if kwargs or not all_leaves(args):
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


def _accumulate(machine: Machine, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """``itertools.accumulate``, which adds where it has no function."""
    if len(args) < 2 or args[1] is None:
        args, kwargs = args[:1], {**kwargs, "func": kwargs.get("func") or operator.add}
    return _entry(_ACCUMULATE)(machine, args, kwargs)


_ACCUMULATE: Final = CallbackRow(itertools.accumulate, functions=(1, "func"), iterables=(0,))


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
    id(itertools.accumulate): _accumulate,
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

_GROUPBY: Final = CallbackRow(itertools.groupby, functions=(1, "key"), iterables=(0,))
CONSTRUCTORS: Final = {row.fn: _constructor(row) for row in (*ROWS, _GROUPBY) if is_a(row.fn, type)} | {
    dict: _dict_arguments
}
"""Entries for subclasses of native classes."""

assert builtins.map in CONSTRUCTORS, "classes among the rows also serve their subclasses"
