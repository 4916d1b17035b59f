"""The placement ledger of a compile: who runs each call, and why each executor that was asked before does
not.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from thunder.core.errors import InvalidArgument, Location, RequirementNotMet, nearest
from thunder.core.executor import Refusal
from thunder.core.passes.placement import Placement

__all__ = ["Explanation", "LedgerRow", "RefusalRecord", "check_requirements", "explain_placements"]

_COLUMNS = ("#", "trace", "symbol", "outputs", "claimed by", "via", "refused by", "source")


@dataclass(frozen=True)
class RefusalRecord:
    """Why one executor did not take a call."""

    executor: str
    code: str
    message: str
    facts: Mapping[str, Any]

    @classmethod
    def of(cls, executor: str, refusal: Refusal) -> RefusalRecord:
        """The record of an executor's refusal."""
        return cls(executor, refusal.code, refusal.message, dict(refusal.facts))


@dataclass(frozen=True, kw_only=True)
class LedgerRow:
    """What became of one call. `trace` is `"forward"` or `"backward"`; `via` is described at `Placement`."""

    index: int
    trace: str
    symbol: str
    outputs: tuple[str, ...]
    claimed_by: str | None
    via: str
    refusals: tuple[RefusalRecord, ...]
    source: Location | None


@dataclass(frozen=True)
class Explanation:
    """The ledger of a compile: `str()` is a table, `rows` the records, `to_json()` the same facts as text."""

    rows: tuple[LedgerRow, ...]
    #: what was read that could be neither guarded nor replayed, and is part of the program as it was
    baked: tuple[str, ...] = ()

    def why_not(self, executor: str, *, line: int | None = None, symbol: str | None = None) -> Explanation:
        """The rows in which `executor` was asked and refused, of one line of the program or one symbol if
        given.
        """
        asked = {r.executor for row in self.rows for r in row.refusals}
        asked |= {row.claimed_by for row in self.rows if row.claimed_by is not None}
        if executor not in asked:
            close = nearest(executor, asked)
            raise InvalidArgument(
                f"executor {executor!r} was not asked about anything in this compile",
                found={"asked": ", ".join(sorted(asked))},
                hint=f"Did you mean {close!r}?" if close else "Is it in executors=?",
            )
        return Explanation(
            tuple(
                row
                for row in self.rows
                if any(r.executor == executor for r in row.refusals)
                and (line is None or (row.source is not None and row.source.line == line))
                and (symbol is None or row.symbol == symbol)
            )
        )

    def to_json(self, *, indent: int | None = None) -> str:
        """The rows as a JSON list; facts that JSON has no form for are their `repr`."""
        return json.dumps([_plain_row(row) for row in self.rows], indent=indent, default=repr)

    def __str__(self) -> str:
        table = _table([_COLUMNS, *(_cells(row) for row in self.rows)])
        return "\n".join([table, *(f"baked in: {edge}" for edge in self.baked)])

    def __len__(self) -> int:
        return len(self.rows)


def _plain_row(row: LedgerRow) -> dict[str, Any]:
    source = row.source._asdict() if row.source is not None else None
    return {**asdict(replace(row, source=None)), "source": source}


def _cells(row: LedgerRow) -> tuple[str, ...]:
    refusals = "; ".join(f"{r.executor}: {r.message}" for r in row.refusals)
    return (
        str(row.index),
        row.trace,
        row.symbol,
        ", ".join(row.outputs),
        row.claimed_by or "-",
        row.via,
        refusals,
        str(row.source) if row.source is not None else "",
    )


def _table(lines: Sequence[tuple[str, ...]]) -> str:
    """Text in columns; the first line is the head."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    head, *body = ["  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip() for row in lines]
    return "\n".join([head, "  ".join("-" * w for w in widths), *body])


def explain_placements(forward: Iterable[Placement], backward: Iterable[Placement] = ()) -> Explanation:
    """The ledger as its users see it."""
    rows: list[LedgerRow] = []
    for trace, placements in (("forward", forward), ("backward", backward)):
        for p in placements:
            rows.append(
                LedgerRow(
                    index=len(rows),
                    trace=trace,
                    symbol=p.symbol,
                    outputs=p.outputs,
                    claimed_by=p.claimed_by,
                    via=p.via,
                    refusals=tuple(RefusalRecord.of(name, refusal) for name, refusal in p.refusals),
                    source=p.source,
                )
            )
    return Explanation(tuple(rows))


def check_requirements(ledger: Explanation, require: Mapping[str, str]) -> None:
    """Raises RequirementNotMet, with the rows, unless each call of a symbol in `require` belongs to its
    executor.
    """
    for symbol, executor in require.items():
        missed = tuple(row for row in ledger.rows if row.symbol == symbol and row.claimed_by != executor)
        if missed:
            raise RequirementNotMet(
                f"{symbol} was to be run by executor {executor!r}, and {len(missed)} of its calls are not",
                found={"placement": "\n" + str(Explanation(missed))},
                where=[row.source for row in missed if row.source is not None],
                hint="The table says why; thunder.explain(fn) has the rest.",
                facts={"rows": missed},
            )
