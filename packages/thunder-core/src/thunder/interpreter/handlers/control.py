"""Jumps, loops, returns."""

from __future__ import annotations

from typing import Any

from thunder.interpreter import iteration
from thunder.interpreter.frame import RETURN, Frame
from thunder.interpreter.lookup import NATIVE_TYPES
from thunder.interpreter.operator_protocols import truth
from thunder.interpreter.policy import MISSING


def JUMP(frame: Frame, stack: list[Any], target: int) -> int:
    return target


def POP_JUMP_IF_FALSE(frame: Frame, stack: list[Any], target: int) -> int | None:
    value = stack.pop()
    if value is True:
        return None
    return None if value is not False and truth(frame.machine, value) else target


def POP_JUMP_IF_TRUE(frame: Frame, stack: list[Any], target: int) -> int | None:
    value = stack.pop()
    if value is False:
        return None
    return target if value is True or truth(frame.machine, value) else None


def POP_JUMP_IF_NONE(frame: Frame, stack: list[Any], target: int) -> int | None:
    return target if frame.machine.policy.is_same(stack.pop(), None) else None


def POP_JUMP_IF_NOT_NONE(frame: Frame, stack: list[Any], target: int) -> int | None:
    return None if frame.machine.policy.is_same(stack.pop(), None) else target


def JUMP_IF_FALSE_OR_POP(frame: Frame, stack: list[Any], target: int) -> int | None:
    if not truth(frame.machine, stack[-1]):
        return target
    stack.pop()
    return None


def JUMP_IF_TRUE_OR_POP(frame: Frame, stack: list[Any], target: int) -> int | None:
    if truth(frame.machine, stack[-1]):
        return target
    stack.pop()
    return None


def GET_ITER(frame: Frame, stack: list[Any], arg: None) -> None:
    stack[-1] = iteration.get_iterator(frame.machine, stack[-1])


def FOR_ITER(frame: Frame, stack: list[Any], end: int) -> int | None:
    """Push the next element, or pop the iterator and jump to the end of the loop."""
    iterator = stack[-1]
    if type(iterator) in NATIVE_TYPES:
        value = frame.machine.policy.next(iterator)
    else:
        value = iteration.next_or_missing(frame.machine, iterator)
    if value is MISSING:
        stack.pop()
        return end
    stack.append(value)
    return None


def RETURN_VALUE(frame: Frame, stack: list[Any], arg: None) -> int:
    frame.result = stack.pop()
    return RETURN


def RETURN_CONST(frame: Frame, stack: list[Any], value: Any) -> int:
    frame.result = value
    return RETURN


def NEVER_IN_CODE(frame: Frame, stack: list[Any], arg: None) -> None:
    """An operation of specialised or instrumented code, or of the compiler only."""
    raise AssertionError("the interpreter met an operation that no code object contains")
