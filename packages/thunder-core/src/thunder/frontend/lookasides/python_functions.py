"""Lookasides for functions of Python and torch that query types, identity, text and state."""

from __future__ import annotations

import abc
import builtins
import copy
import functools
import os
import sys
import types
import typing
from collections.abc import Callable, Iterable
from typing import Any

import torch

from thunder.base.errors import UnsupportedProgram
from thunder.base.provenance import ABSENT, Path, comes_with_arguments, is_weak, lookup_slot
from thunder.frontend.lookasides.lookaside_registry import LookasideRule, LookasideTable
from thunder.frontend.natives import unread_items
from thunder.frontend.natives.key_protocols import KeyHashes
from thunder.frontend.natives.unread_items import readable_keys
from thunder.frontend.objects.class_kinds import is_immutable
from thunder.frontend.output.deferred_texts import combined, deferred, text_of_number
from thunder.frontend.places import COMPUTES
from thunder.frontend.raised_errors import text_refusal
from thunder.frontend.session import SessionState, TracingSession
from thunder.frontend.torch_functions.override_state import TorchFunctions, seen_type
from thunder.frontend.types.globals_view import GlobalsView, namespace_of_view
from thunder.frontend.types.same_tensors import is_marked
from thunder.frontend.types.tensors import is_inference, storage_offset
from thunder.interpreter.policy import MISSING
from thunder.interpreter.string_protocols import to_repr
from thunder.ir.proxies import NumberProxy, Proxy, TensorProxy
from thunder.ir.refused_methods import REFUSED_METHODS
from thunder.ir.symbolic_sizes import SizeTuple, SymbolicInt, has_symbols
from thunder.ops import prims

TABLE = LookasideTable(COMPUTES, only_reads=True)


