"""One table per CPython version: operation → handler, and the rule of its argument."""

from __future__ import annotations

import opcode
import sys
from collections.abc import Callable
from typing import Any, Final, TypeAlias

from thunder.interpreter.decode import ArgumentKind, Handler, OpcodeRow, Reader, install_table
from thunder.interpreter.handlers import (
    calling,
    containers,
    control,
    exceptions,
    expressions,
    generators,
    intrinsics,
    matching,
    templates,
    variables,
)
from thunder.interpreter.operator_tables import (
    BINARY_OPERATORS,
    COMPARISON_OPERATORS,
    UNARY_INVERT,
    UNARY_NEGATIVE,
    UNARY_POSITIVE,
)

ArgumentRule: TypeAlias = Callable[[Reader, int], Any]

# -- rules: what the operand becomes -------------------------------------------------------------------------


def nothing(reader: Reader, value: int) -> None:
    """The operand is unused."""


def number(reader: Reader, value: int) -> int:
    """The operand itself: a count, a depth, flags, the index of a local variable."""
    return value


def boolean(reader: Reader, value: int) -> bool:
    """A flag in the lowest bit."""
    return bool(value & 1)


def constant(reader: Reader, value: int) -> Any:
    """A constant of the code object."""
    return reader.constants[value]


def name(reader: Reader, value: int) -> str:
    """A name of the code object."""
    return reader.names[value]


def pair_of_nibbles(reader: Reader, value: int) -> tuple[int, int]:
    """Two indices of local variables."""
    return value >> 4, value & 15


def unpack_counts(reader: Reader, value: int) -> tuple[int, int]:
    """Targets before and after the starred one."""
    return value & 0xFF, value >> 8


def forward(reader: Reader, value: int) -> int:
    """A jump over so many code units."""
    return reader.following + value


def backward(reader: Reader, value: int) -> int:
    """A jump back."""
    return reader.following - value


def forward_behind(units: int) -> ArgumentRule:
    """A jump forward, and over the clean-up operations of so many code units that stand there."""
    return lambda reader, value: reader.following + value + units


def is_delegating(reader: Reader, value: int) -> bool:
    """Return whether a yield is one of ``yield from`` or ``await``, by the next RESUME."""
    raw = reader.code.co_code
    at = 2 * reader.following
    return raw[at] == opcode.opmap["RESUME"] and raw[at + 1] & 3 >= 2


def always(arg: Any) -> ArgumentRule:
    """An argument that does not depend on the operand."""
    return lambda reader, value: arg


def binary_operator(reader: Reader, value: int) -> Any:
    """A row of the table of binary operators."""
    _, symbol = opcode._nb_ops[value]  # type: ignore[attr-defined]
    return BINARY_OPERATORS[symbol]


def operator_or_subscript(reader: Reader, value: int) -> tuple[Handler, Any]:
    """A row of the table of binary operators, or a subscript, which is one of them by number."""
    _, symbol = opcode._nb_ops[value]  # type: ignore[attr-defined]
    if symbol == "[]":
        return expressions.BINARY_SUBSCR, None
    return expressions.BINARY_OP, BINARY_OPERATORS[symbol]


def common_constant(reader: Reader, value: int) -> Any:
    """One of the builtins that code refers to by number, whatever its module's names are."""
    return opcode._common_constants[value]  # type: ignore[attr-defined]


def special_method(reader: Reader, value: int) -> tuple[Handler, str]:
    """The method of a context manager that is called at once, or at the end of the block."""
    name: str = opcode._special_method_names[value]  # type: ignore[attr-defined]
    return (exceptions.LOAD_ENTER if name.endswith("enter__") else exceptions.LOAD_EXIT), name


def interpolation(reader: Reader, value: int) -> tuple[str | None, bool]:
    """The conversion of an interpolation, and whether a format specification is on the stack."""
    return (None, "s", "r", "a")[value >> 2], bool(value & 1)


def comparison(shift: int) -> ArgumentRule:
    """A row of the table of comparisons, the number of which begins at bit ``shift``."""
    return lambda reader, value: COMPARISON_OPERATORS[opcode.cmp_op[value >> shift]]


