"""The placement ledger: the executor of each call, and the reasons of the others.

A reason is a refusal, or says why the executor was not consulted; :mod:`thunder.compiler.ledger_codes` lists
them.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, TextIO

from thunder.base.errors import InvalidArgument, RequirementNotMet, nearest
from thunder.compiler.compile_plan import CompileStep
from thunder.compiler.idle_extensions import idle_extensions
from thunder.compiler.ledger_rows import ExecutorReason, LedgerRow
from thunder.compiler.ledger_text import LedgerTable, as_rich_table, as_text, print_table, text_of
from thunder.compiler.skipped_executors import absent_executors, skipped_executors
from thunder.compiler.stats import CacheEntry
from thunder.compiler.unchanged_tensors import UnchangedTensor, unchanged_tensors
from thunder.executor_base.executor import Executor
from thunder.executor_base.fusion_executor import FusionExecutor
from thunder.extend.ledger_facts import ledger_facts
from thunder.frontend.traced_replacements import ReplacedFunction
from thunder.passes.below_autograd import BelowAutograd
from thunder.passes.notes import Note
from thunder.passes.placement import Placement
from thunder.passes.transform import Transform
from thunder.passes.write_in_place import InputWrite

__all__ = ["ExecutorReason", "Explanation", "LedgerRow", "check_requirements", "explain_placements"]


@dataclass(frozen=True, repr=False)
class Explanation:
    """The ledger of a compile: `str()` is a table, `to_json()` the same facts as JSON.

    `show()` prints the table, in colours if the stream is a terminal and the library rich is installed.
    """

    rows: tuple[LedgerRow, ...]
    #: what was read that could be neither guarded nor replayed, and is part of the program as it was
    baked: tuple[str, ...] = ()
    #: the functions in whose place lookasides were traced
    replaced: tuple[ReplacedFunction, ...] = ()
    #: what stages and transforms of packages noted about the program
    notes: tuple[Note, ...] = ()
    #: the inputs that the program writes: in place, or by a copy and why
    writes: tuple[InputWrite, ...] = ()
    #: which calls run below torch's autograd; None for a program with few calls
    below_autograd: BelowAutograd | None = None
    #: the executors that are not part of this compile, and why
    absent: tuple[ExecutorReason, ...] = ()
    #: the executors and transforms of the compile that have no effect, and why
    idle: tuple[ExecutorReason, ...] = ()
    #: the tensors of the module that transforms could not change, and why
    unchanged: tuple[UnchangedTensor, ...] = ()
    #: what the compile was tried with before, and why that was given up
    tried: tuple[CompileStep, ...] = ()
    #: the executor that `why_not` selected
    about: str | None = None

    @classmethod
    def of_entry(
        cls, entry: CacheEntry, executors: Sequence[Executor], transforms: Sequence[Transform]
    ) -> Explanation:
        """Return the ledger of a program compiled with these executors and transforms, in this order.

        It lacks the executors that are absent (`with_absent`).
        """
        explanation = explain_placements(entry.ledger, entry.backward_ledger, executors)
        return replace(
            explanation,
            rows=tuple(_with_region_facts(explanation.rows, entry)),
            baked=entry.baked,
            replaced=entry.replaced,
            notes=entry.notes,
            writes=entry.input_writes,
            below_autograd=entry.below_autograd,
            tried=tuple(step for step in entry.steps if step.why is not None),
            idle=idle_extensions(executors, transforms),
            unchanged=unchanged_tensors(transforms),
        )

    def with_absent(self, executors: Sequence[Executor]) -> Explanation:
        """Return the ledger of a compile with these executors with the reasons of all others.

        They are imported for that.
        """
        return replace(self, absent=absent_executors(executors))

    def why_not(self, executor: str, *, line: int | None = None, symbol: str | None = None) -> Explanation:
        """Return the rows that `executor` does not run, each with its reason.

        `line` and `symbol` restrict them to one line of the program or one symbol. Raises InvalidArgument,
        with the nearest name, for an executor that is neither part of this compile nor registered.
        """
        rows = [
            replace(row, refusals=_of(executor, row.refusals), skipped=_of(executor, row.skipped))
            for row in self.rows
            if (line is None or (row.source is not None and row.source.line == line))
            and (symbol is None or row.symbol == symbol)
        ]
        absent = _of(executor, self.absent)
        if not absent and executor not in self._executors():
            raise _unknown(executor, self._executors())
        if not absent:
            rows = [row for row in rows if row.refusals or row.skipped]
        return Explanation(tuple(rows), absent=absent, about=executor)

    def _executors(self) -> set[str]:
        """Return the names of all executors that the ledger mentions."""
        reasons = [r for row in self.rows for r in (*row.refusals, *row.skipped)] + list(self.absent)
        claims = {row.claimed_by for row in self.rows if row.claimed_by is not None}
        return claims | {reason.executor for reason in reasons}

    def to_json(self, *, indent: int | None = None) -> str:
        """Return the fields of the ledger, but `about`, as a JSON object.

        A fact that JSON cannot express is written as its `repr`.
        """
        facts = {
            "rows": [_plain_row(row) for row in self.rows],
            "notes": [{"note": type(note).__name__, **note.facts()} for note in self.notes],
            "writes": [asdict(write) for write in self.writes],
            "below_autograd": None if self.below_autograd is None else asdict(self.below_autograd),
            "absent": [asdict(reason) for reason in self.absent],
            "idle": [asdict(reason) for reason in self.idle],
            "replaced": [asdict(function) for function in self.replaced],
            "unchanged": [asdict(tensor) for tensor in self.unchanged],
            "tried": list(map(str, self.tried)),
            "baked": list(self.baked),
        }
        return json.dumps(facts, indent=indent, default=repr)

    def _table(self) -> LedgerTable:
        changes = (
            *(f"no effect: {text_of(reason)}" for reason in self.idle),
            *map(str, self.notes),
            *(f"given up: {step}" for step in self.tried),
            *(f"written: {write}" for write in self.writes),
            *(f"below autograd: {calls}" for calls in (self.below_autograd,) if calls is not None),
            *(f"replaced: {function}" for function in self.replaced),
            *(f"unchanged by {tensor.transform}: {tensor}" for tensor in self.unchanged),
        )
        return LedgerTable(self.rows, self.absent, self.baked, changes, shows_skipped=self.about is not None)

    def show(self, file: TextIO | None = None) -> None:
        """Print the table to `file`, by default to standard output."""
        print_table(self._table(), file or sys.stdout)

    def __rich__(self) -> Any:
        return as_rich_table(self._table())

    def __str__(self) -> str:
        return as_text(self._table())

    __repr__ = __str__

    def __len__(self) -> int:
        return len(self.rows)


def _of(executor: str, reasons: Iterable[ExecutorReason]) -> tuple[ExecutorReason, ...]:
    return tuple(reason for reason in reasons if reason.executor == executor)


def _unknown(executor: str, names: set[str]) -> InvalidArgument:
    close = nearest(executor, names)
    return InvalidArgument(
        f"executor {executor!r} is neither part of this compile nor registered",
        found={"known": ", ".join(sorted(names))},
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
    """Return the ledger of these placements, in a compile with these executors, in this order."""
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
                    refusals=tuple(ExecutorReason.of(name, refusal) for name, refusal in p.refusals),
                    skipped=skipped_executors(p, names),
                    cost=p.cost,
                    source=p.source,
                    inner=p.inner,
                    module=p.module,
                    facts=ledger_facts(p.bsym),
                )
            )
    return Explanation(tuple(rows))


def _with_region_facts(rows: Iterable[LedgerRow], entry: CacheEntry) -> Iterator[LedgerRow]:
    """Yield rows, those of calls in regions with what the executor shows of the region's function."""
    facts: dict[tuple[str, str], Mapping[str, Any]] = {}
    for name, traces in (("forward", entry.computation_traces), ("backward", entry.backward_traces)):
        for bsym in traces[-1].bound_symbols if traces else ():
            executor = bsym.sym.executor
            if bsym.sym.is_fusion and isinstance(executor, FusionExecutor):
                shown = executor.region_facts(bsym.sym.python_impl)
                parts = (p.name for part in bsym.subsymbols for p in part.flat_proxy_outs)
                facts.update({(name, part): shown for part in parts if shown})
    for row in rows:
        shown = facts.get((row.trace, row.outputs[0]), {}) if row.via == "fusion" and row.outputs else {}
        yield replace(row, facts={**row.facts, **shown}) if shown else row


def check_requirements(ledger: Explanation, require: Mapping[str, str]) -> None:
    """Raise RequirementNotMet unless each symbol in `require` is run by its executor."""
    for symbol, executor in require.items():
        missed = tuple(row for row in ledger.rows if row.symbol == symbol and row.claimed_by != executor)
        if missed:
            raise RequirementNotMet(
                f"{symbol} must be run by executor {executor!r}, and {len(missed)} of its calls are not",
                found={"placement": "\n" + str(Explanation(missed))},
                where=[row.source for row in missed if row.source is not None],
                hint="The table has the reasons; thunder.explain(fn) has the whole ledger.",
                facts={"rows": missed},
            )
