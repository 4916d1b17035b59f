"""The table of faulty executors: what is wrong with each, and which property finds it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from conformance.example_executors import (
    Trial,
    gate_executor,
)


@dataclass(frozen=True)
class Fault:
    """A faulty executor, and the property whose case finds it."""

    what: str
    caught_by: str
    make: Callable[[], Trial]


FAULTS: list[Fault] = []

#: in place of the case, for faults that no case finds
NOT_FOUND = ""


def fault(what: str, caught_by: str) -> Callable[[Callable[[], Trial]], Callable[[], Trial]]:
    """Return the decorator that enters the executor which a function makes."""

    def decorate(make: Callable[[], Trial]) -> Callable[[], Trial]:
        FAULTS.append(Fault(what, caught_by, make))
        return make

    return decorate


def of_gate(caught_by: str, **faults: Callable[[], dict[str, Any]]) -> None:
    """Enter executors of `gate`, each with one part changed."""
    for what, change in faults.items():
        FAULTS.append(
            Fault(what.replace("_", " "), caught_by, lambda change=change: gate_executor(**change()))
        )
