"""Native callables: which of them may run while a program is traced, and what their use depends on.

The interpreter sees every read of interpreted code. Code implemented in C reads unseen, so it runs only if
the tables say that its result depends on nothing but its arguments, and only on arguments whose content is
known: leaves, proxies, shadows, and what the program itself made. Everything else is refused by name.
"""

from __future__ import annotations

import functools
import logging
import operator
import sys
import types
from typing import Any

import torch

from thunder.base.errors import UnsupportedProgram
from thunder.frontend.lookasides.environment_queries import ask, is_question
from thunder.frontend.natives.native_arguments import check_arguments, check_protocols, name_of, note_keys
from thunder.frontend.natives.native_tables import ALLOWED, CARRIERS, CONSTRUCTORS, TRANSPARENT, WORLD
from thunder.frontend.objects.class_kinds import (
    IDENTITY_TYPES,
    LEAVES,
    is_foreign,
    is_numpy_scalar,
    is_ufunc,
    plain_base,
)
from thunder.frontend.objects.object_table import describe
from thunder.frontend.output.printing import printable
from thunder.frontend.raised_errors import name_tensors
from thunder.frontend.session import TracingSession
from thunder.ir.proxies import TensorProxy
from thunder.ops import prims

#: native code that makes what has attributes of its own; what other native code returns was there before
_MAKERS = frozenset(map(id, (type.__new__, types.FunctionType, types.ModuleType)))
#: packages whose functions are guarded as values, and not in their parts (code, defaults)
LIBRARIES = frozenset({"torch", *sys.stdlib_module_names})
#: containers that native code makes, which find their elements by what objects they are
_KEYED = frozenset({dict, set, frozenset})