def comparison_or_test(reader: Reader, value: int) -> tuple[Handler, Any]:
    """Return the comparison from bit 5 on; bit 4 converts the result to a bool."""
    handler = expressions.COMPARE_OP_TO_BOOL if value & 16 else expressions.COMPARE_OP
    return handler, COMPARISON_OPERATORS[opcode.cmp_op[value >> 5]]


def name_or_call(plain: Handler, to_call: Handler) -> ArgumentRule:
    """A name above one flag: whether a call of the value follows."""
    return lambda reader, value: (to_call if value & 1 else plain, reader.names[value >> 1])


def super_attribute(reader: Reader, value: int) -> tuple[Handler, Any]:
    """A name above two flags: a call follows; ``super`` was written with arguments."""
    handler = expressions.LOAD_SUPER_ATTR_TO_CALL if value & 1 else expressions.LOAD_SUPER_ATTR
    return handler, (reader.names[value >> 2], bool(value & 2))


def keyword_names(reader: Reader, value: int) -> None:
    """The names of the last arguments of the next call."""
    reader.keyword_names = reader.constants[value]


def call(reader: Reader, value: int) -> tuple[Handler, Any]:
    """A count of arguments, the last of which are named by a KW_NAMES before."""
    names, reader.keyword_names = reader.keyword_names, None
    return (calling.CALL, value) if names is None else (calling.CALL_KEYWORDS, (value, names))


# -- tables --------------------------------------------------------------------------------------------------

_DROPPED: Final = OpcodeRow(control.NEVER_IN_CODE, nothing, ArgumentKind.DROPPED)
_NEVER: Final = OpcodeRow(control.NEVER_IN_CODE, nothing)

_load_global = name_or_call(variables.LOAD_GLOBAL, variables.LOAD_GLOBAL_TO_CALL)
_load_attr = name_or_call(expressions.LOAD_ATTR, expressions.LOAD_ATTR_TO_CALL)

