"""Native callables: which of them may run while a program is traced, and what their use depends on.

The interpreter sees every read of interpreted code. Code implemented in C reads unseen, so it runs only if a row of the tables
below says that its result depends on nothing but its arguments, and only on arguments whose content is known: leaves,
proxies, shadows, and what the program itself made. Everything else is refused by name.
"""

from __future__ import annotations

import _abc
import _bisect
import _functools
import _heapq
import _json
import _operator
import _sre
import _string
import _struct
import _warnings
import builtins
import cmath
import collections
import functools
import itertools
import math
import operator
import re
import sys
import types
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch

from thunder.core.errors import UnsupportedProgram
from thunder.core.frontend.tracker import LEAVES, PINNED, is_foreign, plain_base
from thunder.core.proxies import Proxy, TensorProxy

if TYPE_CHECKING:
    from thunder.core.frontend.tracer import Tracer

#: modules in C whose functions depend on their arguments alone
_PURE_MODULES = (
    builtins,
    math,
    cmath,
    operator,
    _operator,
    itertools,
    _functools,
    _bisect,
    _heapq,
    _string,
    _struct,
    _sre,
    _json,
    _abc,
    _warnings,
)
#: functions among them that depend on more, or do more
_IMPURE = frozenset({"id", "hash", "open", "input", "breakpoint", "compile", "eval", "exec", "globals", "locals", "vars"})

