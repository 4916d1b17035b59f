"""Generators, delegation, ``await`` and asynchronous iteration."""

from __future__ import annotations

import types
from typing import Any

from thunder.interpreter import iteration
from thunder.interpreter.frame import RETURN, YIELD, Frame, reraise
from thunder.interpreter.generator_objects import make_driver
from thunder.interpreter.lookup import NATIVE_ATTRIBUTES, call_special, is_a, python_special
from thunder.interpreter.policy import MISSING
from thunder.interpreter.version_differences import NOT_AWAITABLE

_ITERABLE_COROUTINE = 0x100
_AWAITS = 0x80 | 0x100  # CO_COROUTINE, CO_ITERABLE_COROUTINE


def RETURN_GENERATOR(frame: Frame, stack: list[Any], arg: None) -> int:
    driver = make_driver(frame)
    on_make = frame.machine.on_make
    frame.result = driver if on_make is None else on_make(driver)
    return RETURN


def YIELD_VALUE(frame: Frame, stack: list[Any], delegating: bool) -> int:
    frame.result = stack.pop()
    frame.delegating = delegating
    return YIELD


def GET_YIELD_FROM_ITER(frame: Frame, stack: list[Any], arg: None) -> None:
    obj = stack[-1]
    if is_a(obj, types.CoroutineType):
        if not frame.code.co_flags & _AWAITS:
            raise TypeError("cannot 'yield from' a coroutine object in a non-coroutine generator")
    elif not is_a(obj, types.GeneratorType):
        stack[-1] = iteration.get_iterator(frame.machine, obj)


def _advance(frame: Frame, iterator: Any, value: Any) -> Any:
    """Sends ``value``; raises StopIteration at the end."""
    policy = frame.machine.policy
    if is_a(iterator, types.GeneratorType | types.CoroutineType):
        return policy.call_native(iterator.send, (value,), {})
    if value is None:
        return policy.call(next, (iterator,), {})
    return policy.call(policy.load_attr(iterator, "send"), (value,), {})


def SEND(frame: Frame, stack: list[Any], end: int) -> int | None:
    """Stack: inner iterator, value sent.

    The value is replaced by what the iterator yields or, at its end, returns.
    """
    try:
        stack[-1] = _advance(frame, stack[-2], stack[-1])
    except StopIteration as stop:
        stack[-1] = stop.value
        return end
    return None


def SEND_AND_POP(frame: Frame, stack: list[Any], end: int) -> int | None:
    """SEND of 3.11, which at the end also drops the inner iterator."""
    target = SEND(frame, stack, end)
    if target is not None:
        del stack[-2]
    return target


def CLEANUP_THROW(frame: Frame, stack: list[Any], arg: None) -> None:
    """An exception thrown into a delegation came out: StopIteration is its end, with a value."""
    exc = stack[-1]
    if not is_a(exc, StopIteration):
        frame.keep_traceback = True
        reraise(exc)
    stack[-3:] = [None, exc.value]


def STOPITERATION_ERROR(frame: Frame, stack: list[Any], arg: None) -> None:
    """PEP 479: a StopIteration that would leave a generator becomes a RuntimeError."""
    exc = stack[-1]
    flags = frame.code.co_flags
    if flags & 0x80:
        kind = "coroutine"
    elif flags & 0x200:
        kind = "async generator"
    else:
        kind = "generator"
    if is_a(exc, StopIteration):
        raised = "StopIteration"
    elif flags & 0x200 and is_a(exc, StopAsyncIteration):
        raised = "StopAsyncIteration"
    else:
        return
    error = RuntimeError(f"{kind} raised {raised}")
    error.__cause__ = error.__context__ = exc
    stack[-1] = error


# -- await ---------------------------------------------------------------------------------------------------


def is_native_awaitable(obj: Any) -> bool:
    """Return whether ``await`` drives ``obj`` itself."""
    if is_a(obj, types.CoroutineType):
        return True
    return is_a(obj, types.GeneratorType) and bool(obj.gi_code.co_flags & _ITERABLE_COROUTINE)


def awaitable_iterator(frame: Frame, obj: Any) -> Any:
    """Return the iterator of ``await obj`` (``_PyCoro_GetAwaitableIter``)."""
    if is_native_awaitable(obj):
        return obj
    machine = frame.machine
    method = machine.policy.type_attr(type(obj), "__await__")
    if method is MISSING or method is None:
        raise TypeError(NOT_AWAITABLE.format(type(obj).__name__))
    iterator = (
        machine.policy.call_native(method, (obj,), {})
        if type(method) in NATIVE_ATTRIBUTES
        else call_special(machine, method, obj)
    )
    if is_native_awaitable(iterator):
        raise TypeError("__await__() returned a coroutine")
    if machine.policy.type_attr(type(iterator), "__next__") is MISSING:
        raise TypeError(f"__await__() returned non-iterator of type '{type(iterator).__name__}'")
    return iterator


def GET_AWAITABLE(frame: Frame, stack: list[Any], where: int) -> None:
    obj = stack[-1]
    is_known = is_native_awaitable(obj)
    if where and not is_known and frame.machine.policy.type_attr(type(obj), "__await__") in (MISSING, None):
        method = "__aenter__" if where == 1 else "__aexit__"
        raise TypeError(
            f"'async with' received an object from {method} that does not implement __await__: "
            f"{type(obj).__name__}"
        )
    iterator = awaitable_iterator(frame, obj)
    if is_a(iterator, types.CoroutineType) and iterator.cr_await is not None:
        raise RuntimeError("coroutine is being awaited already")
    stack[-1] = iterator


def GET_AITER(frame: Frame, stack: list[Any], arg: None) -> None:
    machine, obj = frame.machine, stack[-1]
    method = machine.policy.type_attr(type(obj), "__aiter__")
    if method is MISSING:
        raise TypeError(f"'async for' requires an object with __aiter__ method, got {type(obj).__name__}")
    if python_special(machine, type(obj), "__aiter__") is MISSING:
        iterator = machine.policy.call_native(method, (obj,), {})
    else:
        iterator = call_special(machine, method, obj)
    if machine.policy.type_attr(type(iterator), "__anext__") is MISSING:
        raise TypeError(
            f"'async for' received an object from __aiter__ that does not implement __anext__: "
            f"{type(iterator).__name__}"
        )
    stack[-1] = iterator


def GET_ANEXT(frame: Frame, stack: list[Any], arg: None) -> None:
    machine, iterator = frame.machine, stack[-1]
    method = machine.policy.type_attr(type(iterator), "__anext__")
    if method is MISSING:
        raise TypeError(
            f"'async for' requires an iterator with __anext__ method, got {type(iterator).__name__}"
        )
    if python_special(machine, type(iterator), "__anext__") is MISSING:
        awaitable = machine.policy.call_native(method, (iterator,), {})
        if is_a(iterator, types.AsyncGeneratorType):
            stack.append(awaitable)
            return
    else:
        awaitable = call_special(machine, method, iterator)
    try:
        stack.append(awaitable_iterator(frame, awaitable))
    except TypeError as exc:
        raise TypeError(
            f"'async for' received an invalid object from __anext__: {type(awaitable).__name__}"
        ) from exc


def END_ASYNC_FOR(frame: Frame, stack: list[Any], arg: None) -> None:
    """Stack: asynchronous iterator, exception; StopAsyncIteration ends the loop."""
    exc = stack.pop()
    iterator_below = stack.pop()
    if not is_a(exc, StopAsyncIteration):
        stack.append(iterator_below)
        frame.keep_traceback = True
        reraise(exc)
