"""Operations by number: ``CALL_INTRINSIC_1`` and ``_2``, type parameters included."""

from __future__ import annotations

import opcode
import sys
from collections.abc import Callable
from types import CodeType, FunctionType
from typing import Any

from thunder.interpreter.decode import Reader
from thunder.interpreter.frame import Frame
from thunder.interpreter.handlers import calling, containers, exceptions, expressions, generators
from thunder.interpreter.operator_tables import UNARY_POSITIVE


def PRINT_EXPR(frame: Frame, stack: list[Any], arg: None) -> None:
    """The value of an expression statement in interactive code."""
    frame.machine.policy.call(sys.displayhook, (stack.pop(),), {})


def INTRINSIC_PRINT(frame: Frame, stack: list[Any], arg: None) -> None:
    PRINT_EXPR(frame, stack, None)
    stack.append(None)


def INTRINSIC_IMPORT_STAR(frame: Frame, stack: list[Any], arg: None) -> None:
    calling.IMPORT_STAR(frame, stack, None)
    stack.append(None)


def PASS(frame: Frame, stack: list[Any], arg: None) -> None:
    """Do nothing: the native generator wraps the values that an async generator yields."""


def NATIVE_INTRINSIC_1(frame: Frame, stack: list[Any], number: int) -> None:
    stack[-1] = _native_intrinsic(frame, 1, number)(stack[-1])


def NATIVE_INTRINSIC_2(frame: Frame, stack: list[Any], number: int) -> None:
    second = stack.pop()
    stack[-1] = _native_intrinsic(frame, 2, number)(stack[-1], second)


def NATIVE_INTRINSIC_LAZY(frame: Frame, stack: list[Any], number: int) -> None:
    """As NATIVE_INTRINSIC_2, whose second operand is a function that is called lazily."""
    stack[-1] = frame.machine.shim(stack[-1])
    NATIVE_INTRINSIC_2(frame, stack, number)


def TYPE_ALIAS(frame: Frame, stack: list[Any], number: int) -> None:
    """``type X[T] = …``: the operand is (name, type parameters, function of the value)."""
    name, parameters, compute = stack[-1]
    stack[-1] = _native_intrinsic(frame, 1, number)((name, parameters, frame.machine.shim(compute)))


def _template(a: Any, b: Any) -> Any:
    return a, b


_codes: dict[tuple[int, int], CodeType] = {}


def _native_intrinsic(frame: Frame, operands: int, number: int) -> Callable[..., Any]:
    """Return a native function that executes one intrinsic.

    It has the globals of the frame, from which type parameters take their module.
    """
    code = _codes.get((operands, number))
    if code is None:
        operations = [("RESUME", 0), ("LOAD_FAST", 0)]
        if operands == 2:
            operations.append(("LOAD_FAST", 1))
        operations += [(f"CALL_INTRINSIC_{operands}", number), ("RETURN_VALUE", 0)]
        raw = b"".join(bytes([opcode.opmap[name], arg]) for name, arg in operations)
        code = _template.__code__.replace(co_code=raw, co_argcount=operands)
        _codes[operands, number] = code
    return FunctionType(code, frame.globals)


ONE_OPERAND: dict[str, tuple[Any, Any]] = {
    "INTRINSIC_PRINT": (INTRINSIC_PRINT, None),
    "INTRINSIC_IMPORT_STAR": (INTRINSIC_IMPORT_STAR, None),
    "INTRINSIC_STOPITERATION_ERROR": (generators.STOPITERATION_ERROR, None),
    "INTRINSIC_ASYNC_GEN_WRAP": (PASS, None),
    "INTRINSIC_UNARY_POSITIVE": (expressions.UNARY_OP, UNARY_POSITIVE),
    "INTRINSIC_LIST_TO_TUPLE": (containers.LIST_TO_TUPLE, None),
    "INTRINSIC_TYPEVAR": (NATIVE_INTRINSIC_1, ...),
    "INTRINSIC_PARAMSPEC": (NATIVE_INTRINSIC_1, ...),
    "INTRINSIC_TYPEVARTUPLE": (NATIVE_INTRINSIC_1, ...),
    "INTRINSIC_SUBSCRIPT_GENERIC": (NATIVE_INTRINSIC_1, ...),
    "INTRINSIC_TYPEALIAS": (TYPE_ALIAS, ...),
}
"""Handler and argument by name; ``...`` stands for the intrinsic's own number."""

TWO_OPERANDS: dict[str, tuple[Any, Any]] = {
    "INTRINSIC_PREP_RERAISE_STAR": (exceptions.PREP_RERAISE_STAR, None),
    "INTRINSIC_TYPEVAR_WITH_BOUND": (NATIVE_INTRINSIC_LAZY, ...),
    "INTRINSIC_TYPEVAR_WITH_CONSTRAINTS": (NATIVE_INTRINSIC_LAZY, ...),
    "INTRINSIC_SET_FUNCTION_TYPE_PARAMS": (NATIVE_INTRINSIC_2, ...),
    "INTRINSIC_SET_TYPEPARAM_DEFAULT": (NATIVE_INTRINSIC_LAZY, ...),
}
"""The same for two operands."""


def chooser(table: dict[str, tuple[Any, Any]], names: list[str]) -> Callable[[Reader, int], tuple[Any, Any]]:
    """Return the rule of an intrinsic operation, whose operand is an index into ``names``."""

    def choose(reader: Reader, value: int) -> tuple[Any, Any]:
        handler, arg = table[names[value]]
        return handler, value if arg is ... else arg

    return choose
