"""The placement ledger of a compile: who runs each call, why each executor that was asked before does not,
and why others were not asked.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, TextIO

from thunder.base.errors import InvalidArgument, RequirementNotMet, nearest
from thunder.compiler.ledger_records import LedgerRow, RefusalRecord
from thunder.compiler.ledger_text import as_rich_table, as_text, print_table
from thunder.compiler.skipped_executors import absent_executors, unasked_of
from thunder.compiler.stats import CacheEntry
from thunder.executor_base.executor import Executor
from thunder.passes.placement import Placement

__all__ = ["Explanation", "LedgerRow", "RefusalRecord", "check_requirements", "explain_placements"]


@dataclass(frozen=True, repr=False)
class Explanation:
    """The ledger of a compile: `str()` is a table, `rows` the records, `to_json()` the same facts as JSON.

    `show()` prints the table, in colours where a terminal and the library rich are there.
    """

    rows: tuple[LedgerRow, ...]
    #: what was read that could be neither guarded nor replayed, and is part of the program as it was
    baked: tuple[str, ...] = ()
    #: executors that this compile did not ask about anything, and why
    absent: tuple[RefusalRecord, ...] = ()
    #: the executor that `why_not` was asked about
    about: str | None = None

    @classmethod
    def of_entry(cls, entry: CacheEntry, executors: Sequence[Executor]) -> Explanation:
        """The ledger of a compiled program, whose executors were these, in this order."""
        found = explain_placements(entry.ledger, entry.backward_ledger, executors)
        return replace(found, baked=entry.baked, absent=absent_executors(executors))

    def why_not(self, executor: str, *, line: int | None = None, symbol: str | None = None) -> Explanation:
        """The rows that `executor` does not run, each with its reason, of one line of the program or one
        symbol if given.

        Raises InvalidArgument, with the nearest name, for an executor that nobody knows.
        """
        rows = [
            replace(row, refusals=_of(executor, row.refusals), not_asked=_of(executor, row.not_asked))
            for row in self.rows
            if (line is None or (row.source is not None and row.source.line == line))
            and (symbol is None or row.symbol == symbol)
        ]
        absent = _of(executor, self.absent)
        if not absent and executor not in self._known():
            raise _unknown(executor, self._known())
        kept = rows if absent else [row for row in rows if row.refusals or row.not_asked]
        return Explanation(tuple(kept), absent=absent, about=executor)

    def _known(self) -> set[str]:
        records = [r for row in self.rows for r in (*row.refusals, *row.not_asked)] + list(self.absent)
        claims = {row.claimed_by for row in self.rows if row.claimed_by is not None}
        return claims | {record.executor for record in records}

    def to_json(self, *, indent: int | None = None) -> str:
        """`rows`, `absent` and `baked` as a JSON object; facts that JSON has no form for are their `repr`."""
        facts = {
            "rows": [_plain_row(row) for row in self.rows],
            "absent": [asdict(record) for record in self.absent],
            "baked": list(self.baked),
        }
        return json.dumps(facts, indent=indent, default=repr)

    def show(self, file: TextIO | None = None) -> None:
        """Prints the table to `file`, standard output if none is given."""
        print_table(self, file or sys.stdout)

    def __rich__(self) -> Any:
        return as_rich_table(self)

    def __str__(self) -> str:
        return as_text(self)

    __repr__ = __str__

    def __len__(self) -> int:
        return len(self.rows)


def _of(executor: str, records: Iterable[RefusalRecord]) -> tuple[RefusalRecord, ...]:
    return tuple(record for record in records if record.executor == executor)


def _unknown(executor: str, known: set[str]) -> InvalidArgument:
    close = nearest(executor, known)
    return InvalidArgument(
        f"executor {executor!r} was not asked about anything in this compile, and is none that is registered",
        found={"known": ", ".join(sorted(known))},
        hint=f"Did you mean {close!r}?" if close else "Is it in executors=?",
    )


def _plain_row(row: LedgerRow) -> dict[str, Any]:
    lines = {
        name: line._asdict() if line is not None else None
        for name, line in (("source", row.source), ("inner", row.inner))
    }
    return {**asdict(replace(row, source=None, inner=None)), **lines}


def explain_placements(
    forward: Iterable[Placement], backward: Iterable[Placement] = (), executors: Sequence[Executor] = ()
) -> Explanation:
    """The ledger as its users see it, of a compile with these executors, in this order."""
    names = [executor.name for executor in executors]
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
                    not_asked=unasked_of(p, names),
                    source=p.source,
                    inner=p.inner,
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
