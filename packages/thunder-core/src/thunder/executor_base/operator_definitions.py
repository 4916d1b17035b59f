"""Checks of the definition of an operator: its arguments, the functions that it replaces, its signatures."""

from __future__ import annotations

import contextlib
import dis
import functools
import inspect
import types
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

import torch
from torch._library.custom_ops import CustomOpDef

from thunder.base.attribute_paths import find_torch
from thunder.base.errors import PluginError, RegistrationError
from thunder.executor_base.executor import Executor
from thunder.ir.symbol import Symbol
from thunder.ops.library_operators import library_operator, spellings_of_operator

__all__ = ["can_be_replaced", "check_definition", "check_signatures", "replaced_functions"]


def check_definition(
    executor: Executor,
    name: str,
    meta: Callable[..., Any] | None,
    like: Symbol | Callable[..., Any] | None,
    fn: Callable[..., Any] | None,
    module: ModuleType | str | None,
) -> None:
    """Raise RegistrationError for a definition that is not complete, or not unique."""
    label = f"{executor.name}.{name}"
    if not isinstance(name, str) or not name.isidentifier():
        raise RegistrationError(
            f"the operator name {name!r} is not an identifier, so a call of it cannot be printed"
        )
    if (meta is None) == (like is None):
        raise RegistrationError(
            f"operator {label!r} got {'neither' if meta is None else 'both'} of meta= and like=",
            hint="Pass exactly one: meta= defines a primitive, like= is an operator or a function that "
            "computes the same.",
        )
    defines = like.meta is not None if isinstance(like, Symbol) else _has_signature(like)
    if like is not None and not defines:
        raise RegistrationError(
            f"like= of operator {label!r} has to be a symbol with a meta function, or a function that has a "
            f"signature, and is {like!r}"
        )
    if like is not None and not isinstance(like, Symbol):
        _check_state(label, like)
    if fn is not None and module is not None:
        raise RegistrationError(
            f"operator {label!r} got both of fn= and module=",
            hint="fn= runs under its bare name; module= makes the program call module.name. Pass one.",
        )


#: objects whose content may change after a program was compiled
_STATE = (torch.Tensor, torch.nn.Module, dict, list, set)


def _check_state(label: str, function: Callable[..., Any]) -> None:
    """Refuse a function of `like=` that reads tensors, modules or containers other than its arguments.

    Programs are compiled with what it read then, without a guard.
    """
    for name, value in {"": function, **_values_read(function)}.items():
        if isinstance(value, _STATE):
            read = f"reads {name}, which" if name else "has state: it"
            raise RegistrationError(
                f"the function of like= of operator {label!r} {read} is an object of type "
                f"{type(value).__name__}",
                hint="A program would be compiled with what it is then. Pass what it needs as arguments.",
            )


def _values_read(function: Callable[..., Any]) -> dict[str, Any]:
    """Return the globals and closure variables that the code of a Python function names, by name."""
    if not isinstance(function, types.FunctionType):
        return {}
    values = {}
    for variable, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        with contextlib.suppress(ValueError):  # a cell that is not assigned yet
            values[variable] = cell.cell_contents
    codes = [function.__code__]
    for code in codes:
        codes += [constant for constant in code.co_consts if isinstance(constant, types.CodeType)]
        for instruction in dis.get_instructions(code):
            if instruction.opname == "LOAD_GLOBAL" and instruction.argval in function.__globals__:
                values[instruction.argval] = function.__globals__[instruction.argval]
    return values


def _has_signature(function: object) -> bool:
    if not callable(function):
        return False
    try:
        inspect.signature(function)
    except (TypeError, ValueError):  # a function written in C that is not an operator
        return False
    return True


