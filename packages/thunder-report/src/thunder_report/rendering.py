"""A report as one page: a template of Jinja2, with style, scripts and data inside.

The data are JSON in `<script type="application/json">` elements, one for each entry, which the page parses
when an entry is first shown. `<` is written as an escape there, so no text of a program ends its element.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape
from markupsafe import Markup

from thunder_report.model import Entry, Program, Report
from thunder_report.trace_events import chrome_trace

__all__ = ["render"]

#: the scripts of the page, in their order
SCRIPTS = ("kit", "charts", "program", "executors", "compiles", "memory", "time", "ranks", "main")


def render(report: Report) -> str:
    """Return the page, which refers to no other file and to no address."""
    environment = Environment(
        loader=PackageLoader("thunder_report"),
        autoescape=select_autoescape(default=True, default_for_string=True),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    templates = files("thunder_report") / "templates"
    entries = {
        f"entry-{p}-{e}": _json(_entry(entry))
        for p, program in enumerate(report.programs)
        for e, entry in enumerate(program.entries)
    }
    return environment.get_template("report.html").render(
        report=report,
        style=Markup((templates / "report.css").read_text(encoding="utf-8")),
        script=Markup("\n".join((templates / f"{name}.js").read_text(encoding="utf-8") for name in SCRIPTS)),
        summary=_json(_summary(report)),
        entries=entries,
        events=_json(chrome_trace(report)),
    )


def _json(value: Any) -> Markup:
    """Return a value as JSON that no HTML parser takes for a tag, and no script for the end of a line."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Markup(text)


def _summary(report: Report) -> dict[str, Any]:
    return {
        "title": report.title,
        "facts": dict(report.facts),
        "notes": report.notes,
        "programs": [_program(program) for program in report.programs],
        "files": [asdict(file) for file in report.files],
        **report.extra,
    }


def _program(program: Program) -> dict[str, Any]:
    about = {name: getattr(program, name) for name in _PROGRAM}
    about["failures"] = [asdict(failure) for failure in program.failures]
    about["entries"] = [_headline(entry) for entry in program.entries]
    return about


_PROGRAM = ("name", "place", "calls", "hits", "misses", "python_runs", "cache", "executors", "transforms")


def _headline(entry: Entry) -> dict[str, Any]:
    """Return what the page shows of an entry before it is chosen."""
    memory = entry.memory
    return {
        "number": entry.number,
        "uses": entry.uses,
        "compile": None if entry.compile is None else asdict(entry.compile),
        "compile_ns": entry.compile_ns,
        "statements": {trace.name: len(trace.stages[-1].statements) for trace in entry.traces},
        "peak": None if memory is None else memory.peak,
        "saved": None if memory is None else sum(tensor.nbytes for tensor in memory.saved),
        "inputs": None if memory is None else memory.inputs,
        "decisions": [asdict(decision) for decision in entry.decisions],
        "sizes": [asdict(size) for size in entry.sizes],
        "guards": len(entry.guards),
        "executors": _counts(entry),
    }


def _counts(entry: Entry) -> dict[str, int]:
    counts: dict[str, int] = {}
    for row in entry.ledger:
        name = row.claimed_by or row.via
        counts[name] = counts.get(name, 0) + 1
    return counts


def _entry(entry: Entry) -> dict[str, Any]:
    """Return an entry with its tables as lists, in which repeated texts are numbers."""
    symbols, executors, kinds = _Numbers(), _Numbers(), _Numbers()
    rows = [
        [s.text, symbols(s.symbol), s.place, executors(s.executor), kinds(s.kind), list(s.parts)]
        for s in entry.statements
    ]
    return {
        "number": entry.number,
        "rows": rows,
        "symbols": list(symbols.texts),
        "executors": list(executors.texts),
        "kinds": list(kinds.texts),
        "places": [[p.file, p.line, p.inner, p.module] for p in entry.places],
        "traces": [asdict(trace) for trace in entry.traces],
        "ledger": [asdict(row) for row in entry.ledger],
        "reasons": entry.reasons,
        "absent": entry.absent,
        "notes": entry.notes,
        "guards": [[g.fact, g.expected, g.source] for g in entry.guards],
        "memory": None if entry.memory is None else asdict(entry.memory),
        "costs": _columns(entry.costs, lambda c: [c.flops, c.nbytes, c.ns]),
        "measured": _columns(entry.measured, lambda m: [m.calls, m.total_ns, m.shortest_ns]),
        "machine": entry.machine,
        "rates": entry.rates,
    }


def _columns(values: Mapping[str, tuple[Any, ...]], row: Callable[[Any], list[Any]]) -> dict[str, list[Any]]:
    return {name: [None if v is None else row(v) for v in column] for name, column in values.items()}


class _Numbers:
    """Texts, each with the number of its first use."""

    def __init__(self) -> None:
        self.texts: dict[str, int] = {}

    def __call__(self, text: str) -> int:
        return self.texts.setdefault(text, len(self.texts))
