"""What a program does at once with what it reads, by the instructions that follow.

if "numpy" in sys.modules: …        →   the key of a look-up
for i in range(0, n, 4): …          →   the call is iterated
"""

from __future__ import annotations

from typing import Any, Final

from thunder.interpreter.frame import Frame
from thunder.interpreter.handlers.calling import CALL
from thunder.interpreter.handlers.control import GET_ITER
from thunder.interpreter.handlers.expressions import BINARY_SUBSCR, CONTAINS_OP, LOAD_ATTR, LOAD_ATTR_TO_CALL
from thunder.interpreter.handlers.variables import LOAD_CONST, LOAD_FAST

__all__ = ["is_iterated", "key_of_lookup"]

#: instructions that push a key and nothing else
_KEYS: Final = frozenset({LOAD_CONST, LOAD_FAST})


def key_of_lookup(frame: Frame, name: str) -> Any:
    """Return the key that is looked up in the attribute ``name``, which is read now; None for other uses."""
    instructions = frame.decoded.instructions
    if instructions[frame.pc] != (LOAD_ATTR, name):
        return None
    following, *rows = instructions[frame.pc + 1 : frame.pc + 4]
    if following[0] is CONTAINS_OP:
        return frame.stack[-2]
    if following == (LOAD_ATTR_TO_CALL, "get"):
        return _key(frame, rows[0])
    return _key(frame, following) if rows and rows[0][0] is BINARY_SUBSCR else None


def _key(frame: Frame, row: tuple[Any, Any]) -> Any:
    """Return the key that an instruction pushes, or None."""
    load, argument = row
    if load not in _KEYS:
        return None
    return argument if load is LOAD_CONST else frame.fast[argument]


def is_iterated(frame: Frame, count: int) -> bool:
    """Return whether the running instruction is a call with ``count`` arguments in ``for x in range(…)``."""
    rows = frame.decoded.instructions[frame.pc : frame.pc + 2]
    return len(rows) == 2 and rows[0] == (CALL, count) and rows[1][0] is GET_ITER
