"""Hooks of transforms and stages whose code passes dtypes and devices of proxies to torch's functions.

    mask = torch.ones(4, dtype=x.dtype, device=x.device)     # in transform_trace_pre_execution

Torch's parser refuses these dtypes before a proxy sees the call. A hook whose code may make such a call is
interpreted, and the call records a symbol in the current trace, or computes a tensor where there is none;
functions that `make_opaque` marks run as they are. A hook is never called twice: unlike a gradient rule it
may change state.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Iterator
from typing import Any, Final

from thunder.base.devices import Device
from thunder.base.dtypes import dtype
from thunder.base.langctx import current_language
from thunder.base.pytree import tree_iter, tree_map
from thunder.interpreter import interpret, is_opaque
from thunder.ir.metadata_methods import torch_metadata
from thunder.ir.symbol import Symbol
from thunder.ir.trace import get_tracectx

__all__ = ["call_hook"]

_METADATA: Final = frozenset({"dtype", "device"})
_OWN: Final = ("torch", "thunder")


def call_hook(hook: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Call a hook; torch's functions in its code take the dtypes and devices of proxies."""
    owner, function = (
        (type(hook.__self__), hook.__func__) if isinstance(hook, types.MethodType) else (None, hook)
    )
    if not isinstance(function, types.FunctionType) or is_opaque(function):
        return hook(*args, **kwargs)
    if not _may_create_tensors(function, owner):
        return hook(*args, **kwargs)
    return interpret(hook, lookaside=_with_torch_metadata)(*args, **kwargs)


def _may_create_tensors(function: types.FunctionType, owner: type | None) -> bool:
    """Return whether code that a function reaches by name uses torch, and a dtype or a device."""
    names: set[str] = set()
    uses_torch = False
    for reached in _reached(function, owner):
        for code in _codes(reached.__code__):
            names.update(code.co_names, *(c for c in code.co_consts if _is_names(c)))
            uses_torch |= any(_package_of(reached.__globals__.get(n)) == "torch" for n in code.co_names)
    return uses_torch and not _METADATA.isdisjoint(names)


def _is_names(constant: object) -> bool:
    """Return whether a constant of code may be the names of keyword arguments."""
    return isinstance(constant, tuple) and all(isinstance(x, str) for x in constant)


def _reached(function: types.FunctionType, owner: type | None) -> Iterator[types.FunctionType]:
    """Yield a function, and those of packages that it reaches by global names, or as methods.

    Methods are those of `owner` and of classes that the code names.
    """
    classes: set[type] = set()
    found = {owner} if owner is not None else set[type]()
    names: set[str] = set()
    pending, seen = [function], {function}
    while pending:
        reached = pending.pop()
        yield reached
        own = {name for code in _codes(reached.__code__) for name in code.co_names}
        values = [reached.__globals__.get(name) for name in own]
        found |= {value for value in values if isinstance(value, type)} - classes
        new, names = own - names, names | own
        methods = [vars(base).get(name) for cls in classes for base in cls.__mro__ for name in new]
        methods += [vars(base).get(name) for cls in found for base in cls.__mro__ for name in names]
        classes, found = classes | found, set()
        for other in (*values, *methods):
            if isinstance(other, types.FunctionType) and other not in seen:
                seen.add(other)
                if _package_of(other) not in _OWN and not is_opaque(other):
                    pending.append(other)


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _codes(constant)


def _package_of(value: object) -> str:
    name = value.__name__ if isinstance(value, types.ModuleType) else getattr(value, "__module__", None)
    return name.partition(".")[0] if isinstance(name, str) else ""


def _with_torch_metadata(fn: Any) -> Callable[..., Any] | None:
    """Return what is called for a function that a hook calls; None to interpret it."""
    if isinstance(fn, Symbol) or _package_of(fn) == "thunder":
        return fn  # type: ignore[no-any-return]
    symbol = current_language().resolve(fn)
    if symbol is None and _package_of(fn) != "torch":
        return None

    def call(*args: Any, **kwargs: Any) -> Any:
        if not any(isinstance(leaf, dtype | Device) for leaf in tree_iter((args, kwargs))):
            return fn(*args, **kwargs)
        if symbol is not None and get_tracectx() is not None:
            return symbol(*args, **kwargs)
        args, kwargs = tree_map(torch_metadata, (args, kwargs))
        return fn(*args, **kwargs)

    return call
