"""The records of who runs what, and why not somebody else: one per bound symbol, kept by the passes that
decide.
"""

from __future__ import annotations

from dataclasses import dataclass

from thunder.base.errors import Location
from thunder.executor_base.executor import Refusal
from thunder.ir.symbol import BoundSymbol, Symbol


@dataclass(frozen=True, slots=True)
class Placement:
    """What became of one bound symbol.

    `via` is `"operator"` (an executor's operator runs it), `"fusion"` (it is part of a region), `"always"`
    (what other executors left), `"fallback"` (it has no row, and torch runs it as it is), or
    `"decomposed"` (nobody took it; its subsymbols have records of their own). `refusals` has one entry for
    each executor that was asked before.
    """

    bsym: BoundSymbol
    claimed_by: str | None
    via: str
    refusals: tuple[tuple[str, Refusal], ...] = ()

    @property
    def symbol(self) -> str:
        """The id of the symbol."""
        return str(self.bsym.sym.id)

    @property
    def outputs(self) -> tuple[str, ...]:
        """The names of its results."""
        return tuple(p.name for p in self.bsym.flat_proxy_outs)

    @property
    def source(self) -> Location | None:
        """The user's line."""
        return self.bsym.source.location if self.bsym.source is not None else None

    @property
    def inner(self) -> Location | None:
        """The line of torch's own Python that the user's line led to, if it did."""
        inner = self.bsym.source.inner if self.bsym.source is not None else None
        return inner.location if inner is not None else None


def runs(symbol: Symbol) -> bool:
    """Whether a call of the symbol runs as it is printed: it is Python, or has a function or a path."""
    return symbol.python_impl is not None or symbol.python_printer is not None or symbol.call_path is not None
