"""Legacy constructors of tensors: ``torch.FloatTensor([1.0])``, ``torch.Tensor(2, 3)``, ``x.new(3)``.

One sequence is the data, integers or a ``torch.Size`` are a shape, whose elements have no values yet, and a
tensor is returned as an alias.
"""

from __future__ import annotations

import types
from typing import Any

import torch

from thunder.base.errors import UnsupportedOperator
from thunder.frontend.arrays.array_memory import is_array
from thunder.frontend.lookasides.lookaside_registry import LookasideTable
from thunder.frontend.places import COMPUTES
from thunder.frontend.session import TracingSession
from thunder.frontend.torch_functions.tensor_subclasses import as_subclass
from thunder.ir.proxies import NumberProxy, TensorProxy
from thunder.ops import prims

TABLE = LookasideTable(COMPUTES)

_TYPES = {
    torch.FloatTensor: torch.float32,
    torch.DoubleTensor: torch.float64,
    torch.HalfTensor: torch.float16,
    torch.BFloat16Tensor: torch.bfloat16,
    torch.LongTensor: torch.int64,
    torch.IntTensor: torch.int32,
    torch.ShortTensor: torch.int16,
    torch.CharTensor: torch.int8,
    torch.ByteTensor: torch.uint8,
    torch.BoolTensor: torch.bool,
}


def _construct(session: TracingSession, name: str, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
    """Return a tensor of a legacy constructor; ``options`` are its dtype and device."""
    if not args:
        return session.call(torch.empty, (0,), options)
    first, *rest = args
    if isinstance(first, TensorProxy) and not rest:
        if name != "Tensor" and first.dtype.torch_dtype is not options["dtype"]:
            raise TypeError(f"expected a tensor of dtype {options['dtype']}, got {first.dtype.torch_dtype}")
        return prims.shallow_copy(first)
    if type(first) is torch.Size and not rest:
        return session.call(torch.empty, (tuple(first),), options)
    if (isinstance(first, list | tuple | range) or is_array(first)) and not rest:
        first = list(first) if isinstance(first, range) else first
        return session.call(torch.tensor, (first,), options)
    if all((type(a) is int) or isinstance(a, NumberProxy) for a in args):
        return session.call(torch.empty, args, options)
    if not rest and isinstance(first, bool | float):
        raise TypeError(f"new(): data must be a sequence (got {type(first).__name__})")
    kinds = ("Tensor" if isinstance(a, TensorProxy) else type(a).__name__ for a in args)
    raise UnsupportedOperator(
        f"torch.{name} of {', '.join(kinds)}",
        hint="Use torch.tensor or torch.empty.",
    )


def _refuse_keywords(name: str, kwargs: dict[str, Any]) -> None:
    if kwargs:
        raise UnsupportedOperator(
            f"torch.{name} with the keyword {min(kwargs)!r}", hint="Use torch.tensor or torch.empty."
        )


def _register(cls: Any, dtype: torch.dtype) -> None:
    @TABLE.lookaside(cls)
    def rule(session: TracingSession, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        _refuse_keywords(cls.__name__, kwargs)
        return _construct(session, cls.__name__, args, {"dtype": dtype, "device": torch.device("cpu")})


for _cls, _dtype in _TYPES.items():
    _register(_cls, _dtype)


@TABLE.lookaside(torch.Tensor)
def _tensor(session: TracingSession, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    _refuse_keywords("Tensor", kwargs)
    options = {
        "dtype": session.call(torch.get_default_dtype, (), {}),
        "device": session.call(torch.get_default_device, (), {}),
    }
    return _construct(session, "Tensor", args, options)


@TABLE.lookaside(torch.Tensor.__new__)
def _of_subclass(session: TracingSession, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Return a tensor of a subclass with the constructor of ``torch.Tensor``."""
    cls, *data = args
    return as_subclass(session, _tensor(session, tuple(data), kwargs), cls)


def construct(session: TracingSession, cls: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Return ``cls(*args)`` of a subclass of ``torch.Tensor`` that has no ``__new__`` of its own."""
    if session.type_attr(cls, "__new__") is not torch.Tensor.__new__:
        return session.machine.generic_call(cls, args, kwargs)
    made = _of_subclass(session, (cls, *args), kwargs)
    init = session.type_attr(cls, "__init__")
    if isinstance(init, types.FunctionType):
        session.call(init, (made, *args), kwargs)
    return made


@TABLE.lookaside(torch.autograd.Variable)
def _variable(session: TracingSession, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Return ``Variable(data, requires_grad)``: the data, without the graph that has computed them."""
    named = dict(zip(("data", "requires_grad", "volatile"), args, strict=False)) | kwargs
    if not isinstance(named.get("data"), TensorProxy):
        return session.machine.generic_call(torch.autograd.Variable, args, kwargs)
    detached = session.call(torch.Tensor.detach, (named["data"],), {})
    if named.get("requires_grad"):
        session.call(torch.Tensor.requires_grad_, (detached,), {})
    return detached


@TABLE.lookaside(torch.Tensor.new)
def _new(session: TracingSession, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    _refuse_keywords("Tensor.new", kwargs)
    x, *data = args
    options = {name: session.load_attr(x, name) for name in ("dtype", "device")}
    return _construct(session, "Tensor.new", tuple(data), options)
