"""Generators, coroutines and async generators: native objects that run a frame.

Being native, they are advanced by native and interpreted code alike, and their state machine (``send``,
``throw``, ``close``, finalisation, the errors of misuse) is CPython's own.
"""

from __future__ import annotations

import types
from collections.abc import AsyncGenerator, Generator
from typing import TYPE_CHECKING, Any, NoReturn

from thunder.interpreter.frame import RETURN, YIELD, Frame, reraise, run
from thunder.interpreter.lookup import optional_attribute
from thunder.interpreter.policy import MISSING
from thunder.interpreter.version_differences import DELEGATION_ENDS_BY_BYTECODE

if TYPE_CHECKING:
    from thunder.interpreter.machine import Machine

_COROUTINE = 0x80
_ITERABLE_COROUTINE = 0x100
_ASYNC_GENERATOR = 0x200


def make_driver(frame: Frame) -> Any:
    """Return the object that a call of a generator or coroutine function returns."""
    frame.machine.has_generators = True
    flags = frame.code.co_flags
    driver: Any
    if flags & _COROUTINE:
        driver = _drive_coroutine(_drive_awaits(frame, "coroutine"))
    elif flags & _ASYNC_GENERATOR:
        driver = _drive_async_generator(frame)
    elif flags & _ITERABLE_COROUTINE:
        driver = _drive_awaits(frame, "generator")
    else:
        driver = _drive_generator(frame)
    function = frame.function
    driver.__name__ = frame.code.co_name if function is None else function.__name__
    driver.__qualname__ = frame.code.co_qualname if function is None else function.__qualname__
    return driver


def suspended_frame(generator: Any) -> Frame | None:
    """Return the frame that a generator of a program runs, or None if it has ended or is not of a program."""
    if generator.gi_code is not _drive_generator.__code__ or generator.gi_frame is None:
        return None
    frame: Frame = generator.gi_frame.f_locals["frame"]
    return frame


def resume(frame: Frame, sent: Any, thrown: BaseException | None) -> int:
    """Resume a suspended frame by sending a value, or by raising an exception in it.

    A frame of a machine that has ended is only closed: the host has given up the interpretation, so no
    ``finally`` of the program runs.
    """
    if frame.machine.has_ended:
        raise GeneratorExit if thrown is None else thrown
    if thrown is None:
        frame.stack.append(sent)
    else:
        frame.thrown = thrown
        del thrown  # it comes out of this call with a traceback that has this frame: no cycle
    return run(frame)


def _drive_generator(frame: Frame) -> Generator[Any, Any, Any]:
    sent: Any = None
    thrown: BaseException | None = None
    try:
        while resume(frame, sent, thrown) != RETURN:
            sent = thrown = None
            try:
                sent = yield frame.result
            except BaseException as exc:
                thrown = exc
        return frame.result
    finally:
        thrown = None  # its traceback has this frame


@types.coroutine
def _drive_awaits(frame: Frame, kind: str) -> Generator[Any, Any, Any]:
    sent: Any = None
    thrown: BaseException | None = None
    try:
        while True:
            try:
                outcome = resume(frame, sent, thrown)
            except StopIteration as exc:
                raise RuntimeError(f"{kind} raised StopIteration") from exc
            if outcome == RETURN:
                return frame.result
            sent = thrown = None
            try:
                sent = yield frame.result
            except BaseException as exc:
                thrown = exc
    finally:
        thrown = None  # its traceback has this frame


async def _drive_coroutine(steps: Any) -> Any:
    return await steps


async def _drive_async_generator(frame: Frame) -> AsyncGenerator[Any, Any]:
    sent: Any = None
    thrown: BaseException | None = None
    try:
        while True:
            try:
                outcome = resume(frame, sent, thrown)
            except (StopIteration, StopAsyncIteration) as exc:
                raise RuntimeError(f"async generator raised {type(exc).__name__}") from exc
            if outcome == RETURN:
                return
            sent = thrown = None
            try:
                # A frame that awaits hands its value to the event loop, one that yields to the consumer of
                # the generator.
                sent = (await _relay(frame.result)) if frame.delegating else (yield frame.result)
            except BaseException as exc:
                thrown = exc
    finally:
        thrown = None  # its traceback has this frame


@types.coroutine
def _relay(value: Any) -> Generator[Any, Any, Any]:
    return (yield value)


def deliver_throw(frame: Frame) -> int | None:
    """Raise ``frame.thrown`` in the frame or its delegate.

    A result means that the frame yields again.

    ``gen.throw`` of an exception while the frame is in ``yield from`` or ``await`` goes to the inner iterator
    first (``_gen_throw`` in Objects/genobject.c).
    """
    thrown, frame.thrown = frame.thrown, None
    assert thrown is not None, "deliver_throw is called when an exception is waiting"
    frame.pc -= 1  # the instruction that yielded is the one that raises
    if not frame.delegating:
        return _raise_in(frame, thrown)
    machine, inner = frame.machine, frame.stack[-1]
    if isinstance(thrown, GeneratorExit):
        _close(machine, inner)
        return _raise_in(frame, thrown)
    throw = optional_attribute(machine, inner, "throw")
    if throw is MISSING:
        return _raise_in(frame, thrown)
    try:
        frame.result = machine.policy.call(throw, (thrown,), {})
    except StopIteration as stop:
        if DELEGATION_ENDS_BY_BYTECODE:
            raise
        # 3.11 has no instruction for this: the inner iterator is replaced by its value, and SEND's jump is
        # made.
        frame.stack[-1] = stop.value
        _, frame.pc = frame.decoded.instructions[frame.pc - 1]
        return None
    frame.pc += 1
    return YIELD


def _raise_in(frame: Frame, thrown: BaseException) -> NoReturn:
    if frame.handled is None:
        reraise(thrown)
    raise thrown


def _close(machine: Machine, inner: Any) -> None:
    close = optional_attribute(machine, inner, "close")
    if close is not MISSING:
        machine.policy.call(close, (), {})
