"""What a backward may read while it is traced, and what the program may not change after it was."""

from __future__ import annotations

import functools
import types
from typing import Any

import torch
from torch._library.custom_ops import CustomOpDef

from thunder.frontend.natives.libraries import is_library, is_ufunc
from thunder.frontend.objects.class_kinds import CODE_TYPES, LEAVES
from thunder.frontend.session import TracingSession
from thunder.ir.proxies import NumberProxy, TensorProxy
from thunder.ir.symbolic_sizes import SizeTuple

#: the owner of a function that was made by pybind11
_RECORD = torch._C._jit_get_operation.__self__  # type: ignore[attr-defined]
#: owners of functions in C that have no state
_OWNERS = (types.NoneType, types.ModuleType, type, type(_RECORD))


def is_code(value: Any) -> bool:
    """Return whether a value is a part of the program's text, such as a function or a class.

    A method in C that is bound to an object, such as ``settings.get``, is not.
    """
    if isinstance(value, types.BuiltinFunctionType | types.MethodWrapperType):
        return isinstance(value.__self__, _OWNERS) or is_code(value.__self__)
    return isinstance(value, (*CODE_TYPES, CustomOpDef)) or is_ufunc(value)


def is_in_library(session: TracingSession) -> bool:
    """Return whether the running line is a library's and not the user's."""
    return is_library(session.machine.globals)


def check_hook(session: TracingSession, hook: Any) -> None:
    """End the tracing of a hook with objects of the program itself, which it may write."""
    parts = [hook]
    if isinstance(hook, functools.partial):
        parts = [hook.func, *hook.args, *hook.keywords.values()]
    for part in parts:
        owner = part.__self__ if isinstance(part, types.MethodType | types.BuiltinMethodType) else part
        if not (is_fixed(session, owner) or is_code(owner)) and session.entry_of(owner) is None:
            session.place.end_backward("uses an object that the program has made")


def is_fixed(session: TracingSession, value: Any) -> bool:
    """Return whether a value that the forward saved is the same when the backward runs."""
    if type(value) in LEAVES or isinstance(value, (TensorProxy, NumberProxy)):
        return True
    if type(value) is tuple or type(value) is SizeTuple:
        return all(is_fixed(session, v) for v in value)
    return is_code(value) or isinstance(value, torch.nn.Module)  # whose attributes are looked at
