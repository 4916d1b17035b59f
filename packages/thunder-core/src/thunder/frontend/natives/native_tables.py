"""The tables of native callables, by identity: which run during a trace, and why.

A native callable reads and calls back unseen, so one that no row allows is refused. The rows hold the objects
themselves: functions, classes, and for methods the descriptors of their classes (:func:`descriptor_of`). A
name allows nothing, because any callable can have it. ``IMPURE_MODULES`` has names, because it only refuses.
"""

from __future__ import annotations

import _bisect
import _heapq
import _json
import _operator
import _struct
import _warnings
import _weakref
import abc
import array
import binascii
import builtins
import cmath
import collections
import functools
import importlib
import importlib.util
import io
import itertools
import math
import operator
import os
import posixpath
import re
import struct
import sys
import types
import typing
import unicodedata
import zlib
from collections.abc import Iterable
from typing import Any, NamedTuple

import torch

from thunder.frontend.natives import decimal_context
from thunder.frontend.natives.libraries import numpy
from thunder.frontend.objects.class_kinds import DATES, LEAVES
from thunder.frontend.types.globals_view import GlobalsView
from thunder.interpreter.lookup import ITERATOR_TYPES
from thunder.interpreter.version_differences import templatelib


class NativeRow(NamedTuple):
    """Native callables with the reason for which the table has them."""

    reason: str
    natives: tuple[Any, ...]


def _functions(*modules: Any, without: Iterable[Any] = ()) -> tuple[Any, ...]:
    """Return the functions of modules in C, except some."""
    skipped = set(map(id, without))
    members = (v for module in modules for v in vars(module).values())
    return tuple(v for v in members if isinstance(v, types.BuiltinFunctionType) and id(v) not in skipped)


def _methods(classes: Iterable[type], *names: str) -> tuple[Any, ...]:
    """Return the descriptors that the classes themselves have under the names."""
    return tuple(vars(cls)[name] for cls in classes for name in names if name in vars(cls))


# -- functions (allowed) -------------------------------------------------------------------------------------

_IMPURE_BUILTINS = (id, hash, open, input, breakpoint, compile, eval, exec, globals, locals, vars)

#: modules of the standard library without type information
_HASHES = tuple(
    importlib.import_module(name)
    for name in ("_hashlib", "_md5", "_sha1", "_blake2")
    if importlib.util.find_spec(name) is not None
)
_UNTYPED = tuple(map(importlib.import_module, ("_abc", "_collections", "_functools", "_sre", "_string")))

#: functions of ``posixpath`` that later versions of Python have in C
_OF_PATHS = tuple(
    fn
    for name in ("normpath", "_path_normpath", "splitroot")
    if isinstance(fn := vars(posixpath).get(name), types.BuiltinFunctionType)
)

PURE_FUNCTIONS = (
    NativeRow("numbers in, numbers out", _functions(math, cmath)),
    NativeRow("the operators of Python, on arguments that are checked", _functions(operator, _operator)),
    NativeRow(
        "builtins whose results depend on their arguments alone",
        _functions(builtins, without=_IMPURE_BUILTINS),
    ),
    NativeRow(
        "algorithms on containers and texts that the standard library has in C",
        _functions(
            itertools,
            _bisect,
            _heapq,
            _struct,
            _json,
            *_UNTYPED,
            without=(importlib.import_module("_sre").compile,),  # trusts the code that it is passed
        ),
    ),
    NativeRow("the state of warnings; what shows one is a lookaside", _functions(_warnings)),
    NativeRow(
        "the interpreter keeps the native state of handled exceptions equal to the program's",
        (sys.exc_info, sys.exception),
    ),
    NativeRow(
        "counts, once in a process, that an API was used: every constructor of a module calls it",
        (torch._C._log_api_usage_once,),
    ),
    NativeRow("sizes in, sizes out", (torch._C._infer_size,)),
    NativeRow("a text in, an equal text out", (sys.intern, os.fspath)),
    NativeRow("a path in, its parts or the shortest such path out", _OF_PATHS),
    NativeRow("texts in, tables out", (str.maketrans, bytes.maketrans, bytearray.maketrans)),
    NativeRow("bytes in, bytes or a checksum out", _functions(binascii, zlib)),
    NativeRow("the tables of Unicode", _functions(unicodedata)),
    NativeRow("makes a hash object of bytes", _functions(*_HASHES)),
    NativeRow("removes a dead reference from a dict", (_weakref._remove_dead_weakref,)),  # type: ignore[attr-defined]
    NativeRow("the context of decimals, of which the program has a copy", decimal_context.FUNCTIONS),
)
ALLOWED: dict[int, Any] = {id(fn): fn for row in PURE_FUNCTIONS for fn in row.natives}


