"""The times of a report as events for Chrome's tracing and Perfetto (the Trace Event Format)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from thunder_report.model import Entry, Report

__all__ = ["chrome_trace"]


def chrome_trace(report: Report) -> dict[str, Any]:
    """Return the object that `json.dump` writes for `ui.perfetto.dev` and `chrome://tracing`.

    A program is a process there. It has three threads: the stages of its compiles, one after the other, and
    the statements of forward and backward of each entry, in the order in which they run. A statement is as
    long as the mean of its measured calls, else as its estimate; without both it is left out. The bytes that
    are alive are a counter. Times are in microseconds.
    """
    events: list[dict[str, Any]] = []
    for number, program in enumerate(report.programs, 1):
        about = {"ph": "M", "pid": number, "ts": 0}
        events.append({**about, "name": "process_name", "args": {"name": program.name}})
        for thread, name in enumerate(("compile", "forward", "backward"), 1):
            events.append({**about, "tid": thread, "name": "thread_name", "args": {"name": name}})
        start = 0.0
        for entry in program.entries:
            start = _extend(events, _stages(entry, number, start))
        for entry in program.entries:
            for thread, name in enumerate(("forward", "backward"), 2):
                start = _extend(events, _statements(entry, name, number, thread, start))
    return {"traceEvents": events, "displayTimeUnit": "ns"}


def _extend(events: list[dict[str, Any]], found: Iterator[dict[str, Any]]) -> float:
    """Append events, of which the last has the time at which the next may begin; return that time."""
    *added, last = found
    events += added
    return float(last["ts"])


def _stages(entry: Entry, pid: int, start: float) -> Iterator[dict[str, Any]]:
    now = start
    for name, ns in entry.compile.stage_ns.items() if entry.compile is not None else ():
        args = {"entry": entry.number}
        yield {"ph": "X", "pid": pid, "tid": 1, "name": name, "ts": now, "dur": ns / 1e3, "args": args}
        now += ns / 1e3
    yield {"ts": now}


def _statements(entry: Entry, name: str, pid: int, tid: int, start: float) -> Iterator[dict[str, Any]]:
    now = start
    trace = next((trace for trace in entry.traces if trace.name == name), None)
    measured, costs = entry.measured.get(name, ()), entry.costs.get(name, ())
    alive = () if entry.memory is None else getattr(entry.memory, name)
    for position, number in enumerate(trace.stages[-1].statements if trace is not None else ()):
        statement = entry.statements[number]
        time = measured[position] if measured else None
        cost = costs[position] if costs else None
        ns = time.total_ns / time.calls if time is not None else cost.ns if cost is not None else None
        if ns is None:
            continue
        args: dict[str, Any] = {"text": statement.text, "entry": entry.number, "measured": time is not None}
        if statement.place >= 0 and entry.places[statement.place].module:
            args["module"] = entry.places[statement.place].module
        if cost is not None:
            args |= {"flops": cost.flops, "bytes": cost.nbytes}
        label = statement.symbol.rpartition(".")[2]
        yield {"ph": "X", "pid": pid, "tid": tid, "name": label, "ts": now, "dur": ns / 1e3, "args": args}
        yield {"ph": "C", "pid": pid, "name": "alive", "ts": now, "args": {"bytes": alive[position]}}
        now += ns / 1e3
    yield {"ts": now}
