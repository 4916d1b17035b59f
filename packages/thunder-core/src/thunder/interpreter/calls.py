"""Calls: Python functions are interpreted, wrappers unwrapped, the rest called natively."""

from __future__ import annotations

import functools
import inspect
import re
import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, cast

from thunder.interpreter.binding import bind
from thunder.interpreter.decode import decode
from thunder.interpreter.frame import Frame, run
from thunder.interpreter.lookup import NATIVE_ATTRIBUTES, NATIVE_TYPES, is_a
from thunder.interpreter.policy import MISSING
from thunder.interpreter.process_marks import is_opaque
from thunder.interpreter.version_differences import PLACEHOLDER

if TYPE_CHECKING:
    from thunder.interpreter.machine import Machine


def generic_call(machine: Machine, fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """``fn(*args, **kwargs)``.

    Note [Order of calls]
    1. by the exact type of ``fn``: the rows of :data:`BY_TYPE`
    2. classes: ``call_class``
    3. other objects: their class's ``__call__``, by its entry if that is implemented in C and has one

    Functions implemented in C are looked up in ``machine.native_table`` by identity, and go to the policy's
    ``call_native`` if they have no entry.
    """
    kind = type(fn)
    handler = machine.call_table.get(kind)
    if handler is not None:
        return handler(machine, fn, args, kwargs)
    if is_a(fn, type):
        return machine.call_class(fn, args, kwargs)
    method = machine.policy.type_attr(kind, "__call__")
    if method is not MISSING and type(method) not in NATIVE_ATTRIBUTES:
        return machine.policy.call(machine.bind_attribute(method, fn, kind), args, kwargs)
    entry = machine.native_table.get(id(method))
    if entry is not None:
        return entry(machine, (fn, *args), kwargs)
    return call_native(machine, fn, args, kwargs)


def call_function(
    machine: Machine, fn: types.FunctionType, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Interprets a Python function in a new frame."""
    policy = machine.policy
    special = machine.native_table.get(id(fn))
    if special is not None:
        return special(machine, args, kwargs)
    parts = policy.function_parts(fn)
    decoded = decode(parts.code)
    if decoded.is_native or policy.is_native(fn) or is_opaque(fn):
        return policy.call_native(fn, args, kwargs)
    fast = bind(decoded, parts, fn.__qualname__, args, kwargs)
    namespace, names = parts.globals, None
    if not parts.code.co_flags & inspect.CO_OPTIMIZED:  # a module's code: its variables are the globals
        namespace = names = policy.namespace(namespace)
    frame = Frame(machine, decoded, fast, namespace, fn, names)
    run(frame)
    return frame.result


def call_native(machine: Machine, fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A callable implemented in C: by the table of those that re-enter Python, else natively."""
    entry = machine.native_table.get(id(fn))
    if entry is not None:
        return entry(machine, args, kwargs)
    return machine.policy.call_native(fn, args, kwargs)


def _call_builtin(machine: Machine, fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A builtin function, or a method implemented in C bound to its object."""
    entry = machine.native_table.get(id(fn))
    if entry is not None:
        return entry(machine, args, kwargs)
    owner = fn.__self__
    if owner is not None and type(owner) is not types.ModuleType:
        # A method, freshly bound at each read: its entry is found by the descriptor in the class.
        for base in (owner if is_a(owner, type) else type(owner)).__mro__:
            descriptor = base.__dict__.get(fn.__name__)
            if descriptor is None or (type(descriptor) not in NATIVE_ATTRIBUTES and is_a(owner, type)):
                continue  # an override of a class method, which calls the method by ``super()``
            entry = machine.native_table.get(id(descriptor))
            if entry is not None:
                return entry(machine, (owner, *args), kwargs)
            break
    return machine.policy.call_native(fn, args, kwargs)


def _call_method_wrapper(machine: Machine, fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A slot wrapper bound to its object, as ``super().__setattr__`` gives it."""
    descriptor = fn.__objclass__.__dict__[fn.__name__]
    entry = machine.native_table.get(id(descriptor))
    if entry is not None:
        return entry(machine, (fn.__self__, *args), kwargs)
    return machine.policy.call_native(fn, args, kwargs)


def _call_method(machine: Machine, fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return machine.policy.call(fn.__func__, (fn.__self__, *args), kwargs)


def _call_partial(machine: Machine, fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    keywords = {**fn.keywords, **kwargs} if fn.keywords else kwargs
    return machine.policy.call(fn.func, arguments_of_partial(fn.args, args), keywords)


def arguments_of_partial(bound: tuple[Any, ...], args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the positional arguments of a call of a ``functools.partial``, placeholders filled (3.14)."""
    count = sum(value is PLACEHOLDER for value in bound)
    if not count:
        return (*bound, *args)
    if len(args) < count:
        raise TypeError(
            f"missing positional arguments in 'partial' call; expected at least {count}, got {len(args)}"
        )
    given = iter(args)
    filled = [next(given) if value is PLACEHOLDER else value for value in bound]
    return (*filled, *given)


def _call_wrapped(machine: Machine, fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return machine.policy.call(fn.__func__, args, kwargs)


def _call_cached(machine: Machine, fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call a ``functools.lru_cache`` wrapper natively, or the function if the policy says so."""
    if machine.policy.bypass_cache(fn):
        return machine.policy.call(fn.__wrapped__, args, kwargs)
    return machine.policy.call_native(fn, args, kwargs)


CallHandler = Callable[["Machine", Any, tuple[Any, ...], dict[str, Any]], Any]
BY_TYPE: Final[dict[type, CallHandler]] = {
    **dict.fromkeys(cast("frozenset[type]", NATIVE_TYPES), call_native),
    types.FunctionType: call_function,
    types.MethodType: _call_method,
    types.BuiltinFunctionType: _call_builtin,
    type(re.compile("").sub): _call_builtin,  # builtin_method: one that knows its defining class
    types.MethodWrapperType: _call_method_wrapper,
    functools.partial: _call_partial,
    staticmethod: _call_wrapped,
    type(functools.lru_cache(len)): _call_cached,
}
"""How a callable is called, by its exact type."""