_SHARED: Final = {
    # markers and prefixes
    "CACHE": _DROPPED,
    "EXTENDED_ARG": _DROPPED,
    "NOP": _DROPPED,
    "RESUME": _DROPPED,
    "COPY_FREE_VARS": _DROPPED,  # binding puts them in place
    # the stack
    "POP_TOP": OpcodeRow(expressions.POP_TOP, nothing),
    "PUSH_NULL": OpcodeRow(variables.PUSH_NULL, nothing),
    "COPY": OpcodeRow(expressions.COPY, number),
    "SWAP": OpcodeRow(expressions.SWAP, number),
    # variables
    "LOAD_CONST": OpcodeRow(variables.LOAD_CONST, constant),
    "LOAD_FAST": OpcodeRow(variables.LOAD_FAST, number),
    "STORE_FAST": OpcodeRow(variables.STORE_FAST, number),
    "DELETE_FAST": OpcodeRow(variables.DELETE_FAST, number),
    "MAKE_CELL": OpcodeRow(variables.MAKE_CELL, number),
    "LOAD_DEREF": OpcodeRow(variables.LOAD_DEREF, number),
    "STORE_DEREF": OpcodeRow(variables.STORE_DEREF, number),
    "DELETE_DEREF": OpcodeRow(variables.DELETE_DEREF, number),
    "LOAD_GLOBAL": OpcodeRow(variables.LOAD_GLOBAL, _load_global, ArgumentKind.CHOICE),
    "STORE_GLOBAL": OpcodeRow(variables.STORE_GLOBAL, name),
    "DELETE_GLOBAL": OpcodeRow(variables.DELETE_GLOBAL, name),
    "LOAD_NAME": OpcodeRow(variables.LOAD_NAME, name),
    "STORE_NAME": OpcodeRow(variables.STORE_NAME, name),
    "DELETE_NAME": OpcodeRow(variables.DELETE_NAME, name),
    "SETUP_ANNOTATIONS": OpcodeRow(variables.SETUP_ANNOTATIONS, nothing),
    # expressions
    "UNARY_NEGATIVE": OpcodeRow(expressions.UNARY_OP, always(UNARY_NEGATIVE)),
    "UNARY_INVERT": OpcodeRow(expressions.UNARY_OP, always(UNARY_INVERT)),
    "UNARY_NOT": OpcodeRow(expressions.UNARY_NOT, nothing),
    "IS_OP": OpcodeRow(expressions.IS_OP, boolean),
    "CONTAINS_OP": OpcodeRow(expressions.CONTAINS_OP, boolean),
    "STORE_SUBSCR": OpcodeRow(expressions.STORE_SUBSCR, nothing),
    "DELETE_SUBSCR": OpcodeRow(expressions.DELETE_SUBSCR, nothing),
    "BUILD_SLICE": OpcodeRow(expressions.BUILD_SLICE, number),
    "STORE_ATTR": OpcodeRow(expressions.STORE_ATTR, name),
    "DELETE_ATTR": OpcodeRow(expressions.DELETE_ATTR, name),
    "BUILD_STRING": OpcodeRow(expressions.BUILD_STRING, number),
    # containers
    "BUILD_TUPLE": OpcodeRow(containers.BUILD_TUPLE, number),
    "BUILD_LIST": OpcodeRow(containers.BUILD_LIST, number),
    "BUILD_SET": OpcodeRow(containers.BUILD_SET, number),
    "BUILD_MAP": OpcodeRow(containers.BUILD_MAP, number),
    "LIST_APPEND": OpcodeRow(containers.LIST_APPEND, number),
    "SET_ADD": OpcodeRow(containers.SET_ADD, number),
    "MAP_ADD": OpcodeRow(containers.MAP_ADD, number),
    "LIST_EXTEND": OpcodeRow(containers.LIST_EXTEND, number),
    "SET_UPDATE": OpcodeRow(containers.SET_UPDATE, number),
    "DICT_UPDATE": OpcodeRow(containers.DICT_UPDATE, number),
    "DICT_MERGE": OpcodeRow(containers.DICT_MERGE, number),
    "UNPACK_SEQUENCE": OpcodeRow(containers.UNPACK_SEQUENCE, number),
    "UNPACK_EX": OpcodeRow(containers.UNPACK_EX, unpack_counts),
    # control
    "JUMP_FORWARD": OpcodeRow(control.JUMP, forward, ArgumentKind.JUMP),
    "JUMP_BACKWARD": OpcodeRow(control.JUMP, backward, ArgumentKind.JUMP),
    "JUMP_BACKWARD_NO_INTERRUPT": OpcodeRow(control.JUMP, backward, ArgumentKind.JUMP),
    "GET_ITER": OpcodeRow(control.GET_ITER, nothing),
    "RETURN_VALUE": OpcodeRow(control.RETURN_VALUE, nothing),
    # calls, functions, classes, imports
    "MAKE_FUNCTION": OpcodeRow(calling.MAKE_FUNCTION, number),
    "LOAD_BUILD_CLASS": OpcodeRow(calling.LOAD_BUILD_CLASS, nothing),
    "IMPORT_NAME": OpcodeRow(calling.IMPORT_NAME, name),
    "IMPORT_FROM": OpcodeRow(calling.IMPORT_FROM, name),
    # exceptions
    "RAISE_VARARGS": OpcodeRow(exceptions.RAISE_VARARGS, number),
    "RERAISE": OpcodeRow(exceptions.RERAISE, number),
    "PUSH_EXC_INFO": OpcodeRow(exceptions.PUSH_EXC_INFO, nothing),
    "POP_EXCEPT": OpcodeRow(exceptions.POP_EXCEPT, nothing),
    "CHECK_EXC_MATCH": OpcodeRow(exceptions.CHECK_EXC_MATCH, nothing),
    "CHECK_EG_MATCH": OpcodeRow(exceptions.CHECK_EG_MATCH, nothing),
    # generators
    "RETURN_GENERATOR": OpcodeRow(generators.RETURN_GENERATOR, nothing),
    "YIELD_VALUE": OpcodeRow(generators.YIELD_VALUE, is_delegating),
    "GET_YIELD_FROM_ITER": OpcodeRow(generators.GET_YIELD_FROM_ITER, nothing),
    "GET_AWAITABLE": OpcodeRow(generators.GET_AWAITABLE, number),
    "GET_AITER": OpcodeRow(generators.GET_AITER, nothing),
    "GET_ANEXT": OpcodeRow(generators.GET_ANEXT, nothing),
    "END_ASYNC_FOR": OpcodeRow(generators.END_ASYNC_FOR, nothing),
    # matching
    "GET_LEN": OpcodeRow(expressions.GET_LEN, nothing),
    "MATCH_MAPPING": OpcodeRow(matching.MATCH_MAPPING, nothing),
    "MATCH_SEQUENCE": OpcodeRow(matching.MATCH_SEQUENCE, nothing),
    "MATCH_KEYS": OpcodeRow(matching.MATCH_KEYS, nothing),
    "MATCH_CLASS": OpcodeRow(matching.MATCH_CLASS, number),
}