_ITERATORS = (
    map,
    filter,
    zip,
    enumerate,
    reversed,
    type(iter([])),
    type(iter(())),
    type(iter({})),
    type(iter({}.values())),
    type(iter({}.items())),
    type(iter(set())),
    type(iter("")),
    type(iter("é")),
    type(iter(b"")),
    type(iter(range(0))),
    type(reversed([])),
    type(reversed({})),
    types.GeneratorType,
    types.CoroutineType,
    types.AsyncGeneratorType,
    *(t for t in vars(itertools).values() if isinstance(t, type)),
)
#: classes whose instances keep everything in what the program can see, so that their methods are pure or write only to them
_TRANSPARENT: frozenset[type] = LEAVES | {
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
_CONSTRUCTORS = frozenset(_TRANSPARENT) | {type(functools.lru_cache(len)), torch.device, torch.Size, torch.finfo, torch.iinfo}

#: native code that stores its arguments or hands them on, without looking into them
_CARRIERS = frozenset(
    {"append", "appendleft", "insert", "extend", "__setitem__", "setitem", "setdefault", "update", "get", "iter", "next"}
    | {"__init__", "__new__", "__init_subclass__", "list", "tuple", "dict", "zip", "enumerate", "reversed", "items", "values", "pop"}
    | {"callable", "chain", "islice", "partial", "getitem", "__getitem__", "len", "bool", "isinstance", "issubclass", "is_", "is_not"}
    | {"product", "repeat", "cycle", "map", "filter", "concat", "mul", "add", "iadd", "attrgetter", "staticmethod", "classmethod"}
    | {"super", "property", "__set_name__", "cell_contents", "send", "throw", "close", "from_iterable", "copy", "truth", "not_", "type"}
)

#: the interpreter keeps the native state of handled exceptions equal to the program's
_EXCEPTION_STATE = (sys.exc_info, sys.exception)
_ALLOWED: dict[int, Any] = {
    id(f): f
    for module in _PURE_MODULES
    for name, f in vars(module).items()
    if isinstance(f, types.BuiltinFunctionType) and name not in _IMPURE
} | {id(f): f for f in _EXCEPTION_STATE}
# counts, once in a process, that an API was used: every constructor of a module calls it
_ALLOWED[id(torch._C._log_api_usage_once)] = torch._C._log_api_usage_once
#: modules whose functions read or change the world: sharp edges
_WORLD = frozenset({"time", "posix", "nt", "_random", "random", "_io", "io", "_socket", "_thread", "threading", "_posixsubprocess"} | {"secrets", "select", "_uuid", "socket", "subprocess", "os", "_signal"})


def call(tracer: Tracer, fn: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """Calls ``fn`` natively if the tables allow it. Raises UnsupportedProgram or SharpEdge, with the callable's name."""
    if id(fn) in _ALLOWED or _is_allowed(tracer, fn):
        _check_arguments(tracer, fn, args)
        if kwargs:
            _check_arguments(tracer, fn, tuple(kwargs.values()))
        if _name_of(fn) not in _CARRIERS:
            _check_protocols(fn, (getattr(fn, "__self__", None), *args, *kwargs.values()))
        try:
            result = fn(*args, **kwargs)
            if isinstance(result, type):
                tracer.made[id(result)] = result
            return result
        except TypeError as error:
            if "TensorProxy" in str(error):
                error.args = (str(error).replace("TensorProxy", "Tensor"),)
            raise
    if _is_state_query(fn):
        return _query(tracer, fn, args, kwargs)
    module = _module_of(fn)
    name = f"{module}.{getattr(fn, '__qualname__', type(fn).__name__)}"
    if module.partition(".")[0] == "numpy":
        raise UnsupportedProgram(
            f"{name} takes the data of a tensor out of the program, or computes with NumPy's own arrays",
            hint="Return the tensor and convert it after the call.",
        )
    if module.partition(".")[0] in _WORLD or id(fn) in _IDENTITIES:
        tracer.refuse_sharp_edge(
            f"{name} reads or changes something that can be neither guarded nor replayed",
            hint="Pass the value as an argument, or set sharp_edges= to bake it in.",
        )
        return _baked(fn(*args, **kwargs), name)
    if any(isinstance(a, TensorProxy) for a in (*args, *kwargs.values())):
        raise UnsupportedProgram(
            f"{name} is native code that received a tensor; it cannot run on a proxy",
            hint="Register it as an operator (thunder.extend.OperatorExecutor.register_operator) or wrap it with torch.library.",
        )
    raise UnsupportedProgram(
        f"{name} is native code of which thunder does not know what it reads",
        hint="Call it outside the compiled function and pass the result, or mark a function around it opaque.",
    )


_IDENTITIES = frozenset({id(id), id(hash), id(open), id(input), id(breakpoint)})


def _baked(value: Any, name: str) -> Any:
    if type(value) in LEAVES:
        return value
    raise UnsupportedProgram(f"{name} returned {_describe(value)}, which cannot be baked into a trace")


def _describe(value: Any) -> str:
    return f"an object of type {type(value).__qualname__}"


def _module_of(fn: Any) -> str:
    owner = getattr(fn, "__self__", None)
    if owner is not None and not isinstance(owner, types.ModuleType):
        return str((owner if isinstance(owner, type) else type(owner)).__module__)
    return str(getattr(fn, "__module__", None) or getattr(getattr(fn, "__objclass__", None), "__module__", "?"))


def _is_allowed(tracer: Tracer, fn: Any) -> bool:
    if isinstance(fn, type):
        return fn in _CONSTRUCTORS or plain_base(fn) is not None or issubclass(fn, BaseException) or id(fn) in tracer.made
    if isinstance(fn, types.BuiltinFunctionType | types.MethodWrapperType):
        owner = fn.__self__
        if owner is None or isinstance(owner, types.ModuleType):
            return False
        if isinstance(owner, TensorProxy):
            return True  # a slot wrapper of a tensor: torch's dispatch reaches the language
        if isinstance(owner, type):
            return _is_transparent(owner) or hasattr(type, fn.__name__)
        return _is_transparent(type(owner)) and _is_known(tracer, owner)
    if isinstance(fn, types.MethodDescriptorType | types.WrapperDescriptorType | types.ClassMethodDescriptorType):
        return fn.__objclass__ in _TRANSPARENT or issubclass(fn.__objclass__, BaseException | torch.Tensor)
    return type(fn) in (operator.attrgetter, operator.itemgetter, operator.methodcaller) or _is_shim(fn)


def _is_shim(fn: Any) -> bool:
    """Whether ``fn`` is a native function of thunder's own: the interpreter's shims, symbols, and the like."""
    return isinstance(fn, types.FunctionType) and fn.__globals__.get("__name__", "").startswith("thunder.")


def _is_transparent(cls: type) -> bool:
    return cls in _TRANSPARENT or any(base in _TRANSPARENT and base is not object for base in cls.__mro__) or _is_plain(cls)


def _is_plain(cls: type) -> bool:
    """Whether a class is made of class statements alone, so that its native methods are ``object``'s and ``type``'s."""
    return not is_foreign(cls)


def check_keys(container: Any) -> None:
    """Refuses keys whose hash or equality is Python code, which C code ran unseen when it made the container."""
    for key in container:
        if type(key) not in LEAVES and not isinstance(key, (tuple, *PINNED)):
            _check_key_protocol(key)


def _check_key_protocol(key: Any) -> None:
    cls = type(key)
    if isinstance(cls.__hash__, types.FunctionType) or isinstance(cls.__eq__, types.FunctionType):
        raise UnsupportedProgram(
            f"an object of class {cls.__qualname__} is a key, and its __hash__ or __eq__ is Python code that C code calls unseen",
            hint="Use a plain key, or unsafe_hash=False and identity.",
        )


def _is_known(tracer: Tracer, owner: Any) -> bool:
    """Whether native code may look into ``owner``: not if it is a tracked object, whose reads must be seen."""
    record = tracer.tracker.records.get(id(owner))
    return record is None or record.value is not record.obj or isinstance(owner, (tuple, frozenset, *PINNED))


def _name_of(fn: Any) -> str:
    return str(getattr(fn, "__name__", type(fn).__name__))


#: methods that C code calls on the objects it works with
_PROTOCOLS = tuple(
    f"__{name}__"
    for name in ("eq", "ne", "lt", "le", "gt", "ge", "hash", "index", "len", "bool", "float", "int", "contains", "getitem")
)


def _check_protocols(fn: Any, values: Any, depth: int = 0) -> None:
    """Refuses native code that would call methods written in Python, unseen, on its arguments or on their elements."""
    for v in values:
        cls = type(v)
        if cls in LEAVES or isinstance(v, (TensorProxy, Proxy, *PINNED)):
            continue
        if cls in _COLLECTIONS:
            if depth < 2:
                _check_protocols(fn, dict.values(v) if isinstance(v, dict) else v, depth + 1)
        elif any(isinstance(getattr(cls, name, None), types.FunctionType) for name in _PROTOCOLS):
            raise UnsupportedProgram(
                f"native code ({getattr(fn, '__qualname__', fn)}) would call methods of {cls.__qualname__} unseen by thunder",
                hint="Write the loop or comparison in Python.",
            )


_COLLECTIONS = frozenset({list, tuple, dict, set, frozenset, collections.OrderedDict, collections.deque})


def _check_arguments(tracer: Tracer, fn: Any, args: tuple[Any, ...]) -> None:
    """Refuses native code that would look into a tracked object; identity and hash by identity are guarded instead."""
    records = tracer.tracker.records
    for a in args:
        record = records.get(id(a))
        if record is None or record.value is not record.obj or isinstance(a, PINNED) or isinstance(a, TensorProxy | tuple | frozenset):
            continue
        if _name_of(fn) in _CARRIERS:
            continue
        if type(a).__eq__ is object.__eq__ and type(a).__hash__ is object.__hash__:
            tracer.tracker.pin(a)
            continue
        raise UnsupportedProgram(
            f"native code ({getattr(fn, '__qualname__', fn)}) would look into {record.path.source}, unseen by thunder",
            found={record.path.source: _describe(a)},
        )


# -- torch's own native functions -------------------------------------------------------------------------------------

_TORCH_NAMESPACES = ("torch._C._nn", "torch._C._linalg", "torch._C._special", "torch._C._fft", "torch._C._sparse", "torch._C._nested")


def is_unknown_torch(fn: Any) -> bool:
    """Whether ``fn``, which is not in the language, computes with tensors: a native function or tensor method of torch."""
    if isinstance(fn, types.BuiltinFunctionType):
        qualname = getattr(fn, "__qualname__", "")
        return qualname.startswith("_VariableFunctionsClass.") or fn.__module__ in _TORCH_NAMESPACES
    if isinstance(fn, types.MethodDescriptorType | types.WrapperDescriptorType):
        return fn.__objclass__ is torch._C.TensorBase
    return isinstance(fn, torch._ops.OpOverload | torch._ops.OpOverloadPacket)


_QUERY_PREFIXES = ("is_", "_is_", "get_", "_get_", "are_", "has_", "_has_", "_jit_get", "_len_", "_are_", "_cuda_is")
#: ambient state that every prologue guards, so that a query needs no fact of its own
_ALWAYS_GUARDED = frozenset({"is_grad_enabled", "is_inference_mode_enabled", "get_default_dtype", "is_autocast_enabled", "_is_any_autocast_enabled", "_get_tracing_state", "is_autocast_cache_enabled", "get_autocast_dtype", "_len_torch_function_stack", "_is_torch_function_mode_enabled", "_is_torch_function_enabled"})


def _is_state_query(fn: Any) -> bool:
    return (
        isinstance(fn, types.BuiltinFunctionType)
        and str(fn.__module__).startswith("torch")
        and fn.__name__.startswith(_QUERY_PREFIXES)
    )


def _query(tracer: Tracer, fn: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """A question about torch's ambient state: answered, and guarded by asking again at each call."""
    value = fn(*args, **kwargs)
    if type(value) not in LEAVES:
        raise UnsupportedProgram(f"torch.{fn.__name__} returned {_describe(value)}, which thunder cannot guard")
    if fn.__name__ not in _ALWAYS_GUARDED:
        question = functools.partial(fn, *args, **kwargs)
        path = tracer.tracker.pinned_path(question, f"torch.{fn.__name__}({', '.join(map(repr, args))})")
        tracer.tracker.note("state", path, value)
        tracer.held.append(question)
    return value
