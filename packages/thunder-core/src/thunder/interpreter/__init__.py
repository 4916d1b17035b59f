"""A CPython bytecode interpreter in Python, for 3.11, 3.12, 3.13 and 3.14, without torch.

:func:`interpret` runs a function as CPython would. A host that wants to see what the program reads, writes
and calls gives a :class:`Machine` its own :class:`Policy`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from thunder.interpreter.frame import Frame
from thunder.interpreter.machine import Machine
from thunder.interpreter.policy import MISSING, FunctionParts, Policy
from thunder.interpreter.process_marks import is_jitting, is_opaque, jitting, make_opaque

__all__ = [
    "MISSING",
    "Frame",
    "FunctionParts",
    "Machine",
    "Policy",
    "interpret",
    "is_jitting",
    "is_opaque",
    "jitting",
    "make_opaque",
]


class _Lookasides(Policy):
    """Plain Python, except for the callables that a lookaside replaces."""

    def __init__(self, lookaside: Callable[[Any], Any]) -> None:
        self._lookaside = lookaside

    def call(self, fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call the replacement of ``fn`` if there is one."""
        replacement = self._lookaside(fn)
        if replacement is None:
            return self.machine.generic_call(fn, args, kwargs)
        return replacement(*args, **kwargs)


def interpret(
    fn: Callable[..., Any],
    *,
    lookaside: Callable[[Any], Callable[..., Any] | None] | None = None,
    record_history: bool = False,
) -> Callable[..., Any]:
    """Return a callable that interprets ``fn``: same result, same exceptions, same lines.

    lookaside: called with each callable that the program calls; what it returns is called natively in its
    place, None means to go on.
    record_history: the result's attribute ``machine`` then has ``history``, a list of (depth, "file:line",
    operation, argument).
    """
    policy = Policy() if lookaside is None else _Lookasides(lookaside)
    machine = Machine(policy, record_history=record_history)

    @functools.wraps(fn)
    def interpreted(*args: Any, **kwargs: Any) -> Any:
        return machine.call(fn, args, kwargs)

    interpreted.machine = machine  # type: ignore[attr-defined]
    return interpreted
