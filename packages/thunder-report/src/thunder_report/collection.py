"""From compiled objects to the data of a report."""

from __future__ import annotations

import platform
from collections.abc import Iterable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import torch

import thunder
from thunder import CompileData, CompileStats
from thunder.core.entries import CacheEntry, own_name
from thunder.core.errors import NotCompiled
from thunder.examine import Explanation
from thunder_report.entries import entry_of
from thunder_report.model import (
    Decision,
    Entry,
    Guard,
    Program,
    Report,
    Size,
)
from thunder_report.records import failures_of, record_of, short_text
from thunder_report.sources import SourceFiles

__all__ = ["collect", "collect_programs"]

#: facts of a guard that are shown of each entry, at most
_GUARDS = 20_000


def collect(*compiled: Any, title: str | None = None) -> Report:
    """Return the data of a report on compiled objects and plans, of `thunder.jit` and `thunder.plan`.

    Raises NotCompiled for another object.
    """
    programs: list[tuple[CompileData, CompileStats] | thunder.Plan] = []
    for fn in compiled:
        if isinstance(fn, thunder.Plan):
            programs.append(fn)
            continue
        data, stats = thunder.compile_data(fn), thunder.compile_stats(fn)
        if data is None or stats is None:
            raise NotCompiled(
                f"thunder.report received {type(fn).__qualname__}, which is not compiled",
                hint="Pass what thunder.jit or thunder.plan returned.",
            )
        programs.append((data, stats))
    return collect_programs(programs, title=title)


def collect_programs(
    programs: Sequence[tuple[CompileData, CompileStats] | thunder.Plan],
    *,
    title: str | None = None,
    notes: Iterable[str] = (),
) -> Report:
    """Return the data of a report on plans, and objects of which settings and statistics are given."""
    files = SourceFiles()
    collected = tuple(
        _plan(program, files) if isinstance(program, thunder.Plan) else _program(*program, files)
        for program in programs
    )
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
        name=_name_of(data.fn),
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
    record = record_of(entry)
    functions = {
        "forward": entry.computation_traces,
        "backward": entry.backward_traces,
        "prologue": entry.prologue_traces,
        "epilogue": entry.epilogue_traces,
    }
    explanation = Explanation.of_entry(entry, data.executors_list, data.transforms)
    return entry_of(
        functions,
        explanation.with_absent(data.executors_list),
        files,
        transforms=data.transforms,
        number=position if record is None else record.number,
        uses=entry.uses,
        compile=record,
        **_known(entry),
    )


def _known(entry: CacheEntry) -> dict[str, Any]:
    """Return what an entry depends on, as fields of that of a report."""
    return {
        "guards": tuple(
            Guard(str(fact), short_text(fact.expected), fact.path.source) for fact in entry.guards[:_GUARDS]
        ),
        "decisions": tuple(Decision(d.question_text, short_text(d.answer), d.place) for d in entry.decisions),
        "sizes": _sizes(entry),
    }


def _plan(plan: thunder.Plan, files: SourceFiles) -> Program:
    """Return a plan as a program of one entry that no call has used."""
    functions = {
        "forward": plan.traces,
        "backward": plan.backward_traces,
        "prologue": plan.prologue_traces,
        "epilogue": plan.epilogue_traces,
    }
    device = None if plan.device is None else plan.device.name
    name, place = "plan", ""
    known: dict[str, Any] = {"guards": (), "decisions": (), "sizes": ()}
    if plan.origin is not None:
        planned, compiler = plan.origin
        name, place, known = _name_of(compiler.data.fn), _place_of(compiler.data.fn), _known(planned)
    entry = entry_of(functions, plan.explain(), files, device=device, number=1, uses=0, compile=None, **known)
    return Program(
        name=f"{name}, planned" if device is None else f"{name}, planned for {device}",
        place=place,
        calls=0,
        hits=0,
        misses=0,
        python_runs=0,
        cache="",
        executors=tuple(executor.name for executor in plan.executors),
        transforms=(),
        entries=(entry,),
    )


def _name_of(fn: Any) -> str:
    return own_name(fn, "__qualname__") or type(fn).__qualname__


def _sizes(entry: CacheEntry) -> tuple[Size, ...]:
    facts = [str(fact) for fact in entry.guards]
    found = [(source, True) for source in sorted(entry.free_sizes)]
    found += [(source, False) for source in sorted(entry.fixed_sizes)]
    return tuple(
        Size(source, is_free, tuple(fact for fact in facts if source in fact)) for source, is_free in found
    )
