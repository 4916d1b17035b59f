"""Operators, attributes, subscripts, formatting, and the stack itself."""

from __future__ import annotations

from typing import Any

from thunder.interpreter import operator_protocols, string_protocols
from thunder.interpreter.frame import Frame
from thunder.interpreter.lookup import LEAF_TYPES
from thunder.interpreter.operator_tables import BinaryOperator, ComparisonOperator, UnaryOperator
from thunder.interpreter.policy import MISSING


def POP_TOP(frame: Frame, stack: list[Any], arg: None) -> None:
    stack.pop()


def COPY(frame: Frame, stack: list[Any], depth: int) -> None:
    stack.append(stack[-depth])


def SWAP(frame: Frame, stack: list[Any], depth: int) -> None:
    stack[-1], stack[-depth] = stack[-depth], stack[-1]


def END_SEND(frame: Frame, stack: list[Any], arg: None) -> None:
    """Drops the inner iterator beneath its result."""
    del stack[-2]


def END_FOR_POP_TWO(frame: Frame, stack: list[Any], arg: None) -> None:
    del stack[-2:]


# -- operators -----------------------------------------------------------------------------------------------


def BINARY_OP(frame: Frame, stack: list[Any], op: BinaryOperator) -> None:
    right = stack.pop()
    left = stack[-1]
    if type(left) in LEAF_TYPES and type(right) in LEAF_TYPES:
        stack[-1] = op.native(left, right)
    else:
        stack[-1] = operator_protocols.binary(frame.machine, op, left, right)


def UNARY_OP(frame: Frame, stack: list[Any], op: UnaryOperator) -> None:
    stack[-1] = operator_protocols.unary(frame.machine, op, stack[-1])


def UNARY_NOT(frame: Frame, stack: list[Any], arg: None) -> None:
    stack[-1] = not operator_protocols.truth(frame.machine, stack[-1])


def TO_BOOL(frame: Frame, stack: list[Any], arg: None) -> None:
    stack[-1] = operator_protocols.truth(frame.machine, stack[-1])


def COMPARE_OP(frame: Frame, stack: list[Any], op: ComparisonOperator) -> None:
    right = stack.pop()
    left = stack[-1]
    if type(left) in LEAF_TYPES and type(right) in LEAF_TYPES:
        stack[-1] = op.native(left, right)
    else:
        stack[-1] = operator_protocols.compare(frame.machine, op, left, right)


def COMPARE_OP_TO_BOOL(frame: Frame, stack: list[Any], op: ComparisonOperator) -> None:
    """A comparison whose result is only tested."""
    COMPARE_OP(frame, stack, op)
    stack[-1] = operator_protocols.truth(frame.machine, stack[-1])


def IS_OP(frame: Frame, stack: list[Any], inverted: bool) -> None:
    right = stack.pop()
    stack[-1] = frame.machine.policy.is_same(stack[-1], right) is not inverted


def CONTAINS_OP(frame: Frame, stack: list[Any], inverted: bool) -> None:
    container = stack.pop()
    stack[-1] = operator_protocols.contains(frame.machine, container, stack[-1]) is not inverted


# -- subscripts ----------------------------------------------------------------------------------------------


def BINARY_SUBSCR(frame: Frame, stack: list[Any], arg: None) -> None:
    key = stack.pop()
    stack[-1] = operator_protocols.load_item(frame.machine, stack[-1], key)


def STORE_SUBSCR(frame: Frame, stack: list[Any], arg: None) -> None:
    key = stack.pop()
    obj = stack.pop()
    operator_protocols.store_item(frame.machine, obj, key, stack.pop())


def DELETE_SUBSCR(frame: Frame, stack: list[Any], arg: None) -> None:
    key = stack.pop()
    operator_protocols.delete_item(frame.machine, stack.pop(), key)


def _make_slice(frame: Frame, parts: list[Any]) -> Any:
    created = slice(*parts)
    on_make = frame.machine.on_make
    return created if on_make is None else on_make(created)