@TABLE.lookaside(memoryview)
def _memoryview(session: TracingSession, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Return a view of bytes of the program; one of other objects is refused, whose writes were not seen."""
    if len(args) == 1 and not kwargs and type(args[0]) in (bytes, bytearray, memoryview):
        return memoryview(args[0])
    return session.machine.generic_call(memoryview, args, kwargs)


# -- types and identity --------------------------------------------------------------------------------------


@TABLE.lookaside(isinstance)
def _isinstance(session: TracingSession, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    _note_hierarchy(session, args)
    if len(args) == 2 and isinstance(args[0], TensorProxy):
        return any(_is_instance_of(session, args[0], cls) for cls in _flatten_classes(args[1]))
    return session.machine.generic_call(isinstance, args, kwargs)


@TABLE.lookaside(issubclass)
def _issubclass(session: TracingSession, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    _note_hierarchy(session, args)
    return session.machine.generic_call(issubclass, args, kwargs)


def _note_hierarchy(session: TracingSession, args: tuple[Any, ...]) -> None:
    """Note the bases of a class, and what is registered with ABCs, which a query depends on."""
    if len(args) != 2:
        return
    cls = args[0] if isinstance(args[0], type) else type(args[0])
    if id(cls) not in session.created_by_program and cls is not TensorProxy and not is_immutable(cls):
        path = session.object_root(cls, cls.__qualname__)
        session.note(prims.check_same_object, path.step("attribute", "__mro__"), cls.__mro__)
    abstract = [c for c in _flatten_classes(args[1]) if isinstance(c, abc.ABCMeta)]
    if abstract:
        cls = seen_type(session, args[0]) if isinstance(args[0], TensorProxy) else cls
        session.state(AbstractAnswers).note(session, cls, abstract)


#: what an abstract class knows, beginning with the weak references to the classes registered with it
_abc_dump: Callable[[abc.ABCMeta], Any] = vars(abc)["_get_dump"]


#: how subclasses are asked for, unless a metaclass has its own way, as that of protocols
_CHECKS = {
    method for kind in (type, abc.ABCMeta) for method in (kind.__subclasscheck__, kind.__instancecheck__)
}


class AbstractAnswers(SessionState):
    """Which classes are subclasses of which abstract ones, as the program has asked.

    The cache token changes with each registration of any class. Then the guard asks the same questions again.
    Where that would run code of the user's, and for classes that the program creates, the token is the fact.
    """

    def __init__(self, session: TracingSession) -> None:
        self._token = abc.get_cache_token()
        self._answers: dict[tuple[type, abc.ABCMeta], bool] = {}

    def note(self, session: TracingSession, cls: type, bases: Iterable[abc.ABCMeta]) -> None:
        """Note that the program asks whether a class is a subclass of abstract ones."""
        if id(cls) in session.created_by_program or any(map(_asks_code_of_users, bases)):
            path = session.object_root(abc.get_cache_token, "abc.get_cache_token()")
            session.note(prims.check_state, path, abc.get_cache_token())
            return
        for base in bases:
            self._answers[cls, base] = issubclass(cls, base)
        session.note(prims.check_state, session.object_root(self, "the bases that are abstract"), ())

    def __call__(self) -> tuple[str, ...]:
        """Return the answers that have changed."""
        token = abc.get_cache_token()
        if token == self._token:
            return ()
        changed = [pair for pair, answer in self._answers.items() if _answer(*pair) is not answer]
        if not changed:
            self._token = token
        return tuple(f"issubclass({cls.__qualname__}, {base.__qualname__})" for cls, base in changed)


def _answer(cls: type, base: abc.ABCMeta) -> bool | None:
    return None if _asks_code_of_users(base) else issubclass(cls, base)


def _asks_code_of_users(base: type) -> bool:
    """Return whether ``issubclass`` with an abstract class calls functions that are not Python's own."""
    pending, seen = [base], {base}
    while pending:
        cls = pending.pop()
        hook = getattr(cls.__subclasshook__, "__func__", None)  # None of object's
        checks = {type(cls).__subclasscheck__}
        if cls is base:  # of its subclasses, C code asks whether a class is derived from them
            checks.add(type(cls).__instancecheck__)
        if not checks <= _CHECKS or (hook is not None and not _is_of_python(hook)):
            return True
        if not isinstance(cls, abc.ABCMeta):
            continue
        registered = (reference() for reference in _abc_dump(cls)[0])
        asked = {c for c in (*cls.__subclasses__(), *registered) if c is not None} - seen
        seen |= asked
        pending += asked
    return False


def _is_of_python(fn: Any) -> bool:
    return isinstance(fn, types.FunctionType) and fn.__module__.partition(".")[0] in sys.stdlib_module_names


def _flatten_classes(classes: Any) -> list[Any]:
    if isinstance(classes, tuple):
        return [c for inner in classes for c in _flatten_classes(inner)]
    if isinstance(classes, type(int | str)):
        return list(typing.get_args(classes))
    return [classes]


def _is_instance_of(session: TracingSession, x: TensorProxy, cls: Any) -> bool:
    seen = seen_type(session, x)
    if type(cls) in _METACLASSES:  # of parameters and buffers, which look at the object
        return issubclass(seen, cls)
    if isinstance(getattr(type(cls), "__instancecheck__", None), types.FunctionType):
        return bool(session.call(type(cls).__instancecheck__, (cls, x), {}))
    if cls in _LEGACY_TENSOR_TYPES:
        # the classes of CUDA are in torch.cuda, those of sparse tensors in torch.sparse
        kind = cls.__module__.removeprefix("torch").removeprefix(".") or "cpu"
        return kind == x.device.type and cls.dtype is x.dtype.torch_dtype
    return issubclass(seen, cls)


_METACLASSES = frozenset({type(torch.nn.Parameter), type(torch.nn.Buffer)})
_LEGACY_TENSOR_TYPES = frozenset(t for t in torch._tensor_classes if t is not torch.Tensor)


@TABLE.lookaside(len)
def _len(session: TracingSession, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    length = unread_items.length(session, args[0]) if session.objects.unread and len(args) == 1 else None
    if length is not None:
        return length
    is_plain = len(args) == 1 and isinstance(args[0], TensorProxy) and has_symbols(args[0].shape[:1])
    if is_plain and seen_type(session, args[0]) is torch.Tensor and not session.state(TorchFunctions).applies:
        return args[0].shape[0]
    return session.machine.generic_call(len, args, kwargs)


#: functions of ``copy`` by the ids of their code: they use ``id()`` for the keys of deepcopy's memo alone
_MEMO_KEYS = frozenset(
    id(fn.__code__)
    for fn in vars(copy).values()
    if isinstance(fn, types.FunctionType) and "memo" in fn.__code__.co_varnames
)


@TABLE.lookaside(id)
def _id(session: TracingSession, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if session.machine.frames and id(session.machine.frame.code) in _MEMO_KEYS:
        return builtins.id(*args)
    entry = session.entry_of(args[0]) if len(args) == 1 else None
    if entry is not None and (isinstance(entry.obj, torch.nn.Module) or _is_held(entry.path)):
        session.guard_identity(args[0])  # the fact holds the object, so that its id is not used again
        return builtins.id(entry.obj)
    if len(args) == 1 and entry is None and session.state(KeyHashes).is_unseen:
        return builtins.id(*args)
    session.refuse_sharp_edge("id() differs from call to call", hint="Compare objects with `is`.")
    return builtins.id(*args, **kwargs)


def _is_held(path: Path) -> bool:
    """Return whether a guard of the identity of an object holds it."""
    return not comes_with_arguments(path) and not is_weak(path)


def _of_proxy(method: Callable[..., Any]) -> LookasideRule:
    """Return the rule of a method of torch.Tensor that calls a proxy's method."""
    return lambda session, args, kwargs: method(*args, **kwargs)


# -- texts --------------------------------------------------------------------------------------------------


@TABLE.lookaside(SizeTuple.__repr__)
def _text_of_sizes(session: TracingSession, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return combined(session, f"torch.Size({to_repr(session.machine, list(args[0]))})")


@TABLE.lookaside(
    Proxy.__repr__,
    NumberProxy.__format__,
    TensorProxy.__repr__,
    TensorProxy.__format__,
    torch.Tensor.__repr__,
    torch.Tensor.__format__,
)
def _text(session: TracingSession, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    proxy, *spec = args
    text = deferred(session, proxy, spec[0] if spec else None)
    if text is not None:
        return text
    if isinstance(proxy, NumberProxy):
        return text_of_number(proxy, *readable_keys(session, spec))
    if session.speculation is None:
        raise text_refusal(proxy)
    value = session.speculation.values_for_text(proxy, text_refusal(proxy))
    return format(value, *spec) if spec else repr(value)


for _name, _method in REFUSED_METHODS.items():
    if _name in ("numpy", "__array__"):  # rules of `array_arguments`
        continue
    TABLE.lookaside(getattr(torch.Tensor, _name))(_of_proxy(_method))


# -- ambient state -------------------------------------------------------------------------------------------


@TABLE.lookaside(functools.cached_property.__get__)
def _cached_property(session: TracingSession, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    prop, obj = args[0], args[1]
    if obj is None:
        return prop
    value = session.instance_attr(obj, prop.attrname)
    if value is MISSING:
        value = session.call(prop.func, (obj,), {})
        session.set_instance_attr(obj, prop.attrname, value)
    return value


@TABLE.parsed_lookaside(torch.Tensor.storage_offset)
def _storage_offset(session: TracingSession, args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
    return storage_offset(session, args[0])


@TABLE.parsed_lookaside(torch.Tensor.is_inference, torch.is_inference)
def _is_inference(session: TracingSession, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    return is_inference(session, args[0])


@TABLE.parsed_lookaside(torch.Tensor.is_conj, torch.is_conj)
def _is_conj(session: TracingSession, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    return is_marked(session, args[0], "is_conj")


@TABLE.parsed_lookaside(torch.Tensor.is_neg, torch.is_neg)
def _is_neg(session: TracingSession, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    return is_marked(session, args[0], "is_neg")


@TABLE.lookaside(torch.broadcast_shapes)
def _broadcast_shapes(session: TracingSession, args: tuple[Any, ...], kwargs: dict[str, Any]) -> torch.Size:
    shapes = [(x,) if isinstance(x, SymbolicInt) else x for x in args]
    shape: torch.Size = torch.broadcast_shapes(*shapes, **kwargs)
    return shape


@TABLE.lookaside(type(torch._VF).__getattr__)
def _native_of_torch(session: TracingSession, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Do ``torch._VF.lstm``.

    The module forwards to an object in C whose attributes never change, so that no guard is needed.
    """
    return getattr(torch._C._VariableFunctions, args[1])


@TABLE.lookaside(builtins.globals)
def _globals(session: TracingSession, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return session.globals_of(session.machine.globals)


def namespace_of(session: TracingSession, namespace: Any) -> Any:
    """Return the dictionary that is passed to ``eval`` or ``exec``.

    A dictionary that the program created, or the shadow of one of the user's, is read and written as it is.
    """
    if type(namespace) is GlobalsView:
        return namespace_of_view(namespace)
    if isinstance(namespace, dict):
        session.variables.namespaces[id(namespace)] = namespace
    return namespace


@TABLE.lookaside(dir)
def _dir(session: TracingSession, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    entry = session.entry_of(args[0]) if args else None
    if entry is None:
        return session.machine.generic_call(dir, args, kwargs)
    obj = entry.obj
    classes = obj.__mro__ if isinstance(obj, type) else type(obj).__mro__
    is_written = session.writes.touch((obj, lookup_slot(obj, "__dict__"), *classes))
    if is_written or type(session.type_attr(type(obj), "__dir__")) is type(_dir):
        raise UnsupportedProgram(f"dir({entry.path.source}) after a write, or with a __dir__ in Python")
    names = dir(obj)
    session.note(prims.check_dir, entry.path, names)
    return list(names)


@TABLE.with_parameters(os.getenv)
def _getenv(session: TracingSession, key: str, default: Any = None) -> Any:
    value = _environment_value(session, key)
    return default if value is None else value


@TABLE.lookaside(type(os.environ).__getitem__)
def _environ_getitem(session: TracingSession, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    value = _environment_value(session, args[1])
    if value is None:
        raise KeyError(args[1])
    return value


@TABLE.lookaside(type(os.environ).__contains__)
def _environ_contains(session: TracingSession, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    if args[0] is not os.environ:  # the method is inherited from collections.abc.Mapping
        return bool(session.machine.generic_call(type(os.environ).__contains__, args, kwargs))
    return _environment_value(session, args[1]) is not None


def _environment_value(session: TracingSession, key: str) -> str | None:
    """Return one environment variable, guarded by its value; the others stay unread."""
    data = os.environ._data  # type: ignore[attr-defined]
    encoded = os.environ.encodekey(key)
    path = session.object_root(data, "os.environ").step("key", encoded)
    raw = data.get(encoded, ABSENT)
    if raw is ABSENT:
        session.note(prims.check_same_object, path, ABSENT)
        return None
    session.note(prims.check_literal_like, path, raw)
    decoded: str = os.environ.decodevalue(raw)
    return decoded


# -- refusals ------------------------------------------------------------------------------------------------


def refuse(fns: list[Any], what: str, hint: str) -> None:
    """Register a refusal for functions."""

    @TABLE.lookaside(*fns)
    def rule(session: TracingSession, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        raise UnsupportedProgram(f"{what} inside a compiled function", hint=hint)


refuse(
    [torch.func.functionalize],
    "torch.func.functionalize",
    "Call it outside, on the compiled function.",
)
refuse(
    [torch.nn.parallel.DistributedDataParallel.forward],
    "a DistributedDataParallel module",
    "Call the module inside of it, or wrap the compiled module: DistributedDataParallel(thunder.jit(model)).",
)
refuse([torch.compile], "torch.compile", "Remove it: thunder compiles the whole function.")
refuse([torch.cuda.seed, torch.cuda.seed_all], "seeding by chance", "Seed with torch.manual_seed.")
refuse([torch.set_default_device], "a change of torch's defaults", "Set them before the call.")
