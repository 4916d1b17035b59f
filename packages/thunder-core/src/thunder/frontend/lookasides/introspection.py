"""Lookasides for signatures, hashes, generic functions and the thread: what they read is guarded."""

from __future__ import annotations

import _thread
import builtins
import dataclasses
import functools
import inspect
import reprlib
import sys
import types
import typing
from collections.abc import Iterator
from typing import Any

from thunder.base.errors import UnsupportedProgram
from thunder.frontend.lookasides.lookaside_registry import LookasideTable
from thunder.frontend.objects.class_kinds import IDENTITY_TYPES, LEAVES
from thunder.frontend.places import COMPUTES
from thunder.frontend.session import SessionState, TracingSession
from thunder.frontend.types.number_members import value_of_key
from thunder.interpreter.attributes import is_data_descriptor
from thunder.interpreter.policy import MISSING
from thunder.ir.proxies import TensorProxy
from thunder.ops import prims

TABLE = LookasideTable(COMPUTES)

Args = tuple[Any, ...]
Kwargs = dict[str, Any]

# -- attributes ----------------------------------------------------------------------------------------------


@TABLE.lookaside(inspect.getattr_static)
def _getattr_static(session: TracingSession, args: Args, kwargs: Kwargs) -> Any:
    """Return an attribute without calling descriptors or ``__getattr__``."""
    return _static(session, *args, **kwargs)


def _static(session: TracingSession, obj: Any, attr: str, default: Any = MISSING) -> Any:
    cls = session.class_of(obj)
    if isinstance(obj, type):
        of_class, own = session.type_attr(cls, attr), session.type_attr(obj, attr)
        found = own if own is not MISSING else of_class
    else:
        of_class = session.type_attr(cls, attr)
        own = MISSING if isinstance(obj, TensorProxy) else session.instance_attr(obj, attr)
        is_first = of_class is not MISSING and is_data_descriptor(of_class)
        found = of_class if is_first or own is MISSING else own
    if found is MISSING and default is MISSING:
        raise AttributeError(attr)
    return default if found is MISSING else found


# -- signatures ----------------------------------------------------------------------------------------------

#: callables whose signature never changes
_NATIVE = (
    types.BuiltinFunctionType,
    types.MethodDescriptorType,
    types.WrapperDescriptorType,
    types.MethodWrapperType,
    types.ClassMethodDescriptorType,
)
#: attributes of an object of which ``inspect.signature`` takes its signature
_OTHER_SIGNATURES = ("__wrapped__", "__signature__", "__partialmethod__", "_partialmethod", "__code__")
_CONSTRUCTORS = ("__new__", "__init__")


@TABLE.lookaside(typing.get_type_hints)
def _type_hints(session: TracingSession, args: Args, kwargs: Kwargs) -> dict[str, Any]:
    """Return the annotations of a class, function or module, evaluated, which are a fact."""
    obj, *others = args
    is_own = isinstance(obj, _ANNOTATED) and id(obj) not in session.created_by_program
    if not is_own or any(v is not None and type(v) is not bool for v in (*others, *kwargs.values())):
        return session.machine.generic_call(typing.get_type_hints, args, kwargs)  # type: ignore[no-any-return]
    entry = session.resolve_entry(obj)
    if entry is not None and session.writes.touch(_sources_of_hints(obj)):
        raise UnsupportedProgram(
            f"typing.get_type_hints of {entry.path.source}, to which the program has written before",
            hint="Ask for the annotations before the write.",
        )
    session.guard_identity(obj)
    query = functools.partial(typing.get_type_hints, *args, **kwargs)
    hints = query()
    name = obj.__name__ if entry is None else entry.path.source
    session.note(prims.check_state, session.object_root(query, f"the type hints of {name}"), dict(hints))
    return hints


_ANNOTATED = (type, types.FunctionType, types.ModuleType)


def _sources_of_hints(obj: Any) -> Iterator[Any]:
    """Yield what ``get_type_hints`` reads: objects, their annotations, and the variables that these name."""
    for owner in obj.__mro__ if isinstance(obj, type) else (obj,):
        module = sys.modules.get(owner.__module__) if isinstance(owner, type) else None
        names = owner.__dict__ if isinstance(owner, type) else {"__annotations__": owner.__annotations__}
        yield from (
            owner,
            names.get("__annotations__"),
            getattr(owner, "__globals__", module and vars(module)),
        )


@TABLE.lookaside(inspect.signature)
def _signature(session: TracingSession, args: Args, kwargs: Kwargs) -> inspect.Signature:
    """Return the signature of a callable, whose code and defaults become facts as for a call."""
    _note_signature(session, args[0])
    return inspect.signature(*args, **kwargs)


def _note_signature(session: TracingSession, fn: Any) -> None:
    """Note the facts on which the signature of a callable depends; refuse what can have any."""
    if isinstance(fn, types.MethodType):
        fn = fn.__func__
    if isinstance(fn, functools.partial):
        _note_signature(session, fn.func)
    elif isinstance(fn, type):
        _note_constructors(session, fn)
    elif isinstance(fn, types.FunctionType) and session.instance_attr(fn, "__signature__") is MISSING:
        wrapped = session.instance_attr(fn, "__wrapped__")
        if wrapped is MISSING:
            session.function_parts(fn)
        else:
            _note_signature(session, wrapped)
    elif _has_python_call(session, fn):
        _note_signature(session, session.type_attr(type(fn), "__call__"))
    elif not isinstance(fn, _NATIVE):
        raise UnsupportedProgram(
            f"inspect.signature of {fn!r} inside a compiled function",
            hint="Call it before the compiled function.",
        )


