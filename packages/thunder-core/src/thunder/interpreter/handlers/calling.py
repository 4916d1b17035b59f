"""Calls, functions, classes and imports."""

from __future__ import annotations

import builtins
import sys
from types import CellType, CodeType, FunctionType
from typing import Any

from thunder.interpreter import iteration
from thunder.interpreter.frame import Frame
from thunder.interpreter.handlers.containers import function_name
from thunder.interpreter.lookup import optional_attribute
from thunder.interpreter.policy import MISSING
from thunder.interpreter.version_differences import ANNOTATE_IS_NAMED


def CALL(frame: Frame, stack: list[Any], count: int) -> None:
    """Pop the callable beneath the arguments: (NULL, f), (f, NULL) or (f, first argument)."""
    start = len(stack) - count
    args = tuple(stack[start:])
    first, second = stack[start - 2], stack[start - 1]
    del stack[start - 1 :]
    if first is MISSING:
        first = second
    elif second is not MISSING:
        args = (second, *args)
    stack[-1] = frame.machine.policy.call(first, args, {})


def CALL_KEYWORDS(frame: Frame, stack: list[Any], arg: tuple[int, tuple[str, ...]]) -> None:
    """A call whose last arguments are keyword arguments of the given names."""
    count, names = arg
    start = len(stack) - count
    split = len(stack) - len(names)
    kwargs = dict(zip(names, stack[split:], strict=True))
    args = tuple(stack[start:split])
    first, second = stack[start - 2], stack[start - 1]
    del stack[start - 1 :]
    if first is MISSING:
        first = second
    elif second is not MISSING:
        args = (second, *args)
    stack[-1] = frame.machine.policy.call(first, args, kwargs)


def CALL_KW(frame: Frame, stack: list[Any], count: int) -> None:
    names = stack.pop()
    CALL_KEYWORDS(frame, stack, (count, names))


def CALL_FUNCTION_EX(frame: Frame, stack: list[Any], has_keywords: bool) -> None:
    kwargs = stack.pop() if has_keywords else MISSING
    args = stack.pop()
    second = stack.pop()
    first = stack[-1]
    fn = second if first is MISSING else first
    if kwargs is MISSING:
        kwargs = {}
    elif type(kwargs) is not dict:
        kwargs = _keywords(frame, fn, kwargs)
    if type(args) is not tuple:
        args = _positional(frame, fn, args)
    stack[-1] = frame.machine.policy.call(fn, args, kwargs)


def _keywords(frame: Frame, fn: Any, kwargs: Any) -> dict[str, Any]:
    keys = optional_attribute(frame.machine, kwargs, "keys")
    if keys is MISSING:
        raise TypeError(
            f"{function_name(fn)} argument after ** must be a mapping, not {type(kwargs).__name__}"
        )
    names = frame.machine.policy.call(keys, (), {})
    return {name: frame.machine.load_item(kwargs, name) for name in iteration.iterate(frame.machine, names)}


def _positional(frame: Frame, fn: Any, args: Any) -> tuple[Any, ...]:
    policy, cls = frame.machine.policy, type(args)
    if policy.type_attr(cls, "__iter__") is MISSING and policy.type_attr(cls, "__getitem__") is MISSING:
        raise TypeError(f"{function_name(fn)} argument after * must be an iterable, not {cls.__name__}")
    return tuple(iteration.iterate(frame.machine, args))


# -- functions -----------------------------------------------------------------------------------------------


def MAKE_FUNCTION(frame: Frame, stack: list[Any], flags: int) -> None:
    """Push a function; up to 3.12 flags select the attributes beneath the code object."""
    code: CodeType = stack.pop()
    closure = stack.pop() if flags & 8 else None
    annotations = stack.pop() if flags & 4 else None
    kwdefaults = stack.pop() if flags & 2 else None
    defaults = stack.pop() if flags & 1 else None
    function = FunctionType(code, frame.globals, closure=closure or _empty_closure(code))
    for flag, value in ((1, defaults), (2, kwdefaults), (4, annotations)):
        if flags & flag:
            _set_function_attribute(function, flag, value)
    on_make = frame.machine.on_make
    stack.append(function if on_make is None else on_make(function))