_UP_TO_3_13: Final = _SHARED | {
    "BINARY_SUBSCR": OpcodeRow(expressions.BINARY_SUBSCR, nothing),
    "BUILD_CONST_KEY_MAP": OpcodeRow(containers.BUILD_CONST_KEY_MAP, number),
    "CALL_FUNCTION_EX": OpcodeRow(calling.CALL_FUNCTION_EX, boolean),
    "BEFORE_WITH": OpcodeRow(exceptions.BEFORE_WITH, nothing),
    "BEFORE_ASYNC_WITH": OpcodeRow(exceptions.BEFORE_ASYNC_WITH, nothing),
    "WITH_EXCEPT_START": OpcodeRow(exceptions.WITH_EXCEPT_START, always(-4)),
    "LOAD_ASSERTION_ERROR": OpcodeRow(variables.LOAD_CONST, always(AssertionError)),
    "BINARY_OP": OpcodeRow(expressions.BINARY_OP, binary_operator),
}

_3_11: Final = _UP_TO_3_13 | {
    "UNARY_POSITIVE": OpcodeRow(expressions.UNARY_OP, always(UNARY_POSITIVE)),
    "COMPARE_OP": OpcodeRow(expressions.COMPARE_OP, comparison(0)),
    "LOAD_ATTR": OpcodeRow(expressions.LOAD_ATTR, name),
    "LOAD_CLOSURE": OpcodeRow(variables.LOAD_CLOSURE, number),
    "LOAD_METHOD": OpcodeRow(expressions.LOAD_ATTR_TO_CALL, name),
    "LOAD_CLASSDEREF": OpcodeRow(variables.LOAD_CLASSDEREF, number),
    "FORMAT_VALUE": OpcodeRow(expressions.FORMAT_VALUE, number),
    "LIST_TO_TUPLE": OpcodeRow(containers.LIST_TO_TUPLE, nothing),
    "FOR_ITER": OpcodeRow(control.FOR_ITER, forward, ArgumentKind.JUMP),
    "POP_JUMP_FORWARD_IF_FALSE": OpcodeRow(control.POP_JUMP_IF_FALSE, forward, ArgumentKind.JUMP),
    "POP_JUMP_FORWARD_IF_TRUE": OpcodeRow(control.POP_JUMP_IF_TRUE, forward, ArgumentKind.JUMP),
    "POP_JUMP_FORWARD_IF_NONE": OpcodeRow(control.POP_JUMP_IF_NONE, forward, ArgumentKind.JUMP),
    "POP_JUMP_FORWARD_IF_NOT_NONE": OpcodeRow(control.POP_JUMP_IF_NOT_NONE, forward, ArgumentKind.JUMP),
    "POP_JUMP_BACKWARD_IF_FALSE": OpcodeRow(control.POP_JUMP_IF_FALSE, backward, ArgumentKind.JUMP),
    "POP_JUMP_BACKWARD_IF_TRUE": OpcodeRow(control.POP_JUMP_IF_TRUE, backward, ArgumentKind.JUMP),
    "POP_JUMP_BACKWARD_IF_NONE": OpcodeRow(control.POP_JUMP_IF_NONE, backward, ArgumentKind.JUMP),
    "POP_JUMP_BACKWARD_IF_NOT_NONE": OpcodeRow(control.POP_JUMP_IF_NOT_NONE, backward, ArgumentKind.JUMP),
    "JUMP_IF_FALSE_OR_POP": OpcodeRow(control.JUMP_IF_FALSE_OR_POP, forward, ArgumentKind.JUMP),
    "JUMP_IF_TRUE_OR_POP": OpcodeRow(control.JUMP_IF_TRUE_OR_POP, forward, ArgumentKind.JUMP),
    "PRECALL": _DROPPED,
    "KW_NAMES": OpcodeRow(control.NEVER_IN_CODE, keyword_names, ArgumentKind.DROPPED),
    "CALL": OpcodeRow(calling.CALL, call, ArgumentKind.CHOICE),
    "IMPORT_STAR": OpcodeRow(calling.IMPORT_STAR, nothing),
    "PREP_RERAISE_STAR": OpcodeRow(exceptions.PREP_RERAISE_STAR, nothing),
    "SEND": OpcodeRow(generators.SEND_AND_POP, forward, ArgumentKind.JUMP),
    "ASYNC_GEN_WRAP": _DROPPED,
    "PRINT_EXPR": OpcodeRow(intrinsics.PRINT_EXPR, nothing),
}

