"""Uses of tensors that thunder does not model: opaque calls, see Note [Unmodelled tensors]."""

from __future__ import annotations

import builtins
import functools
import operator
import re
import types
from collections.abc import Callable, Sequence
from typing import Any, Final

import torch
from torch.overrides import get_overridable_functions

from thunder.base.errors import UnsupportedProgram
from thunder.base.pytree import tree_iter
from thunder.frontend.natives import native_calls
from thunder.frontend.objects.tensor_classes import is_followed
from thunder.frontend.opaque_calls import opaque_acquisition
from thunder.frontend.opaque_calls.opaque_run import VALUES, ThisResult
from thunder.frontend.session import TracingSession
from thunder.frontend.traced_replacements import full_name
from thunder.interpreter.policy import MISSING
from thunder.ir.proxies import TensorProxy
from thunder.ir.unmodelled_proxies import UnmodelledProxy

__all__ = ["are_passed", "asks", "call", "delete_attr", "load_attr", "makes_unmodelled", "store_attr"]

#: functions of Python that compute with a tensor
_COMPUTING: Final = frozenset(
    {
        *(v for v in vars(operator).values() if isinstance(v, types.BuiltinFunctionType)),
        *(builtins.len, builtins.abs, builtins.divmod, builtins.pow, builtins.round, builtins.repr),
        *(builtins.format, builtins.sum, bool, int, float, complex, str),
    }
) - {operator.is_, operator.is_not}
#: names of torch's functions and methods that write to an argument
_WRITING: Final = re.compile(
    r"[^_]_$|^__(i(add|sub|mul|truediv|floordiv|mod|pow|and|or|xor|[lr]shift)|setitem)__$"
)
#: methods and attributes that belong to torch's graph, of which an opaque call has its own
_OF_GRAPH: Final = frozenset(
    {
        *("backward", "register_hook", "register_post_accumulate_grad_hook", "retain_grad", "retains_grad"),
        *("requires_grad_", "requires_grad", "grad", "grad_fn", "is_leaf", "output_nr", "_backward_hooks"),
        *("share_memory_", "untyped_storage", "storage", "data_ptr", "_version"),
    }
)


@functools.cache
def _overridable() -> frozenset[int]:
    return frozenset(id(fn) for functions in get_overridable_functions().values() for fn in functions)


