"""What a program does with a value at once, by the instructions that follow its read.

self.losses.append(loss.item())     →   append: the list need not be read, since the program only adds to it
count = len(self.losses)            →   length
self.metrics["a"].append(loss)      →   append to item
if "numpy" in sys.modules: …        →   contains
for i in range(0, n, 4): …          →   the call is iterated

A variable is looked up in no table while the program runs, so that the uses of an argument are found in the
byte code of the function.
"""

from __future__ import annotations

import builtins
import types
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from thunder.interpreter.decode import Decoded, decode
from thunder.interpreter.frame import Frame
from thunder.interpreter.handlers.calling import CALL
from thunder.interpreter.handlers.control import GET_ITER
from thunder.interpreter.handlers.expressions import (
    BINARY_OP,
    BINARY_SUBSCR,
    CONTAINS_OP,
    COPY,
    LOAD_ATTR,
    LOAD_ATTR_TO_CALL,
    STORE_ATTR,
    SWAP,
)
from thunder.interpreter.handlers.variables import (
    LOAD_CONST,
    LOAD_DEREF,
    LOAD_FAST,
    LOAD_GLOBAL,
    LOAD_GLOBAL_TO_CALL,
)
from thunder.interpreter.operator_tables import BINARY_OPERATORS
from thunder.interpreter.policy import MISSING

__all__ = ["Use", "is_iterated", "is_only_appended", "use_of"]

_APPENDING: Final = ("append", "extend")


class Use(NamedTuple):
    """What is done with a value at once, and the key of an item or of a look-up.

    The kinds are ``append`` (or ``extend``, or ``+=`` of an attribute), ``length``, ``item``,
    ``append to item``, ``contains``, ``get``, and ``other``.
    """

    kind: str
    key: Any = None


_OTHER: Final = Use("other")


def use_of(frame: Frame, name: str | None) -> Use:
    """Return what the program does with the attribute or global ``name`` that the running instruction reads.

    ``name`` is None for a cell. A value that something else reads has another use.
    """
    rows = frame.decoded.instructions[frame.pc : frame.pc + 4]
    load, argument = rows[0]
    is_attribute = load is LOAD_ATTR
    is_name = argument == name and (is_attribute or load is LOAD_GLOBAL)
    if not (load is LOAD_DEREF if name is None else is_name):
        return _OTHER
    following, argument = rows[1]
    if following is LOAD_ATTR_TO_CALL:
        if argument in _APPENDING:
            return Use("append")
        return Use("get", _key(frame, rows[2])) if argument == "get" else _OTHER
    if following is CONTAINS_OP:
        return Use("contains", frame.stack[-2 if is_attribute else -1])
    if len(rows) > 2 and following in _KEYS and rows[2][0] is BINARY_SUBSCR:
        is_appended = len(rows) > 3 and rows[3][0] is LOAD_ATTR_TO_CALL and rows[3][1] in _APPENDING
        return Use("append to item" if is_appended else "item", _key(frame, rows[1]))
    if rows[1] == (CALL, 1):
        end = len(frame.stack) - is_attribute
        callee = frame.stack[end - 2 : end]
        is_len = len(callee) == 2 and any(x is len for x in callee) and any(x is MISSING for x in callee)
        return Use("length") if is_len else _OTHER
    is_extended = is_attribute and _is_extended(frame.decoded.instructions, frame.pc)
    return Use("append") if is_extended else _OTHER


#: instructions that push a key and nothing else
_KEYS: Final = frozenset({LOAD_CONST, LOAD_FAST})


def _key(frame: Frame, row: tuple[Any, Any]) -> Any:
    """Return the key that an instruction pushes, or None."""
    load, argument = row
    if load not in _KEYS:
        return None
    return argument if load is LOAD_CONST else frame.fast[argument]


def _is_extended(instructions: Sequence[tuple[Any, Any]], position: int) -> bool:
    """Return whether an instruction reads an attribute for ``owner.name += …``.

    owner.name += [x]    →    owner; COPY; LOAD_ATTR name; x; …; BINARY_OP +=; SWAP; STORE_ATTR name
    """
    name = instructions[position][1]
    if instructions[position - 1][0] is not COPY:
        return False
    store = next((i for i, row in enumerate(instructions) if i > position and row == (STORE_ATTR, name)), 0)
    return (
        store > position + 2
        and instructions[store - 1][0] is SWAP
        and instructions[store - 2] == (BINARY_OP, BINARY_OPERATORS["+="])
    )


def is_iterated(frame: Frame, count: int) -> bool:
    """Return whether the running instruction is a call with ``count`` arguments in ``for x in range(…)``."""
    rows = frame.decoded.instructions[frame.pc : frame.pc + 2]
    return len(rows) == 2 and rows[0] == (CALL, count) and rows[1][0] is GET_ITER


# -- all uses of an argument ---------------------------------------------------------------------------------

#: functions that see all variables
_SEES_VARIABLES: Final = frozenset({"locals", "vars", "eval", "exec", "dir"})


def is_only_appended(fn: Any, position: int) -> bool:
    """Return whether a function appends to its positional parameter, or asks for its length, and no more."""
    if type(fn) is not types.FunctionType or position >= fn.__code__.co_argcount:
        return False
    code = fn.__code__
    name = code.co_varnames[position]
    if name in code.co_cellvars or not _SEES_VARIABLES.isdisjoint(code.co_names):
        return False
    decoded = decode(code)
    index = decoded.localsplus.index(name)
    has_len = "len" not in fn.__globals__ and "len" not in code.co_varnames
    uses = [i for i, (_, argument) in enumerate(decoded.instructions) if _names(argument, index)]
    uses = [i for i in uses if "FAST" in decoded.operation(i)]
    return bool(uses) and all(_is_appending(decoded, i, has_len) for i in uses)


def _names(argument: Any, index: int) -> bool:
    """Return whether the argument of an instruction is a variable, or has it among several."""
    return argument == index or (type(argument) is tuple and index in argument)


def _is_appending(decoded: Decoded, use: int, has_len: bool) -> bool:
    """Return whether an instruction loads the variable for ``x.append(…)``, ``x.extend(…)`` or ``len(x)``."""
    if decoded.instructions[use][0] is not LOAD_FAST:
        return False
    call, argument = decoded.instructions[use + 1]
    if call is LOAD_ATTR_TO_CALL:
        return argument in _APPENDING
    is_len = has_len and use > 0 and decoded.instructions[use - 1] == (LOAD_GLOBAL_TO_CALL, "len")
    return is_len and (call, argument) == (CALL, 1) and vars(builtins)["len"] is len
