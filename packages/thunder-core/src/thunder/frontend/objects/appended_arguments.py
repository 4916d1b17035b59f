"""Lists among the arguments of a call to which the program only appends: their content is not read.

    def step(model, x, losses):
        loss = model(x).mean()
        losses.append(loss.item())        losses is neither read nor guarded, as ``self.losses`` would be
        return loss

The variable is looked up in no table while the program runs, so that its uses are found in the byte code.
"""

from __future__ import annotations

import builtins
import types
from typing import Any

from thunder.interpreter.decode import Decoded, decode
from thunder.interpreter.handlers.calling import CALL
from thunder.interpreter.handlers.expressions import LOAD_ATTR_TO_CALL
from thunder.interpreter.handlers.variables import LOAD_FAST, LOAD_GLOBAL_TO_CALL

__all__ = ["is_only_appended"]

#: functions that see all variables
_SEES_VARIABLES = frozenset({"locals", "vars", "eval", "exec", "dir"})


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
        return argument in ("append", "extend")
    is_len = has_len and use > 0 and decoded.instructions[use - 1] == (LOAD_GLOBAL_TO_CALL, "len")
    return is_len and (call, argument) == (CALL, 1) and vars(builtins)["len"] is len
