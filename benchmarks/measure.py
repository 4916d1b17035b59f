"""What the benchmarks share: facts of the machine, tables, and measurements in fresh processes."""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from time import process_time_ns
from typing import Any

import torch


def command_line(description: str | None) -> argparse.ArgumentParser:
    """A parser whose help is the text at the top of the script, as it stands there."""
    return argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )


def one_thread() -> None:
    """CPU time means something only if no second thread spins beside the measured one."""
    torch.set_num_threads(1)


def machine_facts() -> str:
    """One line to print above every table."""
    return (
        f"Python {platform.python_version()}, torch {torch.__version__}, {platform.machine()}, "
        f"{os.cpu_count()} CPUs, 1 thread, CPU time"
    )


def print_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Prints a markdown table with columns of equal width."""
    widths = [max(len(row[column]) for row in (head, *rows)) for column in range(len(head))]

    def line(cells: Sequence[str]) -> str:
        aligned = [cells[0].ljust(widths[0])]
        aligned += [cell.rjust(width) for cell, width in zip(cells[1:], widths[1:], strict=True)]
        return f"| {' | '.join(aligned)} |"

    print(line(head))
    print(f"|{'|'.join('-' * (width + 2) for width in widths)}|")
    for row in rows:
        print(line(row))


def in_fresh_process(script: str, *arguments: str) -> Any:
    """Runs `script arguments` in a process of its own and returns the JSON of its last line of output."""
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONHASHSEED": "0"}
    command = [sys.executable, str(Path(script).resolve()), *arguments]
    run = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(run.stdout.splitlines()[-1])


def interleaved(ways: dict[str, Callable[[], object]], repeats: int, budget_us: float) -> dict[str, float]:
    """Median CPU microseconds of one call of each function.

    Each repeat times one batch of calls of every function in turn, so that all meet the same state of the
    machine; a batch lasts about `budget_us` microseconds.
    """
    batches = {name: _batch(function, budget_us) for name, function in ways.items()}
    times: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(repeats):
        for name, function in ways.items():
            times[name].append(_microseconds(function, batches[name]))
    return {name: median(values) for name, values in times.items()}


def _batch(function: Callable[[], object], budget_us: float) -> int:
    for _ in range(20):
        function()
    return max(1, int(budget_us / max(_microseconds(function, 20), 0.1)))


def _microseconds(function: Callable[[], object], calls: int) -> float:
    start = process_time_ns()
    for _ in range(calls):
        function()
    return (process_time_ns() - start) / 1e3 / calls