_SINCE_3_12: Final = {
    "LOAD_FAST_CHECK": OpcodeRow(variables.LOAD_FAST, number),
    "LOAD_FAST_AND_CLEAR": OpcodeRow(variables.LOAD_FAST_AND_CLEAR, number),
    "LOAD_LOCALS": OpcodeRow(variables.LOAD_LOCALS, nothing),
    "LOAD_FROM_DICT_OR_GLOBALS": OpcodeRow(variables.LOAD_FROM_DICT_OR_GLOBALS, name),
    "LOAD_FROM_DICT_OR_DEREF": OpcodeRow(variables.LOAD_FROM_DICT_OR_DEREF, number),
    "LOAD_ATTR": OpcodeRow(expressions.LOAD_ATTR, _load_attr, ArgumentKind.CHOICE),
    "LOAD_SUPER_ATTR": OpcodeRow(expressions.LOAD_SUPER_ATTR, super_attribute, ArgumentKind.CHOICE),
    "BINARY_SLICE": OpcodeRow(expressions.BINARY_SLICE, nothing),
    "STORE_SLICE": OpcodeRow(expressions.STORE_SLICE, nothing),
    "POP_JUMP_IF_FALSE": OpcodeRow(control.POP_JUMP_IF_FALSE, forward, ArgumentKind.JUMP),
    "POP_JUMP_IF_TRUE": OpcodeRow(control.POP_JUMP_IF_TRUE, forward, ArgumentKind.JUMP),
    "POP_JUMP_IF_NONE": OpcodeRow(control.POP_JUMP_IF_NONE, forward, ArgumentKind.JUMP),
    "POP_JUMP_IF_NOT_NONE": OpcodeRow(control.POP_JUMP_IF_NOT_NONE, forward, ArgumentKind.JUMP),
    "SEND": OpcodeRow(generators.SEND, forward, ArgumentKind.JUMP),
    "END_SEND": OpcodeRow(expressions.END_SEND, nothing),
    "CLEANUP_THROW": OpcodeRow(generators.CLEANUP_THROW, nothing),
    "CALL_INTRINSIC_1": _DROPPED,  # its row is below: the names of intrinsics exist from 3.12 on
    "CALL_INTRINSIC_2": _DROPPED,
    "INTERPRETER_EXIT": _NEVER,
    "RESERVED": _NEVER,
}

_3_12: Final = (
    _UP_TO_3_13
    | _SINCE_3_12
    | {
        "RETURN_CONST": OpcodeRow(control.RETURN_CONST, constant),
        "LOAD_CLOSURE": OpcodeRow(variables.LOAD_CLOSURE, number),
        "COMPARE_OP": OpcodeRow(expressions.COMPARE_OP, comparison(4)),
        "FORMAT_VALUE": OpcodeRow(expressions.FORMAT_VALUE, number),
        "FOR_ITER": OpcodeRow(control.FOR_ITER, forward_behind(1), ArgumentKind.JUMP),  # END_FOR
        "END_FOR": OpcodeRow(expressions.END_FOR_POP_TWO, nothing),
        "KW_NAMES": OpcodeRow(control.NEVER_IN_CODE, keyword_names, ArgumentKind.DROPPED),
        "CALL": OpcodeRow(calling.CALL, call, ArgumentKind.CHOICE),
    }
)