def call(session: TracingSession, fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Calls ``fn`` natively if the tables allow it. Raises UnsupportedProgram or SharpEdge, with the
    callable's name.
    """
    if id(fn) in ALLOWED or _is_allowed(session, fn):
        _refuse_finalizer(session, fn, args)
        if fn is type.__new__ and len(args) > 2:
            _refuse_subclass_hook(args[2])
        check_arguments(session, fn, args)
        if kwargs:
            check_arguments(session, fn, tuple(kwargs.values()))
        name = name_of(fn)
        if name in _OF_HIERARCHIES:
            _note_hierarchy(session, fn, args)
        if name not in CARRIERS:
            check_protocols(fn, (getattr(fn, "__self__", None), *args, *kwargs.values()))
        try:
            result = fn(*args, **kwargs)
            if id(fn) in _MAKERS:
                session.created_by_program[id(result)] = result
            elif type(result) in _KEYED:
                note_keys(session, result)
            return result
        except TypeError as error:
            name_tensors(error)
            raise
    if is_ufunc(fn) and all(type(a) in LEAVES or is_numpy_scalar(a) for a in (*args, *kwargs.values())):
        return fn(*args, **kwargs)
    if is_question(fn):
        return ask(session, fn, args, kwargs)
    if not callable(fn):
        return fn(*args, **kwargs)  # the TypeError of the program's own
    module = _module_of(fn)
    name = f"{module}.{getattr(fn, '__qualname__', type(fn).__name__)}"
    if module.partition(".")[0] == "numpy":
        raise UnsupportedProgram(
            f"{name} takes the data of a tensor out of the program, or computes with NumPy's own arrays",
            hint="Return the tensor and convert it after the call.",
        )
    if module.partition(".")[0] in WORLD or id(fn) in _IDENTITIES:
        session.refuse_sharp_edge(
            f"{name} reads or changes something that can be neither guarded nor replayed",
            hint="Pass the value as an argument, or set sharp_edges= to bake it in.",
        )
        return _baked(fn(*args, **kwargs), name)
    if any(isinstance(a, TensorProxy) for a in (*args, *kwargs.values())):
        raise UnsupportedProgram(
            f"{name} is native code that received a tensor; it cannot run on a proxy",
            hint="Register it as an operator (thunder.extend.OperatorExecutor.register_operator) "
            "or wrap it with torch.library.",
        )
    raise UnsupportedProgram(
        f"{name} is native code of which thunder does not know what it reads",
        hint="Call it outside the compiled function and pass the result, "
        "or mark a function around it opaque.",
    )


def _note_hierarchy(session: TracingSession, fn: Any, args: tuple[Any, ...]) -> None:
    """The answer of a class about its bases or subclasses is a fact."""
    question = functools.partial(fn, *args)
    path = session.object_root(question, f"{name_of(fn)} of a class")
    session.note("state", path, question())


_OF_HIERARCHIES = frozenset({"mro", "__subclasses__"})


def _refuse_finalizer(session: TracingSession, fn: Any, args: tuple[Any, ...]) -> None:
    """Refuses to make an object whose ``__del__`` would run when the trace lets go of it, and at no other
    call.
    """
    cls = fn if isinstance(fn, type) else args[0] if fn is object.__new__ and args else object
    if isinstance(getattr(cls, "__del__", None), types.FunctionType):
        session.refuse_sharp_edge(
            f"the program makes an object of the class {cls.__module__}.{cls.__qualname__}, "
            "whose __del__ would run once",
            hint="Make the object outside the compiled function, or set sharp_edges= to let it run once.",
        )


def _refuse_subclass_hook(bases: tuple[type, ...]) -> None:
    """Refuses to make a class whose bases have an ``__init_subclass__`` of the user's, which C code calls."""
    for base in bases:
        hook = getattr(getattr(base, "__init_subclass__", None), "__func__", None)
        if isinstance(hook, types.FunctionType) and hook.__module__.partition(".")[0] not in LIBRARIES:
            raise UnsupportedProgram(
                f"the program makes a subclass of {base.__qualname__}, which has an __init_subclass__",
                hint="Make the class outside the compiled function.",
            )


_IDENTITIES = frozenset({id(id), id(hash), id(open), id(input), id(breakpoint)})


#: functions under functools.lru_cache
CACHED = type(functools.lru_cache(len))


def call_cached(session: TracingSession, fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A call of a function that the user's code put under ``functools.lru_cache``: eager asks the cache, so
    does the guard.

    Only for arguments and results that are leaves: a cached list or tensor is one object for all callers. A
    method of a logger, which logs a message once, asks its cache when the computation runs. A type that
    ``typing`` makes (``Optional[int]``) is the same whoever asks.
    """
    if getattr(fn, "__module__", None) == "typing":
        return fn(*args, **kwargs)
    if args and isinstance(args[0], logging.Logger):
        logger, *rest = args
        session.guard_identity(logger)
        shown = {k: printable(session, v) for k, v in kwargs.items()}
        prims.python_call(fn, logger, *(printable(session, a) for a in rest), **shown)
        return None
    name = getattr(fn, "__qualname__", "a cached function")
    if all(type(a) in LEAVES for a in (*args, *kwargs.values())):
        before = fn.cache_info()
        value = fn(*args, **kwargs)
        if before.currsize == before.maxsize and fn.cache_info().misses > before.misses:
            raise UnsupportedProgram(
                f"{name} is under functools.lru_cache, which is full, so that a guard would run it again",
                hint="Give the cache a larger maxsize.",
            )
        if type(value) in LEAVES:
            question = functools.partial(fn, *args, **kwargs)
            path = session.object_root(question, f"{name}({', '.join(map(repr, args))})")
            session.note("state", path, value)
            return value
    raise UnsupportedProgram(
        f"{name} is under functools.lru_cache, and was given or returned something else "
        "than numbers and strings",
        hint="Call its __wrapped__, or call it before the compiled function and pass the result.",
    )


def scripted(fn: Any) -> Any:
    """The Python function that ``torch.jit.script`` was given, which means the same. Raises
    UnsupportedProgram for what ``torch.jit.trace`` made, which does not.
    """
    source = getattr(fn, "_torchdynamo_inline", None)
    kept = torch.jit._state._try_get_jit_cached_function(source) if source is not None else None
    if kept is None or kept.qualified_name != fn.qualified_name:
        raise UnsupportedProgram(
            f"{getattr(fn, '__name__', 'a function')} is a graph of torch.jit.trace",
            hint="Call the Python function that it was made of.",
        )
    return source


def _baked(value: Any, name: str) -> Any:
    if type(value) in LEAVES:
        return value
    raise UnsupportedProgram(f"{name} returned {describe(value)}, which cannot be baked into a trace")


def _module_of(fn: Any) -> str:
    owner = getattr(fn, "__self__", None)
    if owner is not None and not isinstance(owner, types.ModuleType):
        return str((owner if isinstance(owner, type) else type(owner)).__module__)
    return str(
        getattr(fn, "__module__", None) or getattr(getattr(fn, "__objclass__", None), "__module__", "?")
    )


def _is_allowed(session: TracingSession, fn: Any) -> bool:
    if isinstance(fn, type):
        return (
            fn in CONSTRUCTORS
            or plain_base(fn) is not object
            or issubclass(fn, BaseException)
            or id(fn) in session.created_by_program
            or (fn.__new__ is object.__new__ and fn.__init__ is object.__init__ and _is_plain(fn))
        )
    if isinstance(fn, types.BuiltinFunctionType | types.MethodWrapperType):
        owner = fn.__self__
        if owner is None or isinstance(owner, types.ModuleType):
            return False
        if isinstance(owner, TensorProxy):
            return True  # a slot wrapper of a tensor: torch's dispatch reaches the language
        if isinstance(owner, type):
            return _is_transparent(owner) or hasattr(type, fn.__name__)
        if hasattr(object, fn.__name__) and not _is_harmless(fn.__name__) and _is_plain(type(owner)):
            return False
        return _is_transparent(type(owner)) and _is_known(session, owner)
    if isinstance(
        fn, types.MethodDescriptorType | types.WrapperDescriptorType | types.ClassMethodDescriptorType
    ):
        if fn.__objclass__ is object and not _is_harmless(fn.__name__):
            return False
        return fn.__objclass__ in TRANSPARENT or issubclass(fn.__objclass__, BaseException | torch.Tensor)
    return type(fn) in (operator.attrgetter, operator.itemgetter, operator.methodcaller) or _is_shim(fn)


def _is_harmless(name: str) -> bool:
    """Whether a method of ``object`` reads nothing of the instance, unlike ``__getstate__``."""
    return name in ("__init__", "__new__", "__init_subclass__", "__subclasshook__", "__eq__", "__ne__")


def _is_shim(fn: Any) -> bool:
    """Whether ``fn`` is a native function of thunder's own: the interpreter's shims, symbols, and the
    like.
    """
    return isinstance(fn, types.FunctionType) and fn.__globals__.get("__name__", "").startswith("thunder.")


def _is_transparent(cls: type) -> bool:
    return (
        cls in TRANSPARENT
        or any(base in TRANSPARENT and base is not object for base in cls.__mro__)
        or _is_plain(cls)
    )


def _is_plain(cls: type) -> bool:
    """Whether a class is made of class statements alone, so that its native methods are ``object``'s and
    ``type``'s.
    """
    return not is_foreign(cls)


def _is_known(session: TracingSession, owner: Any) -> bool:
    """Whether native code may look into ``owner``: not if it is a tracked object, whose reads must be
    seen.
    """
    entry = session.objects.entries.get(id(owner))
    return (
        entry is None
        or entry.value is not entry.obj
        or isinstance(owner, (tuple, frozenset, *IDENTITY_TYPES))
    )


# -- torch's own native functions ----------------------------------------------------------------------------

_TORCH_NAMESPACES = (
    "torch._C._nn",
    "torch._C._linalg",
    "torch._C._special",
    "torch._C._fft",
    "torch._C._sparse",
    "torch._C._nested",
)


def is_unknown_torch(fn: Any) -> bool:
    """Whether ``fn``, which is not in the language, computes with tensors: a native function or tensor method
    of torch.
    """
    if isinstance(fn, types.BuiltinFunctionType):
        qualname = getattr(fn, "__qualname__", "")
        return qualname.startswith("_VariableFunctionsClass.") or fn.__module__ in _TORCH_NAMESPACES
    if isinstance(fn, types.MethodDescriptorType | types.WrapperDescriptorType):
        return fn.__objclass__ is torch._C.TensorBase
    return isinstance(fn, torch._ops.OpOverload | torch._ops.OpOverloadPacket)