def _has_python_call(session: TracingSession, obj: Any) -> bool:
    """Return whether the signature of an object is that of the method ``__call__`` of its class.

    Notes that it has no attribute by which ``inspect`` finds another.
    """
    if isinstance(obj, _NATIVE) or not isinstance(
        session.type_attr(type(obj), "__call__"), types.FunctionType
    ):
        return False
    return not any(session.call(hasattr, (obj, name), {}) for name in _OTHER_SIGNATURES)


def _note_constructors(session: TracingSession, cls: type) -> None:
    calls = session.type_attr(type(cls), "__call__")
    if session.type_attr(cls, "__signature__") is not MISSING or isinstance(calls, types.FunctionType):
        raise UnsupportedProgram(
            f"inspect.signature of the class {cls.__qualname__}, with a metaclass or a signature of its own",
            hint="Call it before the compiled function.",
        )
    for name in _CONSTRUCTORS:
        method = session.type_attr(cls, name)
        function = method.__func__ if isinstance(method, staticmethod) else method
        if isinstance(function, types.FunctionType):
            _note_signature(session, function)


# -- hashes --------------------------------------------------------------------------------------------------


@TABLE.lookaside(hash)
def _hash(session: TracingSession, args: Args, kwargs: Kwargs) -> Any:
    """Return a hash that is the same in all calls: that of numbers, texts, classes and functions."""
    if len(args) == 1 and not kwargs and _has_lasting_hash(session, key := value_of_key(args[0])):
        return hash(key)
    if len(args) == 1 and type(args[0]).__hash__ is None:
        return hash(args[0])  # raises TypeError, as in eager
    return session.machine.generic_call(builtins.hash, args, kwargs)


def _has_lasting_hash(session: TracingSession, value: Any) -> bool:
    if type(value) in (tuple, frozenset):
        return all(_has_lasting_hash(session, part) for part in value)
    if type(value) in LEAVES:
        return True
    if not isinstance(value, IDENTITY_TYPES) or type(value).__hash__ is not object.__hash__:
        return False
    session.guard_identity(value)  # the fact holds the object, so that its hash is not used again
    return id(value) not in session.created_by_program


# -- generic functions and threads ---------------------------------------------------------------------------


_SINGLE_DISPATCH: Any = functools.singledispatch(lambda _: None)


@TABLE.closure_lookaside(_SINGLE_DISPATCH.__code__)
def _generic_function(session: TracingSession, args: Args, kwargs: Kwargs) -> Any:
    """Call the implementation of a ``functools.singledispatch`` function for the first argument's class."""
    fn, *values = args
    if not values:
        raise TypeError(f"{fn.__name__} requires at least 1 positional argument")
    cls = session.class_of(values[0])
    query = functools.partial(fn.dispatch, cls)
    implementation = query()
    name = f"{fn.__qualname__}.dispatch({cls.__qualname__})"
    session.note_state(query, name, implementation)
    adopted = session.adopt(implementation, session.object_root(implementation, name))
    return session.call(adopted, tuple(values), kwargs)


@TABLE.closure_lookaside(_SINGLE_DISPATCH.dispatch.__code__)
def _implementation(session: TracingSession, args: Args, kwargs: Kwargs) -> Any:
    """Return the implementation of a generic function for a class, as ``singledispatchmethod`` asks it."""
    dispatch, cls = args
    query = functools.partial(dispatch, cls)
    implementation = query()
    session.note_state(query, f"dispatch({cls.__qualname__})", implementation)
    return session.adopt(implementation, session.object_root(implementation, f"dispatch({cls.__qualname__})"))


class OpenTexts(SessionState):
    """The objects whose ``__repr__`` is running, by id."""

    def __init__(self, session: TracingSession) -> None:
        self.ids: set[int] = set()


@TABLE.closure_lookaside(reprlib.recursive_repr()(repr).__code__)
@TABLE.closure_lookaside(dataclasses.make_dataclass("_Probe", ()).__repr__.__code__)
def _recursive_text(session: TracingSession, args: Args, kwargs: Kwargs) -> Any:
    """Call a ``__repr__`` that may reach its own object, whose text is then ``...``."""
    wrapper, obj = args
    variables = dict(zip(wrapper.__code__.co_freevars, wrapper.__closure__, strict=True))
    running = session.state(OpenTexts).ids
    if id(obj) in running:
        return variables["fillvalue"].cell_contents if "fillvalue" in variables else "..."
    running.add(id(obj))
    try:
        return session.call(variables["user_function"].cell_contents, (obj,), {})
    finally:
        running.discard(id(obj))


@TABLE.lookaside(_thread.get_ident)
def _get_ident(session: TracingSession, args: Args, kwargs: Kwargs) -> int:
    """Return the thread's number; another thread has another compiled program."""
    number = _thread.get_ident(*args, **kwargs)
    session.note_state(_thread.get_ident, "threading.get_ident()", number)
    return number