_SINCE_3_13: Final = {
    "LOAD_FAST_LOAD_FAST": OpcodeRow(variables.LOAD_FAST_LOAD_FAST, pair_of_nibbles),
    "STORE_FAST_LOAD_FAST": OpcodeRow(variables.STORE_FAST_LOAD_FAST, pair_of_nibbles),
    "STORE_FAST_STORE_FAST": OpcodeRow(variables.STORE_FAST_STORE_FAST, pair_of_nibbles),
    "COMPARE_OP": OpcodeRow(expressions.COMPARE_OP, comparison_or_test, ArgumentKind.CHOICE),
    "TO_BOOL": OpcodeRow(expressions.TO_BOOL, nothing),
    "CONVERT_VALUE": OpcodeRow(expressions.CONVERT_VALUE, number),
    "FORMAT_SIMPLE": OpcodeRow(expressions.FORMAT_SIMPLE, nothing),
    "FORMAT_WITH_SPEC": OpcodeRow(expressions.FORMAT_WITH_SPEC, nothing),
    "FOR_ITER": OpcodeRow(control.FOR_ITER, forward_behind(2), ArgumentKind.JUMP),  # END_FOR, POP_TOP (_ITER)
    "END_FOR": OpcodeRow(expressions.POP_TOP, nothing),
    "CALL": OpcodeRow(calling.CALL, number),
    "CALL_KW": OpcodeRow(calling.CALL_KW, number),
    "SET_FUNCTION_ATTRIBUTE": OpcodeRow(calling.SET_FUNCTION_ATTRIBUTE, number),
    "ENTER_EXECUTOR": _NEVER,
    "EXIT_INIT_CHECK": _NEVER,
}

_3_13: Final = (
    _UP_TO_3_13
    | _SINCE_3_12
    | _SINCE_3_13
    | {
        "RETURN_CONST": OpcodeRow(control.RETURN_CONST, constant),
    }
)

_3_14: Final = (
    _SHARED
    | _SINCE_3_12
    | _SINCE_3_13
    | {
        "NOT_TAKEN": _DROPPED,
        "POP_ITER": OpcodeRow(expressions.POP_TOP, nothing),
        # a borrowed reference is a matter of reference counts only
        "LOAD_FAST_BORROW": OpcodeRow(variables.LOAD_FAST, number),
        "LOAD_FAST_BORROW_LOAD_FAST_BORROW": OpcodeRow(variables.LOAD_FAST_LOAD_FAST, pair_of_nibbles),
        "LOAD_SMALL_INT": OpcodeRow(variables.LOAD_CONST, number),
        "LOAD_COMMON_CONSTANT": OpcodeRow(variables.LOAD_CONST, common_constant),
        "BINARY_OP": OpcodeRow(expressions.BINARY_OP, operator_or_subscript, ArgumentKind.CHOICE),
        "BUILD_INTERPOLATION": OpcodeRow(templates.BUILD_INTERPOLATION, interpolation),
        "BUILD_TEMPLATE": OpcodeRow(templates.BUILD_TEMPLATE, nothing),
        "CALL_FUNCTION_EX": OpcodeRow(calling.CALL_FUNCTION_EX, always(True)),
        "LOAD_SPECIAL": OpcodeRow(exceptions.LOAD_ENTER, special_method, ArgumentKind.CHOICE),
        "WITH_EXCEPT_START": OpcodeRow(exceptions.WITH_EXCEPT_START, always(-5)),
    }
)

TABLES: Final = {(3, 11): _3_11, (3, 12): _3_12, (3, 13): _3_13, (3, 14): _3_14}
"""The operations of each supported version, by name."""


def table_of_running_version() -> dict[str, OpcodeRow]:
    """The table for this interpreter process, with the intrinsics that the version names."""
    table = dict(TABLES[sys.version_info[:2]])
    for operation, rows, names in (
        ("CALL_INTRINSIC_1", intrinsics.ONE_OPERAND, getattr(opcode, "_intrinsic_1_descs", None)),
        ("CALL_INTRINSIC_2", intrinsics.TWO_OPERANDS, getattr(opcode, "_intrinsic_2_descs", None)),
    ):
        if names is not None:
            table[operation] = OpcodeRow(
                intrinsics.PASS, intrinsics.chooser(rows, names), ArgumentKind.CHOICE
            )
    return table


TABLE: Final = table_of_running_version()
"""The table of the running version."""

install_table(TABLE)
