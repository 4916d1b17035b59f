"""One report for all processes of a program: what each computes and communicates, on a time line.

    compute   ████████████ ██████ ░░░░ ██████      ░ waits for a collective
    network         ══════════════════             from the call to the end of its wait

Times are the means of measured statements. Without a measurement each statement has length 1, so that only
the order is shown.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from thunder_report.model import Entry, Program, Report

__all__ = ["other_ranks", "rank_of", "write_rank"]


def rank_of(report: Report, rank: int) -> dict[str, Any]:
    """Return what the page shows of a process: of each program with collectives, its most used entry."""
    programs = []
    for program in report.programs:
        used = max(program.entries, key=lambda entry: entry.uses, default=None)
        if used is not None and used.collectives:
            programs.append(_timeline(program, used))
    return {"rank": rank, "programs": programs}


def _timeline(program: Program, entry: Entry) -> dict[str, Any]:
    lengths = dict(_lengths(entry))
    starts: dict[tuple[str, int], float] = {}
    now = 0.0
    for place, length in lengths.items():
        starts[place] = now
        now += length
    waiting = {(call.trace, call.waited) for call in entry.collectives}
    network: list[dict[str, Any]] = [
        {
            "start": starts[call.trace, call.position],
            "end": starts[call.trace, call.waited] + lengths[call.trace, call.waited],
            "name": call.name,
            "group": call.group,
            "bytes": call.nbytes,
            "trace": call.trace,
        }
        for call in entry.collectives
    ]
    in_flight = _covered([(event["start"], event["end"]) for event in network])
    exposed = sum(lengths[place] for place in waiting)
    return {
        "name": program.name,
        "measured": bool(entry.measured),
        "total": now,
        "backward": next((starts[place] for place in starts if place[0] == "backward"), now),
        "compute": list(_blocks(starts, lengths, waiting)),
        "network": network,
        "in_flight": in_flight,
        "exposed": exposed,
    }


def _lengths(entry: Entry) -> Iterator[tuple[tuple[str, int], float]]:
    """Yield the time of each statement (ns), forward and then backward; 1 without a measurement."""
    for trace in entry.traces:
        if trace.name not in ("forward", "backward"):
            continue
        measured = entry.measured.get(trace.name, ())
        for position in range(len(trace.stages[-1].statements)):
            value = measured[position] if measured else None
            mean = value.total_ns / value.calls if value is not None else 0.0
            yield (trace.name, position), mean if entry.measured else 1.0


def _blocks(
    starts: Mapping[tuple[str, int], float],
    lengths: Mapping[tuple[str, int], float],
    waiting: set[tuple[str, int]],
) -> Iterator[list[Any]]:
    """Yield start, end and whether it waits, of neighbouring statements together."""
    block: list[Any] | None = None
    for place, start in starts.items():
        waits = place in waiting
        if block is not None and block[2] == waits:
            block[1] = start + lengths[place]
            continue
        if block is not None:
            yield block
        block = [start, start + lengths[place], waits]
    if block is not None:
        yield block


def _covered(intervals: Sequence[tuple[float, float]]) -> float:
    """Return the length of a union of intervals."""
    covered, reached = 0.0, float("-inf")
    for start, end in sorted(intervals):
        covered += max(0.0, end - max(start, reached))
        reached = max(reached, end)
    return covered


def write_rank(path: Path, rank: Mapping[str, Any], run: str) -> None:
    """Write what other processes are told beside a page, for `other_ranks` of the same run."""
    target = _beside(path, rank["rank"])
    written = target.with_suffix(".part")
    written.write_text(json.dumps({"run": run, **rank}), encoding="utf-8")
    written.replace(target)  # a reader sees all of it or nothing


def other_ranks(path: Path, count: int, run: str, seconds: float = 60) -> Iterator[dict[str, Any]]:
    """Yield what the other processes of a run of `count` wrote beside a page, and remove it.

    Waits up to `seconds` for all of them; those that ended without writing are left out.
    """
    end = time.monotonic() + seconds
    for rank in range(1, count):
        target = _beside(path, rank)
        while (found := _read(target, run)) is None and time.monotonic() < end:
            time.sleep(0.05)
        if found is not None:
            target.unlink()
            yield found


def _read(path: Path, run: str) -> dict[str, Any] | None:
    if not path.is_file():
        return None
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found if found.pop("run") == run else None


def _beside(path: Path, rank: int) -> Path:
    return path.with_name(f"{path.name}.rank-{rank}.json")
