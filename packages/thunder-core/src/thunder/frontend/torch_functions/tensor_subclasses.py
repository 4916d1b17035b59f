"""Tensors of subclasses in the traced program: how they are made, and their own attributes.

The trace has plain tensors alone: an input of a class with ``__torch_function__`` enters it as
``x.as_subclass(torch.Tensor)``, and the epilogue gives results their classes and attributes.
"""

from __future__ import annotations

from typing import Any

import torch

from thunder.base.errors import UnsupportedProgram
from thunder.base.provenance import ABSENT, lookup_type
from thunder.frontend.lookasides.lookaside_registry import LookasideTable
from thunder.frontend.objects.tensor_classes import TORCH_CLASSES, is_followed, overrides_torch
from thunder.frontend.places import COMPUTES
from thunder.frontend.session import TracingSession
from thunder.frontend.torch_functions.made_parameters import make_parameter
from thunder.frontend.torch_functions.override_state import TorchFunctions
from thunder.interpreter import attributes
from thunder.interpreter.policy import MISSING
from thunder.ir.proxies import TensorProxy
from thunder.ops import prims

__all__ = ["TABLE", "attributes_of", "is_own_attribute", "read_own", "write_own"]

TABLE = LookasideTable(COMPUTES)
Args = tuple[Any, ...]
Kwargs = dict[str, Any]


@TABLE.lookaside(torch.Tensor.as_subclass)
def _as_subclass(session: TracingSession, args: Args, kwargs: Kwargs) -> TensorProxy:
    return as_subclass(session, *args, **kwargs)


def as_subclass(session: TracingSession, x: TensorProxy, cls: Any) -> TensorProxy:
    """Return an alias of a tensor whose class in the program is ``cls``."""
    if not (isinstance(cls, type) and issubclass(cls, torch.Tensor)):
        raise TypeError("as_subclass(): argument 'cls' must be a subclass of torch.Tensor")
    if not is_followed(cls) or id(cls) in session.created_by_program:
        raise UnsupportedProgram(
            f"a tensor becomes one of the class {cls.__module__}.{cls.__qualname__}, "
            "which thunder does not follow",
            hint="A class can be followed that is written in Python, outside of the program, and has no "
            "__torch_dispatch__ of its own.",
        )
    with session.state(TorchFunctions).recording():
        alias: TensorProxy = prims.shallow_copy(x)
    if cls is not torch.Tensor:
        session.objects.tensor_classes[id(alias)] = alias, cls
        if overrides_torch(cls):
            session.objects.note_overriding_tensor()
    return alias


@TABLE.lookaside(torch.Tensor._make_wrapper_subclass)
def _make_wrapper(session: TracingSession, args: Args, kwargs: Kwargs) -> Any:
    cls = args[0]
    raise UnsupportedProgram(
        f"the program makes a tensor of the class {cls.__module__}.{cls.__qualname__}, which computes by its "
        "own __torch_dispatch__ when the program runs",
        hint="Mark the function that makes and uses it by thunder.opaque, or write the class with "
        "__torch_function__ alone, which is followed.",
    )


@TABLE.lookaside(torch.Tensor._make_subclass)
def _make_subclass(session: TracingSession, args: Args, kwargs: Kwargs) -> Any:
    """``torch.Tensor._make_subclass(cls, data, require_grad)``, which detaches ``data``."""
    cls, data, *rest = (*args, *kwargs.values())
    if cls in (torch.nn.Parameter, torch.nn.Buffer) and isinstance(data, TensorProxy):
        return make_parameter(session, cls, data, any(rest))
    if any(rest) or not isinstance(data, TensorProxy) or issubclass(cls, torch.nn.Parameter):
        return session.machine.generic_call(torch.Tensor._make_subclass, args, kwargs)
    with session.state(TorchFunctions).recording():
        data = prims.detach(data)
    return as_subclass(session, data, cls)


# -- attributes ----------------------------------------------------------------------------------------------


def is_own_attribute(cls: type, name: str) -> bool:
    """Return whether a class of tensors has another attribute under this name than torch's classes."""
    if cls in TORCH_CLASSES:
        return False
    base = next(c for c in cls.__mro__ if c in TORCH_CLASSES)
    return lookup_type(cls, name) is not lookup_type(base, name)


def attributes_of(session: TracingSession, x: TensorProxy) -> dict[str, Any] | None:
    """Return the attributes of a tensor that the program made one of a subclass, or None for others."""
    if id(x) not in session.objects.tensor_classes or session.entry_of(x) is not None:
        return None
    return session.objects.tensor_attributes.setdefault(id(x), {})


def read_own(session: TracingSession, x: TensorProxy, cls: type, name: str) -> Any:
    """Return an attribute that a subclass defines, as reading it of ``x`` gives it."""
    raw = session.type_attr(cls, name)
    if not attributes.is_data_descriptor(raw):
        value = _of_instance(session, x, name)
        if value is not MISSING:
            return value
    return session.machine.bind_attribute(raw, x, cls, name)


def _of_instance(session: TracingSession, x: TensorProxy, name: str) -> Any:
    own = attributes_of(session, x)
    return session.instance_attr(x, name) if own is None else own.get(name, MISSING)


def write_own(session: TracingSession, x: TensorProxy, cls: type, name: str, value: Any) -> bool:
    """Write an attribute of a tensor that the program made one of a subclass.

    Return False for torch's own attributes, and for other tensors.
    """
    raw = lookup_type(cls, name)
    own = attributes_of(session, x)
    if own is None or (raw is not ABSENT and not is_own_attribute(cls, name)):
        return False
    if raw is not ABSENT and attributes.is_data_descriptor(raw):
        session.call(session.type_attr(type(raw), "__set__"), (session.type_attr(cls, name), x, value), {})
    else:
        own[name] = value
    return True
