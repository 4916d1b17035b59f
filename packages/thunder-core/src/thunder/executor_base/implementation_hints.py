"""Checks of what implementations say about themselves: costs, workspaces, ranks."""

from __future__ import annotations

from thunder.base.errors import RegistrationError
from thunder.executor_base.executor import Executor

__all__ = ["check_hints"]


def check_hints(executor: Executor, target: str, *, rank: object, **functions: object) -> None:
    """Raise RegistrationError for hints that are not functions, and for a rank that is not an int."""
    wrong = [name for name, value in functions.items() if value is not None and not callable(value)]
    if rank is not None and (not isinstance(rank, int) or isinstance(rank, bool)):
        wrong.append("rank")
    if wrong:
        what = "an int" if wrong[0] == "rank" else "a function of the operator's arguments"
        raise RegistrationError(
            f"{wrong[0]}= of executor {executor.name!r} for {target!r} has to be {what}, and is "
            f"{(functions | {'rank': rank})[wrong[0]]!r}"
        )