# -- classes (allowed) ---------------------------------------------------------------------------------------

_ITERATORS: tuple[type, ...] = (
    *ITERATOR_TYPES,
    type(reversed({})),
    types.GeneratorType,
    types.CoroutineType,
    types.AsyncGeneratorType,
    *(t for t in vars(itertools).values() if isinstance(t, type)),
)
_VIEWS: tuple[type, ...] = (
    type({}.keys()),
    type({}.values()),
    type({}.items()),
    type(collections.OrderedDict().keys()),
    type(collections.OrderedDict().values()),
    type(collections.OrderedDict().items()),
    types.MappingProxyType,
)
_SEQUENCES = (list, tuple, bytearray, collections.deque)
_DICTS = (dict, collections.OrderedDict, collections.defaultdict)
_SETS = (set, frozenset)
_METHOD_TYPES = (property, staticmethod, classmethod, super, types.FunctionType, types.MethodType)
_OPERATOR_OBJECTS = (operator.attrgetter, operator.itemgetter, operator.methodcaller)
_KEY_OF_COMPARISON: type = type(functools.cmp_to_key(lambda a, b: 0))

_HASH_TYPES = tuple(
    cls
    for module in _HASHES
    for cls in vars(module).values()
    if isinstance(cls, type) and not issubclass(cls, Exception)
)

#: classes whose instances keep everything in what the program can see: a native method that one of them
#: defines depends on the object and its arguments alone, and writes to the object alone
_TEMPLATES: tuple[type, ...] = (
    () if templatelib is None else (templatelib.Template, templatelib.Interpolation)
)
SELF_CONTAINED_TYPES: frozenset[type] = LEAVES | {
    object,
    type,
    BaseException,
    *_ITERATORS,
    *_VIEWS,
    *_SEQUENCES,
    *_DICTS,
    *_SETS,
    *_METHOD_TYPES,
    *_OPERATOR_OBJECTS,
    collections.Counter,
    functools.partial,
    types.SimpleNamespace,
    types.CellType,
    memoryview,
    re.Pattern,
    re.Match,
    struct.Struct,
    array.array,
    io.StringIO,
    io.BytesIO,
    _KEY_OF_COMPARISON,
    *_HASH_TYPES,
    *decimal_context.CLASSES,
    *_TEMPLATES,
}
#: classes that may be called on arguments that are checked
CONSTRUCTIBLE_TYPES = (SELF_CONTAINED_TYPES - {memoryview}) | {
    *(type(functools.lru_cache(len)), types.GenericAlias),
    *(torch._C.DisableTorchFunction, torch._C.DisableTorchFunctionSubclass),
    type(collections.namedtuple("_Probe", "field").field),  # type: ignore[attr-defined]
}
#: types of native callables of which each instance may be called
CALLABLE_TYPES = frozenset({*_OPERATOR_OBJECTS, _KEY_OF_COMPARISON})

#: methods of ``object`` that read nothing of the instance, unlike ``__getstate__``
OBJECT_METHODS = frozenset(
    _methods((object,), "__init__", "__new__", "__init_subclass__", "__subclasshook__", "__eq__", "__ne__")
)

#: methods of values that read more: the clock, the time zone or the locale of the machine, memory, a file
_OF_DATES = ("now", "utcnow", "today", "fromtimestamp", "timestamp", "astimezone", "strftime", "strptime")
_OF_ARRAYS = ("buffer_info", "fromfile", "tofile")
OF_THE_MACHINE = frozenset(
    map(id, (*_methods(DATES, *_OF_DATES, "__format__"), *_methods((array.array,), *_OF_ARRAYS)))
)

#: methods of NumPy's numbers that depend on the number alone
_NUMPY_METHODS = ("item", "tolist", "is_integer", "as_integer_ratio", "conjugate")


