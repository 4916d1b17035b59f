"""The table of faulty executors: what is wrong with each, and which property finds it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from testing.example_executors import Runs, Trial, fuser, gate_executor, norm_executor


@dataclass(frozen=True)
class Fault:
    """A faulty executor, and the property whose case finds it."""

    what: str
    caught_by: str
    make: Callable[[], Trial]
    is_fusion: bool = False


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


def of_norm(caught_by: str, **kernels: Callable[..., Any]) -> None:
    """Enter executors of `norm`, each with another kernel."""
    for what, kernel in kernels.items():
        FAULTS.append(Fault(what.replace("_", " "), caught_by, lambda kernel=kernel: norm_executor(kernel)))


def of_fusions(what: str, caught_by: str = "regions", **arguments: Any) -> Callable[[type[Runs]], type[Runs]]:
    """Return the decorator that enters the fusion executor of a class."""

    def decorate(cls: type[Runs]) -> type[Runs]:
        FAULTS.append(Fault(what, caught_by, lambda: fuser(cls, **arguments), is_fusion=True))
        return cls

    return decorate
