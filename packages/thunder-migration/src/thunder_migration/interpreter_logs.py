"""Logs and counts of the interpreter, of compiled objects and of results of `interpret`."""

from __future__ import annotations

from typing import Any

import thunder

__all__ = ["last_interpreted_instructions", "last_interpreter_log"]


def last_interpreter_log(fn: Any) -> list[Any]:
    """Return the log of the last compile, or of the last run of a function that `interpret` returned.

    An entry is (depth, "file:line", operation, argument). The log is empty unless it was asked for, by
    `record_interpreter_history` or `record_history`.
    """
    machine = getattr(fn, "machine", None)
    return list(machine.history) if machine is not None else thunder.last_interpreter_log(fn)


def last_interpreted_instructions(fn: Any) -> int:
    """Return the number of instructions of the last compile, or since `interpret` returned the function."""
    machine = getattr(fn, "machine", None)
    return machine.instructions if machine is not None else thunder.last_interpreted_instructions(fn)