def is_numpy_method(descriptor: Any) -> bool:
    """Return whether a descriptor is a pure method of NumPy's numbers."""
    module = numpy()
    cls = getattr(descriptor, "__objclass__", None)
    if module is None or not (isinstance(cls, type) and issubclass(cls, module.generic)):
        return False
    return any(vars(cls).get(name) is descriptor for name in _NUMPY_METHODS)


@functools.cache
def cached_of_typing() -> frozenset[int]:
    """Return the ids of ``typing``'s cached functions, which return types."""
    return frozenset(id(clear.__self__) for clear in typing._cleanups)  # type: ignore[attr-defined]


# -- arguments (allowed) -------------------------------------------------------------------------------------

VALUE_PRESERVING = (
    NativeRow(
        "stores its arguments in a container, or removes what is stored",
        (
            *_methods(_SEQUENCES, "append", "appendleft", "insert", "extend", "copy", "pop"),
            *_methods((list, bytearray, collections.deque), "__setitem__", "__delitem__"),
            *_methods((*_DICTS, *_SETS, *_VIEWS), "copy"),
            *_methods((set,), "pop"),
        ),
    ),
    NativeRow(
        "returns what a container holds",
        (
            *_methods((*_SEQUENCES, *LEAVES, re.Match), "__getitem__"),
            *_methods((*_DICTS, *_VIEWS), "items", "keys", "values"),
        ),
    ),
    NativeRow(
        "makes a container, an iterator or a wrapper of its arguments",
        (
            *(
                list,
                tuple,
                dict,
                collections.deque,
                zip,
                enumerate,
                reversed,
                map,
                filter,
                functools.partial,
                slice,
                *_OPERATOR_OBJECTS,
                *_TEMPLATES,
            ),
            *(itertools.chain, itertools.islice, itertools.product, itertools.repeat, itertools.cycle),
            *(itertools.takewhile, itertools.dropwhile, itertools.filterfalse, itertools.accumulate),
            *(itertools.combinations, itertools.combinations_with_replacement, itertools.permutations),
            *(itertools.compress, itertools.zip_longest, itertools.pairwise, itertools.tee),
            *(staticmethod, classmethod, super, property, type, bool),
            *_methods((itertools.chain,), "from_iterable"),
            *_methods((property,), "__set_name__"),
            *_methods((types.FunctionType, staticmethod), "__get__"),
        ),
    ),
    NativeRow(
        "makes an object that stores the arguments",
        (
            *_methods(SELF_CONTAINED_TYPES - {set, bytearray}, "__init__"),
            *_methods(SELF_CONTAINED_TYPES - LEAVES - {*_SETS, bytearray}, "__new__"),
            *_methods((object,), "__init_subclass__"),
            *_methods((types.GenericAlias,), "__new__"),
            *_methods(
                (v for v in vars(builtins).values() if isinstance(v, type) and issubclass(v, BaseException)),
                "__init__",
                "__new__",
            ),
        ),
    ),
    NativeRow(
        "reads how long, empty or of which class an object is; special methods in Python are interpreted",
        (
            *(callable, len, isinstance, issubclass, operator.is_, operator.is_not),
            *(operator.truth, operator.not_),
            *_methods((type,), "__instancecheck__", "__subclasscheck__"),
            *(vars(abc)[name] for name in ("_abc_instancecheck", "_abc_subclasscheck")),
        ),
    ),
    NativeRow("advances an iterator, or begins to iterate", (iter, next)),
    NativeRow(
        "resumes a generator with its argument",
        _methods((types.GeneratorType, types.CoroutineType), "send", "throw", "close"),
    ),
    NativeRow(
        "an operator of Python; special methods in Python are interpreted",
        (
            *(operator.concat, operator.mul, operator.add, operator.iadd),
            *(operator.getitem, operator.setitem, operator.delitem),
        ),
    ),
)
#: those that look for a key among others, so that it matters which objects are one and the same
KEYED_LOOKUPS = NativeRow(
    "finds a key by hash and equality; keys with these in Python are interpreted or refused",
    (
        *_methods((*_DICTS, types.MappingProxyType), "get", "setdefault", "pop", "update"),
        *_methods((*_DICTS, types.MappingProxyType), "__getitem__", "__setitem__", "__delitem__"),
        *_methods((set,), "add", "update", "discard", "remove"),
        *_methods((GlobalsView,), "get", "setdefault", "update", "__getitem__", "__setitem__", "__delitem__"),
    ),
)
_ALSO_KEYED = (operator.getitem, operator.setitem, operator.delitem, operator.add)

