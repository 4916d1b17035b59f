"""Arguments of operators that packages define: values that a trace can hold, guard and differentiate.

A kernel receives the arguments as they are in the trace. An object whose fields only the kernel reads would
be used without a guard, and its tensors without a gradient:

    acme.scale(x, cfg)     the kernel reads cfg.s, which is in no guard: refused
    acme.scale(x, cfg.s)   the program reads cfg.s, which is guarded

So an argument is a tensor, a number, a string, a dtype, a device, a generator, None, an enum, another plain
constant, or a pytree of them. Every part of such a pytree was adopted where the program read it.
"""

from __future__ import annotations

import dataclasses
import enum
import inspect
import types
from collections.abc import Mapping
from typing import Any

import torch

from thunder.base.devices import Device
from thunder.base.dtypes import dtype
from thunder.base.errors import UnsupportedOperator
from thunder.base.extension_origin import is_of_core
from thunder.base.pytree import is_builtin_node, registered_node, with_children
from thunder.frontend.natives.libraries import is_numpy_scalar
from thunder.frontend.objects.class_kinds import LEAVES, plain_base
from thunder.frontend.session import TracingSession
from thunder.ir.proxies import Proxy, TensorProxy
from thunder.ir.symbol import Symbol

Args = tuple[Any, ...]
Kwargs = dict[str, Any]

_CONSTANTS = (LEAVES - {slice}) | {dtype, Device}
_SETS = (set, frozenset)


def checked_arguments(
    session: TracingSession, symbol: Symbol, args: Args, kwargs: Kwargs
) -> tuple[Args, Kwargs]:
    """Return the arguments of an operator of a package, with objects of registered types read by the session.

    Raises UnsupportedOperator, with the name of the argument, for a value that a trace cannot hold.
    """
    checker = _Checker(session, symbol)
    return (
        tuple(
            [
                v if type(v) is TensorProxy else checker.checked(v, _parameter(symbol, i))
                for i, v in enumerate(args)
            ]
        ),
        {name: checker.checked(value, name) for name, value in kwargs.items()},
    )


def bound_to_function(
    session: TracingSession, fn: Any, symbol: Symbol, args: Args, kwargs: Kwargs
) -> tuple[Args, Kwargs]:
    """Return the arguments of a call of ``fn`` as the operator that replaces it takes them.

    An argument that the call lacks has the default of ``fn``, which may change, and need not be the
    operator's. One that is passed by a name that the operator lacks is passed by position.
    """
    if type(fn) is not types.FunctionType or not (fn.__defaults__ or fn.__kwdefaults__ or kwargs):
        return args, kwargs
    parts, named = session.function_parts(fn), _by_name(symbol)
    names = parts.code.co_varnames[: parts.code.co_argcount]
    defaults = dict(zip(reversed(names), reversed(parts.defaults or ()), strict=False))
    missing = {**defaults, **(parts.kwdefaults or {})}
    passed = {*names[: len(args)], *kwargs}
    kwargs = {**{n: d for n, d in missing.items() if n not in passed and n in named}, **kwargs}
    if named.issuperset(kwargs):
        return args, kwargs
    positional = list(args)
    for name in names[len(args) :]:
        if name not in kwargs and name not in defaults:
            break
        positional.append(kwargs.pop(name) if name in kwargs else defaults[name])
    return tuple(positional), kwargs


def _by_name(symbol: Symbol) -> frozenset[str]:
    """Return the parameters of an operator that can be passed by name."""
    named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return frozenset(name for name, p in _parameters(symbol).items() if p.kind in named)