def are_passed(session: TracingSession, fn: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> bool:
    """Return whether a function that computes with tensors is passed some that thunder does not model."""
    if isinstance(fn, type):
        computes = issubclass(fn, torch.Tensor) or (fn in _COMPUTING and bool(args))
    else:
        computes = _is_of_torch(session, fn) or asks(fn)
    if not computes:
        return False
    if not asks(fn):
        session.read_lists(*args, *kwargs.values())
    values = args if asks(fn) else tree_iter((args, kwargs))
    return any(isinstance(value, UnmodelledProxy) for value in values)


def _is_of_torch(session: TracingSession, fn: Any) -> bool:
    if isinstance(fn, torch.nn.Module | types.MethodType):
        return False
    if id(fn) in _overridable() or native_calls.is_unknown_torch(fn):
        return True
    owner: Any = getattr(fn, "__self__", None) if isinstance(fn, types.MethodWrapperType) else None
    if isinstance(owner, types.GetSetDescriptorType):
        return owner.__objclass__ is torch._C.TensorBase
    return isinstance(fn, _FUNCTIONS) and fn in session.language.functions


#: types of torch's functions, which have a hash
_FUNCTIONS: Final = (
    types.FunctionType,
    types.BuiltinFunctionType,
    types.MethodDescriptorType,
    types.WrapperDescriptorType,
    torch._ops.OpOverload,
    torch._ops.OpOverloadPacket,
)


def asks(fn: Any) -> bool:
    """Return whether a function of Python computes with its arguments by their methods."""
    return isinstance(fn, types.BuiltinFunctionType | type) and fn in _COMPUTING


def makes_unmodelled(cls: type) -> bool:
    """Return whether a class is one of tensors that thunder does not model."""
    return issubclass(cls, torch.Tensor) and not is_followed(cls)


def call(session: TracingSession, fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run a function on the tensors themselves, and record its statement.

    Raises UnsupportedProgram where it would write to a tensor of the program, or reach into torch's graph.
    """
    name = full_name(fn)
    last = name.rpartition(".")[2]
    if last in ("__get__", "__set__"):
        last = fn.__self__.__name__
    if last in _OF_GRAPH:
        raise _refused(name, last)
    is_writing = bool(kwargs.get("inplace")) or any(map(_WRITING.search, name.split(".")))
    written = (kwargs.get("out"), args[0] if is_writing and args else None)
    if any(isinstance(x, TensorProxy) and not isinstance(x, UnmodelledProxy) for x in tree_iter(written)):
        raise UnsupportedProgram(
            f"{name} is called with a tensor whose class or layout thunder does not model, and writes to "
            "an argument",
            hint="Use the function that returns a new tensor.",
        )
    return opaque_acquisition.call(session, _runner(fn, name), args, kwargs)


def _refused(name: str, attribute: str) -> UnsupportedProgram:
    return UnsupportedProgram(
        f"{name} of a tensor whose class or layout thunder does not model is used in the program",
        hint=f"Use {attribute} outside of the program.",
    )


def _runner(fn: Any, name: str) -> Callable[..., Any]:
    def run(*args: Any, **kwargs: Any) -> Any:
        return _told_apart(fn(*args, **kwargs))

    run.__module__, run.__qualname__ = name.rpartition(".")[::2]
    return run


def _told_apart(result: Any) -> Any:
    """Return a result in which what is neither a tensor nor a value is told by which object it is."""
    if type(result) is tuple:
        return tuple(map(_told_apart, result))
    if isinstance(result, torch.Tensor | ThisResult) or type(result) in VALUES:
        return result
    if isinstance(result, tuple) and all(isinstance(x, torch.Tensor) for x in result):
        return result  # of several results
    return ThisResult(result)


# -- attributes ----------------------------------------------------------------------------------------------

_METHODS: Final = (types.FunctionType, types.MethodDescriptorType, types.WrapperDescriptorType)
_ABSENT: Final = "there is no such attribute"


def load_attr(session: TracingSession, x: UnmodelledProxy, name: str) -> Any:
    """Return an attribute: a method bound to the proxy, or what an opaque call reads."""
    cls = x.seen_class
    if name == "__class__":
        return cls
    if name in _OF_GRAPH:
        return _of_graph(x, name)
    raw = MISSING if name in x.hiding else session.type_attr(cls, name)
    if isinstance(raw, _METHODS):
        return types.MethodType(raw, x)
    if isinstance(raw, staticmethod | classmethod):
        return raw.__get__(None, cls)
    if isinstance(raw, property) and isinstance(raw.fget, types.FunctionType) and id(raw) not in _OF_TORCH:
        return session.call(raw.fget, (x,), {})
    value = opaque_acquisition.call(session, _reader(name), (x,), {})
    if type(value) is tuple and value == (_ABSENT,):
        raise AttributeError(f"{cls.__name__!r} object has no attribute {name!r}", name=name, obj=None)
    return value


#: properties in Python that torch's tensors have
_OF_TORCH: Final = {id(v) for cls in torch.Tensor.__mro__ for v in vars(cls).values()}


def _of_graph(x: UnmodelledProxy, name: str) -> Any:
    if name == "requires_grad":
        return x.requires_grad
    if not x.requires_grad and name in ("is_leaf", "grad_fn"):
        return name == "is_leaf" or None
    raise _refused(f"the attribute {name}", name)


@functools.cache
def _reader(name: str) -> Callable[[Any], Any]:
    def read(x: torch.Tensor) -> Any:
        try:
            value = getattr(x, name)
        except AttributeError:
            return (_ABSENT,)
        if isinstance(value, types.MethodType | types.BuiltinMethodType | types.MethodWrapperType):
            raise _refused(f"the method {name}, which the object itself holds,", name)
        return _told_apart(value)

    read.__module__, read.__qualname__ = "getattr", name
    return read


def store_attr(session: TracingSession, x: UnmodelledProxy, name: str, value: Any) -> None:
    """Write an attribute, in an opaque call; raises UnsupportedProgram for those of torch's graph."""
    is_tensor = isinstance(value, TensorProxy)
    if name in _OF_GRAPH or (is_tensor and value.requires_grad):
        raise _refused(f"a write of the attribute {name}", name)
    opaque_acquisition.call(session, setattr, (x, name, value), {})


def delete_attr(session: TracingSession, x: UnmodelledProxy, name: str) -> None:
    """Delete an attribute, in an opaque call."""
    opaque_acquisition.call(session, delattr, (x, name), {})