_VALUE_PRESERVING = {id(fn) for row in (*VALUE_PRESERVING, KEYED_LOOKUPS) for fn in row.natives}
_STORING = frozenset(
    map(
        id,
        (
            *_methods(_SEQUENCES, "append", "appendleft", "insert", "__setitem__"),
            *_methods(_DICTS, "setdefault", "__setitem__"),
            operator.setitem,
        ),
    )
)
_KEYED = {id(fn) for fn in (*KEYED_LOOKUPS.natives, *_ALSO_KEYED)}


def is_value_preserving(descriptor: Any) -> bool:
    """Return whether native code stores or passes on its arguments, without reading them."""
    return id(descriptor) in _VALUE_PRESERVING or type(descriptor) is operator.attrgetter


_LEAF_COMPARISONS = frozenset(
    map(id, _methods((str, bytes, int), "__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__"))
)


def compares_leaves(descriptor: Any) -> bool:
    """Return whether native code compares strings or integers, and declines any other argument unread."""
    return id(descriptor) in _LEAF_COMPARISONS


def stores_arguments(descriptor: Any) -> bool:
    """Return whether native code stores or returns its last argument as it is, and looks into no other."""
    return id(descriptor) in _STORING


def looks_up_keys(descriptor: Any) -> bool:
    """Return whether native code looks for one of its arguments among the keys of a container."""
    return id(descriptor) in _KEYED


_MAKING_KEYS = frozenset(
    map(
        id,
        (
            *(dict, set, frozenset, vars(dict)["fromkeys"]),
            *_methods(_DICTS, "update"),
            *_methods((set,), "update"),
        ),
    )
)


def makes_keys(descriptor: Any) -> bool:
    """Return whether native code makes keys of the elements of its arguments."""
    return id(descriptor) in _MAKING_KEYS


#: native code that compares its arguments: equal containers have equal elements, dicts equal values too
_COMPARISONS = frozenset(
    map(
        id,
        (
            *(operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge),
            *(min, max, sorted, list.sort),
            *_functions(_bisect, _heapq),
            *_methods(SELF_CONTAINED_TYPES - {object}, "__eq__", "__ne__"),
            *_methods(SELF_CONTAINED_TYPES - {object}, "__lt__", "__le__", "__gt__", "__ge__"),
        ),
    )
)
#: native code that compares one argument with the elements of another, which for a dict are its keys
_SEARCHES = frozenset(
    map(
        id,
        (
            *(operator.contains, operator.countOf, operator.indexOf),
            *_methods(SELF_CONTAINED_TYPES - {object}, "__contains__"),
            *_methods(_SEQUENCES, "index", "count", "remove"),
        ),
    )
)


def compares_values(descriptor: Any) -> bool:
    """Return whether native code compares what its arguments hold."""
    return id(descriptor) in _COMPARISONS or searches(descriptor)


def searches(descriptor: Any) -> bool:
    """Return whether native code compares with the elements of its object or first argument."""
    return id(descriptor) in _SEARCHES


_HIERARCHY_QUERIES = frozenset(map(id, _methods((type,), "mro", "__subclasses__")))


def is_hierarchy_query(descriptor: Any) -> bool:
    """Return whether native code returns the bases or subclasses of a class."""
    return id(descriptor) in _HIERARCHY_QUERIES


# -- refusals (by name) --------------------------------------------------------------------------------------

#: modules whose functions read or change the world: sharp edges, refused unless the user allows these
IMPURE_MODULES = frozenset(
    {
        "time",
        "posix",
        "nt",
        "_random",
        "random",
        "_io",
        "io",
        "_socket",
        "_thread",
        "threading",
        "_posixsubprocess",
        "secrets",
        "select",
        "_uuid",
        "socket",
        "subprocess",
        "os",
        "_signal",
    }
)
#: builtins that do, or whose results differ from process to process
IMPURE_FUNCTIONS = frozenset(map(id, (id, hash, open, input, breakpoint)))
