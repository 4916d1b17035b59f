"""Copies of statements that were recorded, with other values in the place of theirs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from thunder.ir.proxy_leaves import map_leaves
from thunder.ir.substitution import with_leaves
from thunder.ir.symbol import BoundSymbol, with_parts
from thunder.ir.trace import Source, TraceCtx

__all__ = ["StatementCopies", "computed_by"]


class StatementCopies:
    """A way to make statements once more: of other operands, with other results.

    Args:
        values: what is in the place of a value, by ``id``; one that is not among them stays.
        source: returns the line of a copy for that of a statement.
    """

    def __init__(
        self,
        values: Mapping[int, Any],
        source: Callable[[Source | None], Source | None] = lambda source: source,
    ) -> None:
        self._values, self._source = values, source

    def recorded(self, trace: TraceCtx, statements: Sequence[BoundSymbol], result: Any) -> Any:
        """Record copies of the statements, and return the tree ``result`` of their values."""
        for statement in statements:
            trace.record(self.copy_of(statement))
        return map_leaves(self._leaf, result)

    def copy_of(self, call: BoundSymbol) -> BoundSymbol:
        """Return a call with the values in the place of its own."""
        return with_leaves(self._leaf, call, self._source)

    def _leaf(self, leaf: Any) -> Any:
        return self._values.get(id(leaf), leaf)


def computed_by(statements: Iterable[BoundSymbol]) -> list[Any]:
    """Return the results that no statement has as an operand before it computes them, in order."""
    known: set[int] = set()
    computed: list[Any] = []

    for call in with_parts(statements):
        operands = set(map(id, call.flat_proxy_args))
        if not call.subsymbols:
            known |= operands
        for proxy in call.flat_proxy_outs:
            if id(proxy) not in known and id(proxy) not in operands:
                known.add(id(proxy))
                computed.append(proxy)
    return computed