def replaced_functions(
    replaces: Callable[..., Any] | str | Sequence[Callable[..., Any] | str] | None,
) -> tuple[Callable[..., Any], ...]:
    """Return the functions of `replaces=`, and the other spellings of operators of `torch.library`.

    Raises RegistrationError for one that is never replaced.
    """
    is_one = callable(replaces) or isinstance(replaces, str | CustomOpDef)
    given: Sequence[Any] = () if replaces is None else (replaces,) if is_one else tuple(replaces)  # type: ignore[arg-type]
    functions: list[Any] = []
    for function in given:
        operator = library_operator(function)
        if operator is not None:
            functions += spellings_of_operator(operator)
            continue
        if isinstance(function, str) and find_torch(function) is not None:
            functions.append(find_torch(function))
            continue
        if isinstance(function, str):
            raise RegistrationError(
                f"replaces={function!r} is the name of no function of torch, and of no operator",
                hint="A name is 'namespace::operator' or a path such as 'torch.nn.functional.gelu'.",
            )
        if not callable(function):
            raise RegistrationError(f"replaces= takes functions, and {function!r} is not callable")
        if not can_be_replaced(function):
            raise RegistrationError(
                f"replaces= takes functions, and {function!r} is an object of type {type(function).__name__}",
                hint="Calls of an object, a bound method or a partial are traced through. Replace a function "
                "that they call.",
            )
        functions.append(function)
    return tuple(dict.fromkeys(functions))


#: types of callables whose calls in a program may become an operator
_REPLACEABLE = (
    types.FunctionType,
    types.BuiltinFunctionType,
    types.MethodDescriptorType,
    types.WrapperDescriptorType,
    types.MethodWrapperType,
    types.GetSetDescriptorType,
    torch._ops.OpOverload,
    torch._ops.OpOverloadPacket,
    type,
)


def can_be_replaced(function: Callable[..., Any]) -> bool:
    """Return whether calls of a callable in a program may become an operator."""
    owner = getattr(function, "__self__", None)
    is_apply = isinstance(owner, type) and issubclass(owner, torch.autograd.Function)
    return isinstance(function, _REPLACEABLE) or is_apply


def check_signatures(
    executor: Executor, name: str, meta: Callable[..., Any] | None, fn: Callable[..., Any]
) -> None:
    """Refuse an `fn` that does not take the arguments of `meta`: it would fail at run time."""
    assert meta is not None, "a definition has a meta function"
    try:
        signature, meta_signature = inspect.signature(fn), inspect.signature(meta)
    except (TypeError, ValueError):  # a function written in C has no signature
        return
    kinds = inspect.Parameter
    parameters = meta_signature.parameters.values()
    if any(p.kind in (kinds.VAR_POSITIONAL, kinds.VAR_KEYWORD) for p in parameters):
        return
    keywords = {p.name: None for p in parameters if p.kind is kinds.KEYWORD_ONLY}
    label = f"{executor.name}.{name}"
    try:
        signature.bind(*(p.name for p in parameters if p.name not in keywords), **keywords)
    except TypeError as error:
        raise PluginError(
            f"fn of operator {label!r} does not take the arguments of its meta function: {error}",
            found={"meta": meta_signature, "fn": signature},
            hint="Both have the operator's signature.",
        ).blame(executor.origin) from error


def narrowed(like: Symbol, fn: Callable[..., Any]) -> Symbol | Callable[..., Any]:
    """Return `like` with the signature of an `fn` that lacks its last arguments, all of which have defaults.

        like(input, other, *, alpha=1), fn(a, b)   →   (a, b) -> like(a, b)

    Any other symbol is returned unchanged.
    """
    try:
        signature, takes = inspect.signature(fn), inspect.signature(like.meta or fn)
    except (TypeError, ValueError):  # a function written in C has no signature
        return like
    kinds = inspect.Parameter
    if any(p.kind in (kinds.VAR_POSITIONAL, kinds.VAR_KEYWORD) for p in signature.parameters.values()):
        return like
    keywords = {p.name: None for p in signature.parameters.values() if p.kind is kinds.KEYWORD_ONLY}
    try:
        bound = takes.bind(*(name for name in signature.parameters if name not in keywords), **keywords)
    except TypeError:
        return like
    if len(bound.arguments) == len(takes.parameters):
        return like

    @functools.wraps(fn)
    def call(*args: Any, **kwargs: Any) -> Any:
        return like(*args, **kwargs)

    return call
