"""Defines what the rule of an operator receives: the values of a divided program, and their conversions.

A rule is a function `(bsym, values)` that returns None where it does not apply. Otherwise it returns a
function that records the calls and returns each result with its division, None for a whole one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

from thunder import TensorProxy
from thunder.core.symbol import BoundSymbol

from .operators import Division

__all__ = ["Computation", "Result", "Rule", "Values", "arguments", "divided_operands"]

Result = tuple[Any, Division | None]
Computation = Callable[[], Sequence[Result]]


class Values(Protocol):
    """The values of a program, by those of the original one."""

    def value(self, p: Any) -> Any:
        """Return what a value is here, whole or divided."""

    def division(self, p: Any) -> Division | None:
        """Return how a value is divided; None for a whole one, and for what is not a tensor."""

    def whole(self, p: Any) -> Any:
        """Return a value, whole."""

    def part(self, p: Any, division: Division) -> Any:
        """Return the part of this process of a value, divided in some way."""

    def shared(self, p: Any, group: str) -> Any:
        """Return a whole value that is read for parts of results."""


Rule = Callable[[BoundSymbol, Values], Computation | None]


def arguments(bsym: BoundSymbol, *names: str) -> list[Any]:
    """Return arguments of a call by position or name, None for those that it does not have."""
    given = list(bsym.args[: len(names)])
    return given + [bsym.kwargs.get(name) for name in names[len(given) :]]


def divided_operands(bsym: BoundSymbol, values: Values) -> Iterator[tuple[TensorProxy, Division]]:
    """Yield the operands that are divided, with their divisions."""
    for p in bsym.flat_proxy_args:
        division = values.division(p)
        if division is not None:
            yield p, division
