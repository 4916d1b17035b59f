"""From the traces and the ledger of a compiled program to an entry of a report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from thunder import TraceCtx
from thunder.core.symbol import BoundSymbol
from thunder.examine import Explanation
from thunder_distributed.roofline import flops_of
from thunder_report.collectives import collectives_in
from thunder_report.costs import bytes_of_call, costs_of, machine_of
from thunder_report.measurement import MeasureTransform
from thunder_report.memory import memory_of
from thunder_report.model import Entry, LedgerLine, Measured
from thunder_report.records import short_text
from thunder_report.sources import SourceFiles
from thunder_report.statements import StatementTable, kind_of, producers, shown_statements
from thunder_transforms.profile_transform import ProfileTransform

__all__ = ["entry_of"]


def entry_of(
    functions: Mapping[str, Sequence[TraceCtx]],
    explanation: Explanation,
    files: SourceFiles,
    *,
    transforms: Sequence[Any] = (),
    device: str | None = None,
    **known: Any,
) -> Entry:
    """Return an entry of these functions, each stage by stage, with its ledger.

    `functions` has `forward`, and may have `backward`, `prologue` and `epilogue`. `device` is the profile for
    which the program was planned; `known` are the fields of an entry that its traces do not say.
    """
    table = StatementTable(files)
    traces = tuple(table.trace(name, found) for name, found in functions.items() if found)
    final = {name: functions[name][-1] for name in ("forward", "backward") if functions.get(name)}
    times, nbytes = _measured(final, transforms)
    rated = machine_of(final.values(), measures=bool(times), device=device)
    rows, reasons = _ledger(explanation, table, final)
    return Entry(
        traces=traces,
        ledger=rows,
        reasons=reasons,
        notes=_notes(explanation),
        absent=tuple((r.executor, r.code, r.message) for r in explanation.absent),
        memory=memory_of(table, final["forward"], final.get("backward"), nbytes),
        costs={name: costs_of(trace, rated.machine) for name, trace in final.items()},
        measured=times,
        collectives=tuple(call for name, trace in final.items() for call in collectives_in(trace, name)),
        machine=rated.text,
        rates=rated.rates,
        places=table.places,
        statements=table.statements,
        **known,
    )


def _notes(explanation: Explanation) -> tuple[str, ...]:
    """Return what the ledger says beside its rows, a sentence each."""
    return (
        *(f"no effect: {r.executor}: {r.message}" for r in explanation.idle),
        *map(str, explanation.notes),
        *(f"given up: {step}" for step in explanation.tried),
        *(f"written: {write}" for write in explanation.writes),
        *(f"below autograd: {calls}" for calls in (explanation.below_autograd,) if calls is not None),
        *(f"replaced: {function}" for function in explanation.replaced),
        *(f"unchanged by {tensor.transform}: {tensor}" for tensor in explanation.unchanged),
        *(f"baked in: {edge}" for edge in explanation.baked),
    )


def _ledger(
    explanation: Explanation, table: StatementTable, final: Mapping[str, TraceCtx]
) -> tuple[tuple[LedgerLine, ...], tuple[tuple[str, str, str], ...]]:
    """Return the rows of a ledger, and the reasons that they name by number."""
    computed = {name: producers(trace.bound_symbols) for name, trace in final.items()}
    numbers: dict[tuple[str, str, str], int] = {}

    def number(reason: Any) -> int:
        return numbers.setdefault((reason.executor, reason.code, reason.message), len(numbers))

    rows = []
    for row in explanation.rows:
        found = (computed.get(row.trace, {}).get(name) for name in row.outputs)
        statement, part = next((pair for pair in found if pair is not None), (None, None))
        place = -1
        if row.source is not None:
            below = "" if row.inner is None else f"{Path(row.inner.file).name}:{row.inner.line}"
            place = table.place(row.source.file, row.source.line, below, row.module)
        rows.append(
            LedgerLine(
                row.trace,
                row.symbol,
                row.outputs,
                row.claimed_by or "",
                row.via,
                _region(statement),
                tuple(map(number, row.refusals)),
                tuple(map(number, row.skipped)),
                place,
                {name: short_text(value) for name, value in row.facts.items()},
                None if part is None else flops_of(part),
                None if part is None or kind_of(part) == "view" else bytes_of_call(part),
            )
        )
    return tuple(rows), tuple(numbers)


def _region(statement: BoundSymbol | None) -> str:
    return statement.sym.name if statement is not None and statement.sym.is_fusion else ""


def _measured(
    final: Mapping[str, TraceCtx], transforms: Sequence[Any]
) -> tuple[dict[str, tuple[Measured | None, ...]], dict[str, tuple[int | None, ...]]]:
    """Return the measured times and bytes of the statements of final traces, if any."""
    times: dict[str, tuple[Measured | None, ...]] = {}
    nbytes: dict[str, tuple[int | None, ...]] = {}
    for transform in transforms:
        for name, trace in final.items():
            positions = [i for i, _ in shown_statements(trace)]
            if isinstance(transform, ProfileTransform) and (found := transform.times_of(trace)):
                times[name] = tuple(
                    Measured(t.calls, t.total_ns, t.shortest_ns) if (t := found.get(i)) else None
                    for i in positions
                )
            if isinstance(transform, MeasureTransform) and (alive := transform.bytes_of(trace)):
                nbytes[name] = tuple(alive.get(i) for i in positions)
    return times, nbytes
