"""Loops over ranges of symbolic sizes: the number of steps is a fact, and the sizes are not.

for start in range(0, n, 4):   →   for start in (0, 4, 8), and the fact that -(-n // 4) is 3
"""

from __future__ import annotations

from typing import Any

from thunder.frontend.lookasides.lookaside_registry import LookasideTable
from thunder.frontend.places import COMPUTES
from thunder.frontend.session import TracingSession
from thunder.interpreter.coming_uses import is_iterated
from thunder.ir.symbolic_sizes import SymbolicInt

TABLE = LookasideTable(COMPUTES, only_reads=True)


@TABLE.lookaside(range)
def _range(session: TracingSession, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Return the range; of one that is iterated at once, and by nothing else, its elements."""
    has_symbols = any(type(x) is SymbolicInt for x in args) and not kwargs
    if has_symbols and is_iterated(session.machine.frame, len(args)):
        start, end, step = (0, args[0], 1) if len(args) == 1 else (*args, 1)[:3]
        if all(type(x) is SymbolicInt or type(x) is int for x in (start, end, step)) and step > 0:
            count = int(-((start - end) // step)) if end > start else 0
            return tuple(start + i * step for i in range(count))
    return session.machine.generic_call(range, args, kwargs)
