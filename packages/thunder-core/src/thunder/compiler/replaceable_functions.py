"""The functions that a lookaside can replace, and the refusals of all others by name."""

from __future__ import annotations

import functools
import inspect
import types
from typing import Any, Final

import torch

from thunder.base.cache_queries import CACHED
from thunder.base.errors import InvalidArgument
from thunder.base.plugin_calls import shown
from thunder.frontend.natives.libraries import is_own
from thunder.frontend.session_rules import session_rules
from thunder.frontend.traced_replacements import Replacement, full_name, python_function
from thunder.frontend.types.patches import MODULE_METHODS
from thunder.interpreter.machine import NATIVES
from thunder.ir.symbol import Symbol
from thunder.plugins.manager import get_manager
from thunder.plugins.specs import Lookaside
from thunder.torch.function_names import name_of
from thunder.wrappers.thunder_module import dispatcher_of

#: the provider of a lookaside that says nothing else
FROM_JIT: Final = "thunder.jit(lookasides=…)"


def replacement_of(lookaside: object) -> Replacement:
    """Return the function that a lookaside replaces, and what is traced in its place.

    Raises InvalidArgument for anything that is not a `Lookaside`, and for a callable that cannot be replaced.
    """
    if not isinstance(lookaside, Lookaside):
        raise InvalidArgument(
            f"lookasides= received {shown(lookaside)}",
            hint="Pass thunder.plugins.Lookaside(fn, replace_with).",
        )
    function, owner = _target(lookaside.fn)
    replace_with: Any = lookaside.replace_with
    if _is_module_class(lookaside.fn) and _is_module_class(replace_with):
        replace_with = _forward(replace_with)
    if replace_with is function:
        raise InvalidArgument(f"a lookaside replaces {full_name(function)} by itself")
    if _runs_natively(replace_with):
        raise InvalidArgument(
            f"{full_name(replace_with)} cannot replace {full_name(function)}: functions of thunder's own "
            "modules are not traced",
            hint="Define it in a module of your package.",
        )
    provider = lookaside.provided_by or FROM_JIT
    return Replacement(function, replace_with, owner, provider, lookaside.reads_code)


def _runs_natively(replace_with: Any) -> bool:
    """Return whether a replacement is a Python function of thunder, and no operator or compiled object."""
    if isinstance(replace_with, Symbol) or dispatcher_of(replace_with) is not None:
        return False
    function, _ = python_function(replace_with)
    return function is not None and is_own(function.__globals__)


def _target(fn: Any) -> tuple[Any, type | None]:
    """Return the function by whose identity calls are recognised, and the class that restricts them."""
    if _is_module_class(fn):
        forward = _forward(fn)
        is_own_forward = any(value is forward for value in vars(fn).values())
        return _checked(forward), None if is_own_forward else fn
    if isinstance(fn, types.MethodType) and isinstance(fn.__self__, type):
        return _checked(fn.__func__), fn.__self__
    return _checked(fn), None


def _is_module_class(fn: Any) -> bool:
    return isinstance(fn, type) and issubclass(fn, torch.nn.Module)


def _forward(cls: type[torch.nn.Module]) -> types.FunctionType:
    forward = inspect.getattr_static(cls, "forward")
    if forward is torch.nn.Module.forward or not isinstance(forward, types.FunctionType):
        raise _refusal(
            f"{full_name(cls)}, which has no forward", "Pass a class that defines or inherits one."
        )
    return forward


def _checked(fn: Any) -> Any:
    """Return a Python function that can be replaced; raise InvalidArgument for any other object."""
    if type(fn) is not types.FunctionType and type(fn) is not CACHED:
        raise _refusal(*_reason_for_object(fn))
    code = fn.__wrapped__ if type(fn) is CACHED else fn
    table, name = session_rules(get_manager()).lookasides, full_name(fn)
    if isinstance(code, types.FunctionType):
        if is_own(code.__globals__):
            raise _refusal(f"{name}, which is a function of thunder", _OPERATOR)
        if id(fn) in table.functions or id(fn) in NATIVES:
            raise _refusal(f"{name}, which thunder carries out by a rule", _CALLER)
    if any(fn is method for method in MODULE_METHODS.values()):
        raise _refusal(f"{name}, which thunder carries out by a rule", "Pass the class, for its forward.")
    if any(id(fn) in set(map(id, vars(cls).values())) for cls in torch.Tensor.__mro__):
        raise _refusal(f"{name}, a method of tensors, which is an operator", _OPERATOR)
    return fn


_OPERATOR: Final = (
    "An executor replaces operators: OperatorExecutor.register_operator(…, replaces=fn), or "
    "register_implementation."
)
_CALLER: Final = "Replace the Python function that calls it."
_SCRIPTED: Final = (torch.jit.ScriptFunction, torch.jit.ScriptModule)


def _reason_for_object(fn: Any) -> tuple[str, str]:
    """Return why an object that is not a Python function cannot be replaced, and what to do."""
    name = full_name(fn)
    if dispatcher_of(fn) is not None:
        return f"{name}, which is compiled", "Pass the function that was compiled."
    if isinstance(fn, _SCRIPTED):
        return f"{name}, a TorchScript program", "Pass the Python function that was compiled."
    if isinstance(fn, types.MethodType):
        return (
            f"{name}, bound to one {type(fn.__self__).__name__}",
            f"Pass the method as the class has it, {type(fn.__self__).__name__}.{fn.__name__}.",
        )
    if isinstance(fn, type):
        return f"the class {name}, which is not a class of modules", "Pass a method of it."
    if isinstance(fn, torch.nn.Module):
        return f"an instance of {name}", "Pass the class, for the forward of all its instances."
    if isinstance(fn, functools.partial):
        return f"a functools.partial of {name}", "Pass the function itself."
    if isinstance(fn, types.BuiltinFunctionType | types.MethodDescriptorType | types.WrapperDescriptorType):
        is_operator = name.startswith("torch.")
        return f"{name_of(fn)}, which is implemented in C", _OPERATOR if is_operator else _CALLER
    if isinstance(fn, Symbol):
        return f"{fn.id}, which is an operator", _OPERATOR
    return f"{fn!r}, which is not a Python function", "Pass a Python function or a class of modules."


def _refusal(what: str, hint: str) -> InvalidArgument:
    return InvalidArgument(f"a lookaside cannot replace {what}", hint=hint)