def BUILD_SLICE(frame: Frame, stack: list[Any], count: int) -> None:
    parts = stack[-count:]
    del stack[-count:]
    stack.append(_make_slice(frame, parts))


def BINARY_SLICE(frame: Frame, stack: list[Any], arg: None) -> None:
    BUILD_SLICE(frame, stack, 2)
    BINARY_SUBSCR(frame, stack, None)


def STORE_SLICE(frame: Frame, stack: list[Any], arg: None) -> None:
    BUILD_SLICE(frame, stack, 2)
    STORE_SUBSCR(frame, stack, None)


# -- attributes ----------------------------------------------------------------------------------------------


def LOAD_ATTR(frame: Frame, stack: list[Any], name: str) -> None:
    stack[-1] = frame.machine.policy.load_attr(stack[-1], name)


def LOAD_ATTR_TO_CALL(frame: Frame, stack: list[Any], name: str) -> None:
    """Pushes (NULL, bound method); CPython saves the bound method, we save a second protocol."""
    value = frame.machine.policy.load_attr(stack[-1], name)
    stack[-1] = MISSING
    stack.append(value)


def STORE_ATTR(frame: Frame, stack: list[Any], name: str) -> None:
    obj = stack.pop()
    frame.machine.policy.store_attr(obj, name, stack.pop())


def DELETE_ATTR(frame: Frame, stack: list[Any], name: str) -> None:
    frame.machine.policy.delete_attr(stack.pop(), name)


def LOAD_SUPER_ATTR(frame: Frame, stack: list[Any], arg: tuple[str, bool]) -> None:
    name, written_with_arguments = arg
    self = stack.pop()
    cls = stack.pop()
    policy = frame.machine.policy
    proxy = policy.call(stack[-1], (cls, self) if written_with_arguments or stack[-1] is super else (), {})
    stack[-1] = policy.load_attr(proxy, name)


def LOAD_SUPER_ATTR_TO_CALL(frame: Frame, stack: list[Any], arg: tuple[str, bool]) -> None:
    LOAD_SUPER_ATTR(frame, stack, arg)
    stack.append(stack[-1])
    stack[-2] = MISSING


# -- formatting ----------------------------------------------------------------------------------------------

CONVERSIONS = {1: string_protocols.to_str, 2: string_protocols.to_repr, 3: string_protocols.to_ascii}
"""``!s``, ``!r`` and ``!a`` of replacement fields."""


def convert_value(frame: Frame, value: Any, conversion: int) -> Any:
    """``!s``, ``!r`` and ``!a`` of replacement fields."""
    return CONVERSIONS[conversion](frame.machine, value)


def CONVERT_VALUE(frame: Frame, stack: list[Any], conversion: int) -> None:
    stack[-1] = convert_value(frame, stack[-1], conversion)


def FORMAT_VALUE(frame: Frame, stack: list[Any], flags: int) -> None:
    """Conversion in the lower two bits; bit 2: a format specification is on the stack."""
    spec = stack.pop() if flags & 4 else ""
    if flags & 3:
        stack[-1] = convert_value(frame, stack[-1], flags & 3)
    stack[-1] = string_protocols.to_format(frame.machine, stack[-1], spec)


def FORMAT_SIMPLE(frame: Frame, stack: list[Any], arg: None) -> None:
    stack[-1] = string_protocols.to_format(frame.machine, stack[-1])


def FORMAT_WITH_SPEC(frame: Frame, stack: list[Any], arg: None) -> None:
    spec = stack.pop()
    stack[-1] = string_protocols.to_format(frame.machine, stack[-1], spec)


def BUILD_STRING(frame: Frame, stack: list[Any], count: int) -> None:
    parts = stack[len(stack) - count :]
    del stack[len(stack) - count :]
    stack.append(frame.machine.policy.copied_text("".join(parts)))


def GET_LEN(frame: Frame, stack: list[Any], arg: None) -> None:
    stack.append(operator_protocols.length(frame.machine, stack[-1]))
