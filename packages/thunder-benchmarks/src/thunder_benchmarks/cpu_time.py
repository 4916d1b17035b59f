"""The time of calls, and the CPU time of a process with the ones that it starts."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import median
from time import perf_counter_ns, process_time, process_time_ns

import torch

__all__ = ["calls_in", "interleaved", "microseconds", "tree_seconds"]


def microseconds(function: Callable[[], object], calls: int) -> float:
    """Return the time of one call of a function, in µs: the mean of some calls in a row.

    It is CPU time, but with several threads of torch the time that passes: threads that wait take CPU time.
    """
    clock = process_time_ns if torch.get_num_threads() == 1 else perf_counter_ns
    start = clock()
    for _ in range(calls):
        function()
    return (clock() - start) / 1e3 / calls


def calls_in(function: Callable[[], object], budget_us: float) -> int:
    """Return how many calls take about `budget_us`, at least one."""
    estimate = microseconds(function, 1)
    if estimate < budget_us / 20:
        microseconds(function, 20)
        estimate = microseconds(function, 20)
    return max(1, int(budget_us / max(estimate, 0.1)))


def interleaved(ways: Mapping[str, Callable[[], object]], rounds: int, budget_us: float) -> dict[str, float]:
    """Return the median CPU time of one call of each function, in µs.

    Each round times some calls of every function in turn, about `budget_us` of each, so that all meet the
    same state of the machine.
    """
    calls = {name: calls_in(function, budget_us) for name, function in ways.items()}
    times: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, function in ways.items():
            times[name].append(microseconds(function, calls[name]))
    return {name: median(values) for name, values in times.items()}


def tree_seconds() -> float:
    """Return the CPU time of this process and of all that it started, running or ended, in s.

    On Linux the running ones are read from `/proc`. Elsewhere only those count that have ended.
    """
    processes = Path("/proc")
    if not (processes / "self" / "stat").exists():
        return process_time() + sum(os.times()[2:4])
    ticks: dict[int, int] = {}
    children: defaultdict[int, list[int]] = defaultdict(list)
    for path in processes.glob("[0-9]*/stat"):
        try:
            fields = path.read_text(encoding="utf-8").rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):  # it ended meanwhile
            continue
        process = int(path.parent.name)
        ticks[process] = sum(map(int, fields[11:15]))  # user, system, and both of ended children
        children[int(fields[1])].append(process)
    # The clock of this process is finer than that of `/proc`.
    seconds = process_time() + sum(os.times()[2:4])
    waiting = list(children[os.getpid()])
    while waiting:
        process = waiting.pop()
        seconds += ticks[process] / os.sysconf("SC_CLK_TCK")
        waiting += children[process]
    return seconds
