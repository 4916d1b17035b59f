"""The tables of native code: which functions depend on their arguments alone, which types keep everything
in sight.
"""

from __future__ import annotations

import _bisect
import _heapq
import _json
import _operator
import _struct
import _warnings
import builtins
import cmath
import collections
import functools
import importlib
import itertools
import math
import operator
import re
import sys
import types
from typing import Any

import torch

from thunder.frontend.objects.class_kinds import LEAVES
from thunder.interpreter.lookup import ITERATOR_TYPES

#: modules in C whose functions depend on their arguments alone
_PURE_MODULES = (
    builtins,
    math,
    cmath,
    operator,
    _operator,
    itertools,
    _bisect,
    _heapq,
    _struct,
    _json,
    _warnings,
    # without type information:
    *map(importlib.import_module, ("_abc", "_functools", "_sre", "_string")),
)
#: functions among them that depend on more, or do more
_IMPURE = frozenset(
    {"id", "hash", "open", "input", "breakpoint", "compile", "eval", "exec", "globals", "locals", "vars"}
)

_ITERATORS: tuple[type, ...] = (
    *ITERATOR_TYPES,
    type(reversed({})),
    types.GeneratorType,
    types.CoroutineType,
    types.AsyncGeneratorType,
    *(t for t in vars(itertools).values() if isinstance(t, type)),
)
#: classes whose instances keep everything in what the program can see, so that their methods are pure or
#: write only to them
TRANSPARENT: frozenset[type] = LEAVES | {
    *_ITERATORS,
    object,
    list,
    tuple,
    dict,
    set,
    frozenset,
    bytearray,
    type({}.keys()),
    type({}.values()),
    type({}.items()),
    collections.OrderedDict,
    type(collections.OrderedDict().keys()),
    type(collections.OrderedDict().values()),
    type(collections.OrderedDict().items()),
    collections.defaultdict,
    collections.deque,
    collections.Counter,
    functools.partial,
    property,
    staticmethod,
    classmethod,
    super,
    type,
    types.FunctionType,
    types.MethodType,
    types.SimpleNamespace,
    types.CellType,
    types.MappingProxyType,
    re.Pattern,
    re.Match,
    BaseException,
    operator.attrgetter,
    operator.itemgetter,
    operator.methodcaller,
    type(functools.cmp_to_key(lambda a, b: 0)),
}
#: types that may be called on known arguments
CONSTRUCTORS = frozenset(TRANSPARENT) | {
    type(functools.lru_cache(len)),
    torch.device,
    torch.Size,
    torch.finfo,
    torch.iinfo,
}

#: native code that stores its arguments or hands them on, without looking into them
CARRIERS = frozenset(
    {
        "append",
        "appendleft",
        "insert",
        "extend",
        "__setitem__",
        "__delitem__",
        "setitem",
        "setdefault",
        "update",
        "get",
        "iter",
        "next",
    }
    | {
        "__init__",
        "__new__",
        "__init_subclass__",
        "list",
        "tuple",
        "dict",
        "zip",
        "enumerate",
        "reversed",
        "items",
        "keys",
        "values",
        "pop",
    }
    | {
        "callable",
        "chain",
        "islice",
        "partial",
        "getitem",
        "__getitem__",
        "len",
        "bool",
        "isinstance",
        "issubclass",
        "is_",
        "is_not",
    }
    | {
        "product",
        "repeat",
        "cycle",
        "map",
        "filter",
        "concat",
        "mul",
        "add",
        "iadd",
        "attrgetter",
        "staticmethod",
        "classmethod",
    }
    | {
        "super",
        "property",
        "__set_name__",
        "cell_contents",
        "send",
        "throw",
        "close",
        "from_iterable",
        "copy",
        "truth",
        "not_",
        "type",
    }
)

#: the interpreter keeps the native state of handled exceptions equal to the program's
_EXCEPTION_STATE = (sys.exc_info, sys.exception)
ALLOWED: dict[int, Any] = {
    id(f): f
    for module in _PURE_MODULES
    for name, f in vars(module).items()
    if isinstance(f, types.BuiltinFunctionType) and name not in _IMPURE
} | {id(f): f for f in _EXCEPTION_STATE}
# counts, once in a process, that an API was used: every constructor of a module calls it
ALLOWED[id(torch._C._log_api_usage_once)] = torch._C._log_api_usage_once
#: modules whose functions read or change the world: sharp edges
WORLD = frozenset(
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
    }
    | {"secrets", "select", "_uuid", "socket", "subprocess", "os", "_signal"}
)
