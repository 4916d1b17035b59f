"""Measurement of tables: each way in processes of its own, all ways of a row in turn."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .tables import Table
from .ways import WAYS
from .worker_process import Failure, Interpreters, Worker

__all__ = ["Entry", "Plan", "measure"]

Values = dict[str, Any]


@dataclass(frozen=True)
class Entry:
    """Values measured of a way in a row, or the reason why there are none (`failed`)."""

    workload: str
    dtype: str
    mode: str
    way: str
    values: Values
    failed: str | None = None


@dataclass(frozen=True)
class Plan:
    """A table with what the command line chose of it; `jobs` ways are compiled at once."""

    table: Table
    workloads: Sequence[str]
    dtypes: Sequence[str]
    modes: Sequence[str]
    ways: Sequence[str]
    rounds: int
    interpreters: Interpreters
    caches: Path
    jobs: int
    report: Callable[[str], None]

    def ways_of(self, mode: str) -> list[str]:
        """Return the ways that a mode has."""
        return [way for way in self.ways if mode == "inference" or not WAYS[way].inference_only]


def measure(plan: Plan) -> Iterator[Entry]:
    """Yield what is measured of each way, row by row."""
    measured = {"time": _times, "first call": _first_calls, "memory": _memory}[plan.table.measured]
    for workload in plan.workloads:
        yield from measured(plan, workload)


def _times(plan: Plan, workload: str) -> Iterator[Entry]:
    """Yield times of the calls of a workload: rounds in which each way makes some calls in turn."""
    with ExitStack() as stack:
        workers, absent = _start(plan, workload, stack)
        for dtype in plan.dtypes:
            for mode in plan.modes:
                plan.report(f"{workload}, {dtype}, {mode}: compiling")
                failures = {way: why for way, why in absent.items() if way in plan.ways_of(mode)}
                values: dict[str, Values] = {}

                def prepare(way: str, dtype: str = dtype, mode: str = mode) -> Values:
                    return workers[way].ask("prepare", workload=workload, dtype=dtype, mode=mode)

                chosen = [way for way in plan.ways_of(mode) if way in workers]
                for way, outcome in _all(prepare, chosen, plan.jobs):
                    if isinstance(outcome, Failure):
                        failures[way] = str(outcome)
                    else:
                        values[way] = outcome
                plan.report(f"{workload}, {dtype}, {mode}: measuring")
                _rounds(plan, workers, values, failures)
                for way in plan.ways_of(mode):
                    yield Entry(workload, dtype, mode, way, values.get(way, {}), failures.get(way))


def _start(plan: Plan, workload: str, stack: ExitStack) -> tuple[dict[str, Worker], dict[str, str]]:
    """Start a worker for each way; return those, and why there is none for the others."""
    workers: dict[str, Worker] = {}
    absent: dict[str, str] = {}
    for way in plan.ways:
        try:
            workers[way] = stack.enter_context(Worker(plan.interpreters, way, plan.caches))
        except Failure as failure:
            absent[way] = str(failure)
    return workers, absent


def _all(
    function: Callable[[str], Values], ways: Sequence[str], jobs: int
) -> Iterator[tuple[str, Values | Failure]]:
    """Yield what a function returns for each way, or its failure; some run at once."""

    def attempt(way: str) -> Values | Failure:
        try:
            return function(way)
        except Failure as failure:
            return failure

    with ThreadPoolExecutor(jobs) as pool:
        yield from zip(ways, pool.map(attempt, ways), strict=True)


def _rounds(
    plan: Plan, workers: dict[str, Worker], values: dict[str, Values], failures: dict[str, str]
) -> None:
    """Add the times of each round to the values of each way; the order changes from round to round."""
    for way in list(values):
        try:
            values[way] |= workers[way].ask("warm_up", budget_us=plan.table.budget_us)
            values[way]["us"] = []
        except Failure as failure:
            failures[way] = str(failure)
            del values[way]
    ways = list(values)
    for number in range(plan.rounds):
        first = number % max(len(ways), 1)
        for way in (*ways[first:], *ways[:first]):
            if way not in failures:
                try:
                    values[way]["us"].append(workers[way].ask("time")["us"])
                except Failure as failure:
                    failures[way] = str(failure)
                    del values[way]


def _first_calls(plan: Plan, workload: str) -> Iterator[Entry]:
    """Yield the CPU time of first results, imports included: with empty caches, and in the next process."""
    for dtype in plan.dtypes:
        for mode in plan.modes:
            plan.report(f"{workload}, {dtype}, {mode}: compiling in new processes")

            def measured(way: str, dtype: str = dtype, mode: str = mode) -> Values:
                seconds: dict[str, list[float]] = {"cold_s": [], "warm_s": []}
                for _ in range(plan.rounds):
                    with tempfile.TemporaryDirectory(prefix="thunder-benchmarks-") as folder:
                        for values in seconds.values():
                            with Worker(plan.interpreters, way, Path(folder)) as worker:
                                reply = worker.ask("prepare", workload=workload, dtype=dtype, mode=mode)
                            values.append(reply["imports_s"] + reply["first_s"])
                return dict(seconds)

            yield from _entries(plan, (workload, dtype, mode), measured)


def _memory(plan: Plan, workload: str) -> Iterator[Entry]:
    """Yield the bytes of a step of each way. They are exact, so there are no rounds."""
    for dtype in plan.dtypes:
        for mode in plan.modes:
            plan.report(f"{workload}, {dtype}, {mode}: compiling and measuring")

            def measured(way: str, dtype: str = dtype, mode: str = mode) -> Values:
                with Worker(plan.interpreters, way, plan.caches) as worker:
                    reply = worker.ask("prepare", workload=workload, dtype=dtype, mode=mode)
                    return reply | worker.ask("memory")

            yield from _entries(plan, (workload, dtype, mode), measured)


def _entries(plan: Plan, row: tuple[str, str, str], measured: Callable[[str], Values]) -> Iterator[Entry]:
    """Yield what a function measures of each way of a row, or its failure."""
    for way, outcome in _all(measured, plan.ways_of(row[2]), plan.jobs):
        if isinstance(outcome, Failure):
            yield Entry(*row, way, {}, str(outcome))
        else:
            yield Entry(*row, way, outcome)
