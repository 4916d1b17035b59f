"""Attributes of torch's classes that were replaced since thunder was imported.

The rules of the frontend know what torch's own methods do. What a program finds under a name is a fact; if it
is not torch's own, the replacement is interpreted as any Python function is.

    torch.Tensor.add = f        x.add(1) in a program calls f
    nn.Module.__getattr__ = f   members are found by f, and not by the rule
"""

from __future__ import annotations

import builtins
import types
from typing import Any

import torch

from thunder.base.errors import UnsupportedProgram
from thunder.base.provenance import ABSENT, lookup_type
from thunder.frontend.session import SessionState, TracingSession
from thunder.torch import tensor_attributes


class SpecialMethods(SessionState):
    """The names under which operators were looked up in tensors."""

    is_only_read = True

    def __init__(self, session: TracingSession) -> None:
        self.names: set[str] = set()


_CLASSES = (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer)
_OWN: dict[type, dict[str, Any]] = {
    cls: {name: value for base in reversed(cls.__mro__) for name, value in vars(base).items()}
    for cls in _CLASSES
}
#: methods of ``torch.nn.Module`` that the rules of modules replace
MODULE_METHODS = {
    name: vars(torch.nn.Module)[name]
    for name in ("__call__", "_call_impl", "__getattr__", "__setattr__", "__delattr__")
}
#: builtins that the code of thunder itself calls
_BUILTINS = tuple(
    (value.__name__, value)
    for value in (
        abs,
        all,
        any,
        bool,
        bytes,
        callable,
        complex,
        dict,
        enumerate,
        filter,
        float,
        frozenset,
        getattr,
        hasattr,
        hash,
        id,
        int,
        isinstance,
        issubclass,
        iter,
        len,
        list,
        map,
        max,
        min,
        next,
        object,
        property,
        range,
        repr,
        reversed,
        set,
        setattr,
        slice,
        sorted,
        str,
        sum,
        super,
        tuple,
        type,
        vars,
        zip,
    )
)


def tensor_attribute(session: TracingSession, cls: type, name: str) -> Any:
    """Return what a class of tensors has under ``name``, or ABSENT. It becomes a fact."""
    value = lookup_type(cls, name)
    session.type_attr(cls, name)
    return value


def is_replaced(cls: type, name: str, value: Any) -> bool:
    """Return whether an attribute of a class of tensors is not torch's own."""
    return value is not _OWN.get(cls, _OWN[torch.Tensor]).get(name, ABSENT)


def special_method(session: TracingSession, name: str) -> Any:
    """Return the replacement of a special method of tensors, or None. It becomes a fact."""
    session.state(SpecialMethods).names.add(name)
    method = tensor_attribute(session, torch.Tensor, name)
    return method if method is not ABSENT and is_replaced(torch.Tensor, name, method) else None


def note_special_methods(session: TracingSession, classes: set[type]) -> None:
    """Guard the special methods that were used, for further classes of tensors of the inputs.

    Raises UnsupportedProgram if one of them has a method that replaces torch's.
    """
    for cls in classes - {torch.Tensor}:
        for name in sorted(session.state(SpecialMethods).names):
            method = tensor_attribute(session, cls, name)
            if is_replaced(cls, name, method) and method is not lookup_type(torch.Tensor, name):
                raise UnsupportedProgram(
                    f"{cls.__name__}.{name} was replaced, which thunder does not follow",
                    hint="Replace the method of torch.Tensor.",
                )


def bound(session: TracingSession, name: str, value: Any, x: Any) -> Any:
    """Return a replaced attribute of a tensor, bound as reading it binds it."""
    if name in tensor_attributes.ATTRIBUTES:
        raise UnsupportedProgram(f"torch.Tensor.{name} was replaced, which thunder itself reads")
    if isinstance(value, types.FunctionType | types.MethodDescriptorType | types.WrapperDescriptorType):
        return types.MethodType(value, x)
    return session.machine.bind_attribute(value, x, torch.Tensor)


def refuse_replaced_builtins() -> None:
    """Raise UnsupportedProgram if a builtin that thunder itself calls was replaced."""
    for name, value in _BUILTINS:
        if builtins.__dict__.get(name) is not value:
            raise UnsupportedProgram(
                f"builtins.{name} was replaced, which thunder itself calls",
                hint=f"Assign {name} in the module of the program.",
            )
