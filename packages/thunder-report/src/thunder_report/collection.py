"""From compiled objects to the data of a report."""

from __future__ import annotations

import platform
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import torch

import thunder
from thunder import CompileData, CompileStats, TraceCtx
from thunder.core.entries import CacheEntry, own_name
from thunder.core.errors import NotCompiled
from thunder.core.symbol import BoundSymbol
from thunder.examine import Explanation
from thunder_distributed.roofline import flops_of
from thunder_report.costs import bytes_of_call, costs_of, machine_of
from thunder_report.measurement import MeasureTransform
from thunder_report.memory import memory_of
from thunder_report.model import (
    Decision,
    Entry,
    Guard,
    LedgerLine,
    Measured,
    Program,
    Report,
    Size,
)
from thunder_report.records import failures_of, record_of, short_text
from thunder_report.sources import SourceFiles
from thunder_report.statements import StatementTable, producers, shown_statements
from thunder_transforms.profile_transform import ProfileTransform

__all__ = ["collect", "collect_programs"]

#: facts of a guard that are shown of each entry, at most
_GUARDS = 20_000


def collect(*compiled: Any, title: str | None = None) -> Report:
    """Return the data of a report on compiled objects, as `thunder.jit` returns them.

    Raises NotCompiled for another object.
    """
    programs = []
    for fn in compiled:
        data, stats = thunder.compile_data(fn), thunder.compile_stats(fn)
        if data is None or stats is None:
            raise NotCompiled(
                f"thunder.report received {type(fn).__qualname__}, which is not compiled",
                hint="Pass what thunder.jit returned.",
            )
        programs.append((data, stats))
    return collect_programs(programs, title=title)


def collect_programs(
    programs: Sequence[tuple[CompileData, CompileStats]],
    *,
    title: str | None = None,
    notes: Iterable[str] = (),
) -> Report:
    """Return the data of a report on objects of which the settings and statistics are given."""
    files = SourceFiles()
    collected = tuple(_program(data, stats, files) for data, stats in programs)
    return Report(
        title=title
        or ", ".join(dict.fromkeys(program.name for program in collected))
        or "nothing was compiled",
        facts=_facts(),
        programs=collected,
        files=files.collected(),
        notes=tuple(notes),
    )


def _facts() -> dict[str, str]:
    return {
        "made": datetime.now().strftime("%Y-%m-%d %H:%M"),
        "thunder": thunder.__version__,
        "torch": torch.__version__,
        "Python": platform.python_version(),
        "device": torch.cuda.get_device_name()
        if torch.cuda.is_available()
        else f"CPU ({platform.machine()})",
    }


def _program(data: CompileData, stats: CompileStats, files: SourceFiles) -> Program:
    entries = list(stats.interpreter_cache)
    if stats.last_entry is not None and all(e is not stats.last_entry for e in entries):
        entries.append(stats.last_entry)
    return Program(
        name=own_name(data.fn, "__qualname__") or type(data.fn).__qualname__,
        place=_place_of(data.fn),
        calls=stats.calls,
        hits=stats.cache_hits,
        misses=stats.cache_misses,
        python_runs=stats.runs_by_python,
        cache=data.cache_option.value,
        executors=tuple(executor.name for executor in data.executors_list),
        transforms=tuple(type(transform).__name__ for transform in data.transforms),
        entries=tuple(_entry(entry, number, data, files) for number, entry in enumerate(entries, 1)),
        failures=failures_of(stats),
    )


def _place_of(fn: Any) -> str:
    """Return the file and the line at which a function, or the forward of a module, is defined."""
    function = type(fn).forward if isinstance(fn, torch.nn.Module) else fn
    code = getattr(getattr(function, "__func__", function), "__code__", None)
    return "" if code is None else f"{Path(code.co_filename).name}:{code.co_firstlineno}"


def _entry(entry: CacheEntry, position: int, data: CompileData, files: SourceFiles) -> Entry:
    table = StatementTable(files)
    record = record_of(entry)
    functions = {
        "forward": entry.computation_traces,
        "backward": entry.backward_traces,
        "prologue": entry.prologue_traces,
        "epilogue": entry.epilogue_traces,
    }
    traces = tuple(table.trace(name, found) for name, found in functions.items() if found)
    final = {name: functions[name][-1] for name in ("forward", "backward") if functions[name]}
    times, nbytes = _measured(final, data.transforms)
    rated = machine_of(final.values(), measures=bool(times))
    explanation = Explanation.of_entry(entry, data.executors_list, data.transforms)
    rows, reasons = _ledger(explanation, table, final)
    return Entry(
        number=position if record is None else record.number,
        uses=entry.uses,
        compile=record,
        guards=tuple(
            Guard(str(fact), short_text(fact.expected), fact.path.source) for fact in entry.guards[:_GUARDS]
        ),
        decisions=tuple(Decision(d.question_text, short_text(d.answer), d.place) for d in entry.decisions),
        sizes=_sizes(entry),
        traces=traces,
        ledger=rows,
        reasons=reasons,
        notes=_notes(explanation),
        absent=tuple(
            (r.executor, r.code, r.message) for r in explanation.with_absent(data.executors_list).absent
        ),
        memory=memory_of(table, final["forward"], final.get("backward"), nbytes),
        costs={name: costs_of(trace, rated.machine) for name, trace in final.items()},
        measured=times,
        machine=rated.text,
        rates=rated.rates,
        places=table.places,
        statements=table.statements,
    )


def _sizes(entry: CacheEntry) -> tuple[Size, ...]:
    facts = [str(fact) for fact in entry.guards]
    found = [(source, True) for source in sorted(entry.free_sizes)]
    found += [(source, False) for source in sorted(entry.fixed_sizes)]
    return tuple(
        Size(source, is_free, tuple(fact for fact in facts if source in fact)) for source, is_free in found
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
                None if part is None else bytes_of_call(part),
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