def _empty_closure(code: CodeType) -> tuple[CellType, ...] | None:
    """A placeholder that SET_FUNCTION_ATTRIBUTE replaces."""
    return tuple(CellType() for _ in code.co_freevars) or None


def _set_function_attribute(function: FunctionType, flag: int, value: Any) -> None:
    if flag == 1:
        function.__defaults__ = value
    elif flag == 2:
        function.__kwdefaults__ = value
    elif flag == 16:  # the function that computes the annotations (PEP 649)
        if ANNOTATE_IS_NAMED:
            value.__qualname__ = f"{function.__qualname__}.__annotate__"
        function.__annotate__ = value  # type: ignore[attr-defined]  # from 3.14 on
    else:
        pairs = iter(value) if isinstance(value, tuple) else None
        function.__annotations__ = value if pairs is None else dict(zip(pairs, pairs, strict=True))


def SET_FUNCTION_ATTRIBUTE(frame: Frame, stack: list[Any], flag: int) -> None:
    function = stack.pop()
    value = stack[-1]
    if flag == 8:  # a closure is fixed when a function is made: it is made again, no one has seen the first
        created = FunctionType(
            function.__code__, function.__globals__, function.__name__, function.__defaults__, value
        )
        created.__kwdefaults__ = function.__kwdefaults__
        created.__annotations__ = function.__annotations__
        on_make = frame.machine.on_make
        function = created if on_make is None else on_make(created)
    else:
        _set_function_attribute(function, flag, value)
    stack[-1] = function


def LOAD_BUILD_CLASS(frame: Frame, stack: list[Any], arg: None) -> None:
    value = frame.machine.policy.load_global({}, frame.builtins, "__build_class__")
    if value is MISSING:
        raise NameError("__build_class__ not found")
    stack.append(value)


# -- imports -------------------------------------------------------------------------------------------------


def IMPORT_NAME(frame: Frame, stack: list[Any], name: str) -> None:
    fromlist = stack.pop()
    level = stack.pop()
    machine = frame.machine
    custom = frame.builtins.get("__import__", builtins.__import__)
    if custom is not builtins.__import__:
        module = machine.policy.call(custom, (name, frame.globals, frame.namespace, fromlist, level), {})
    else:
        module = machine.policy.import_module(name, frame.globals, fromlist, level)
    stack.append(module)


def IMPORT_FROM(frame: Frame, stack: list[Any], name: str) -> None:
    module = stack[-1]
    value = optional_attribute(frame.machine, module, name)
    stack.append(_import_submodule(module, name) if value is MISSING else value)


def _import_submodule(module: Any, name: str) -> Any:
    """A submodule that is imported but not yet set in its package (circular imports)."""
    package = getattr(module, "__name__", None)
    submodule = sys.modules.get(f"{package}.{name}")
    if submodule is not None:
        return submodule
    path = getattr(module, "__file__", None)
    initializing = getattr(getattr(module, "__spec__", None), "_initializing", False)
    shown = package if package is not None else "<unknown module name>"
    if initializing:
        text = (
            f"cannot import name {name!r} from partially initialized module {shown!r} "
            f"(most likely due to a circular import) ({path or 'unknown location'})"
        )
    else:
        text = f"cannot import name {name!r} from {shown!r} ({path or 'unknown location'})"
    error = ImportError(text, name=package, path=path)
    if hasattr(error, "name_from"):
        error.name_from = name
    raise error


def IMPORT_STAR(frame: Frame, stack: list[Any], arg: None) -> None:
    module = stack.pop()
    namespace = frame.namespace
    names = getattr(module, "__all__", None)
    if names is None:
        names = [name for name in vars(module) if not name.startswith("_")]
    for name in names:
        value = frame.machine.policy.load_attr(module, name)
        if namespace is frame.globals:
            frame.machine.policy.store_global(frame.globals, name, value)
        else:
            frame.machine.store_item(namespace, name, value)
