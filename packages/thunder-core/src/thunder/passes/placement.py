"""Placements: the executor of each bound symbol, and the refusals of others."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from thunder.base.errors import Location
from thunder.executor_base.refusal import Refusal
from thunder.ir.symbol import BoundSymbol, Symbol

#: How a call runs. `"operator"`: by an operator of the executor. `"fusion"`: as a part of a region that the
#: executor compiles. `"always"`: by a fallback executor; an execution transform recorded the call, or a
#: fusion executor left it. `"fallback"`: by torch as it is, for the function has no row. `"decomposed"`: as
#: its subsymbols, which have placements too, for no executor claimed it.
Via = Literal["operator", "fusion", "always", "fallback", "decomposed"]


@dataclass(frozen=True, slots=True)
class Placement:
    """The executor of one bound symbol.

    `claimed_by` is its name, or None if the bound symbol was decomposed. `refusals` has one entry for each
    other executor that was consulted. `cost` is the expected time in microseconds, if costs decided.
    `order` has the names of the executors as they were consulted, if ranks changed the order.
    """

    bsym: BoundSymbol
    claimed_by: str | None
    via: Via
    refusals: tuple[tuple[str, Refusal], ...] = ()
    cost: float | None = None
    order: tuple[str, ...] = ()

    @property
    def symbol(self) -> str:
        """The id of the symbol."""
        return str(self.bsym.sym.id)

    @property
    def outputs(self) -> tuple[str, ...]:
        """The names of its outputs."""
        return tuple(p.name for p in self.bsym.flat_proxy_outs)

    @property
    def source(self) -> Location | None:
        """The user's line."""
        return self.bsym.source.location if self.bsym.source is not None else None

    @property
    def inner(self) -> Location | None:
        """The line of torch's Python code that the user's line called, or None."""
        inner = self.bsym.source.inner if self.bsym.source is not None else None
        return inner.location if inner is not None else None

    @property
    def module(self) -> str:
        """The name of the module whose method made the call, or ""."""
        return self.bsym.source.module if self.bsym.source is not None else ""


def calls_for_numbers(placements: Iterable[Placement]) -> dict[str, str]:
    """Return the executors that refuse a call only because its sizes are symbols, each with such a call."""
    return {
        name: placement.symbol
        for placement in placements
        for name, refusal in placement.refusals
        if refusal.code == "static_shape"
    }


def is_executable(symbol: Symbol) -> bool:
    """Return whether a call of the symbol runs: it is Python, or has a function or a path."""
    return symbol.python_impl is not None or symbol.python_printer is not None or symbol.call_path is not None