class _Checker:
    """Checks the arguments of one call."""

    def __init__(self, session: TracingSession, symbol: Symbol) -> None:
        self.session, self.symbol = session, symbol

    def checked(self, value: Any, name: str) -> Any:
        """Return an argument, or a part of one; ``name`` is its path from the call."""
        kind = type(value)
        if kind in _CONSTANTS or isinstance(value, TensorProxy | Proxy):
            return value
        if isinstance(value, enum.Enum):
            for part in value.value if type(value.value) is tuple else (value.value,):
                self._check_constant(part, name, value)
            return value
        if kind is slice:
            for bound in (value.start, value.stop, value.step):
                self._check_constant(bound, name, value)
            return value
        if is_numpy_scalar(value) or (
            plain_base(kind) in _CONSTANTS and not getattr(value, "__dict__", None)
        ):
            return value
        if kind in _SETS:
            for item in value:
                self._check_constant(item, name, value)
            return value
        if registered_node(kind) is not None:
            return self._registered(value, name)
        if not is_builtin_node(kind):
            raise self._refusal(value, name)
        return self._container(value, name)

    def _container(self, value: Any, name: str) -> Any:
        is_mapping = isinstance(value, dict)
        for key in value if is_mapping else ():
            for part in key if type(key) is tuple else (key,):
                self._check_constant(part, name, value)
        pairs = value.items() if is_mapping else enumerate(value)
        items = [(item, self.checked(item, f"{name}[{key!r}]")) for key, item in pairs]
        if all(before is after for before, after in items):
            return value
        return with_children(value, [after for _, after in items])

    def _registered(self, value: Any, name: str) -> Any:
        """Return an object of a registered type with the children that its `flatten` reads, guarded."""
        node = registered_node(type(value))
        assert node is not None, "the type is registered"
        flatten, unflatten = node
        if is_of_core(flatten):  # of register_pytree_node_dataclass
            children, context = self._fields(value)
        else:
            children, context = self.session.call(flatten, (value,), {})
            self.session.read_lists(children)
        return unflatten(context, [self.checked(c, f"part {i} of {name}") for i, c in enumerate(children)])

    def _fields(self, value: Any) -> tuple[list[Any], tuple[str, ...]]:
        """Return the values and names of the fields of a dataclass that are set."""
        present: dict[str, Any] = {}
        for field in dataclasses.fields(value):
            try:
                present[field.name] = self.session.load_attr(value, field.name)
                self.session.read_lists(present[field.name])
            except AttributeError:
                continue
        return list(present.values()), tuple(present)

    def _check_constant(self, value: Any, name: str, whole: Any) -> None:
        if type(value) not in _CONSTANTS and not isinstance(value, enum.Enum):
            raise self._refusal(whole, name)

    def _refusal(self, value: Any, name: str) -> UnsupportedOperator:
        path = self.session.path_of(value)
        source = path.source if path is not None and path.source else name
        return UnsupportedOperator(
            f"{self.symbol.id} received {_described(value)} as {name}, and an operator's arguments are "
            "tensors, numbers, strings, dtypes, devices, None, enums, and lists, tuples and dicts of them",
            found={name: f"{source}, of type {type(value).__module__}.{type(value).__qualname__}"},
            hint=_way_out(value, source),
        )


def _parameters(symbol: Symbol) -> Mapping[str, inspect.Parameter]:
    return {} if symbol.meta is None else inspect.signature(symbol.meta).parameters


def _parameter(symbol: Symbol, position: int) -> str:
    """Return the name of the parameter that takes a positional argument, or its position."""
    parameters = list(_parameters(symbol).values())
    if position < len(parameters) and parameters[position].kind is not inspect.Parameter.VAR_POSITIONAL:
        return parameters[position].name
    return f"argument {position}"


def _described(value: Any) -> str:
    if isinstance(value, torch.nn.Module):
        return f"the module {type(value).__qualname__}"
    if isinstance(value, type):
        return f"the class {value.__qualname__}"
    if isinstance(value, _FUNCTIONS):
        return f"the function {value.__name__}"
    return f"an object of type {type(value).__qualname__}"


_FUNCTIONS = (types.FunctionType, types.BuiltinFunctionType, types.MethodType, types.MethodDescriptorType)


def _way_out(value: Any, source: str) -> str:
    """Return what to pass instead: the kernel would read the object without a guard or gradient."""
    unguarded = "What only the kernel reads of it is neither guarded nor differentiated."
    if isinstance(value, torch.nn.Module):
        names = [name for name, _ in value.named_parameters()] or ["weight"]
        return f"{unguarded} Pass the tensors that it computes with, such as {source}.{names[0]}."
    if isinstance(value, (type, *_FUNCTIONS)):
        return f"{unguarded} Pass a string or an enum, by which the operator's function chooses it."
    fields = [name for name in getattr(value, "__dict__", {}) if not name.startswith("_")]
    example = f", such as {source}.{fields[0]}" if fields else ""
    return (
        f"{unguarded} Pass the values that it needs{example}; or make the class a dataclass, and register "
        "it: thunder.core.pytree.register_pytree_node_dataclass."
    )
