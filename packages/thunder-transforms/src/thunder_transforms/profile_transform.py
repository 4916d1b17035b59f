"""Time of each operation of a compiled program, by statement and by the user's line."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

import thunder
from thunder.core.errors import Location
from thunder.core.proxies import TensorProxy
from thunder.core.symbol import BoundSymbol
from thunder.core.trace import TraceCtx
from thunder_transforms.observing import (
    Statement,
    branch_of,
    is_computing,
    observer,
    statement_of,
    with_observers,
)
from thunder_transforms.optional_libraries import needed
from thunder_transforms.profile_pictures import draw_lines
from thunder_transforms.profile_tables import table_of

__all__ = ["LineTime", "ModuleTime", "OperationTime", "ProfileTransform"]


@dataclass
class OperationTime:
    """The measured time of one statement.

    Attributes:
        statement: its operator, text, executor and user's lines.
        calls: how often it ran.
        total_ns: the time of all calls, in nanoseconds.
        shortest_ns: the time of the fastest call.
    """

    statement: Statement
    calls: int = 0
    total_ns: int = 0
    shortest_ns: int = 0

    def add(self, ns: int) -> None:
        """Add a call that took `ns` nanoseconds."""
        self.shortest_ns = ns if self.calls == 0 else min(ns, self.shortest_ns)
        self.calls += 1
        self.total_ns += ns


@dataclass(frozen=True)
class LineTime:
    """The time of a line of the user's program, in nanoseconds: of its own calls, and of their gradients.

    The time of a fusion is divided equally among its lines. `location` is None for what has no line.
    """

    location: Location | None
    forward_ns: int
    backward_ns: int

    @property
    def total_ns(self) -> int:
        """The sum of both."""
        return self.forward_ns + self.backward_ns


@dataclass(frozen=True)
class ModuleTime:
    """The time of the calls of a module itself, without its parts, and of their gradients, in nanoseconds.

    `name` is that of `named_modules()`; "" for the compiled module, and for calls outside of modules. A
    fusion has that of the innermost module around its calls.
    """

    name: str
    forward_ns: int
    backward_ns: int

    @property
    def total_ns(self) -> int:
        """The sum of both."""
        return self.forward_ns + self.backward_ns


class ProfileTransform(thunder.Transform):
    """Measures the time of each operation of forward and backward, and assigns it to the user's lines.

    Each statement is followed by a reading of the clock; its time ends after the memory of its last operands
    is released. `operations()`, `lines()` and `modules()` return the times, `show()` prints tables, and
    `picture(path)` draws them. The readings take time too, `overhead_ns`, which is not in the times of the
    operations. Put the transform last in the list: then the statements of other transforms are not measured.

    Args:
        synchronize: whether the clock waits for the device after each operation that is not on the CPU.
            Without it, operations on a GPU have the time that their launch takes.
    """

    observes = True

    def __init__(self, *, synchronize: bool = True) -> None:
        self.synchronize = synchronize
        self._times: list[OperationTime] = []
        self._last = threading.local()
        self._symbols = observer("start_clock", self._start), observer("lap", self._lap)
        self._waiting = observer("synchronized_lap", self._synchronized_lap)

    def transform_trace_post_optimization(self, computation_trace: TraceCtx, **kwargs: Any) -> TraceCtx:
        start, lap = self._symbols
        branch = branch_of(computation_trace)

        def after(bsym: BoundSymbol) -> list[BoundSymbol]:
            self._times.append(OperationTime(statement_of(bsym, branch)))
            index, device = len(self._times) - 1, _accelerator(bsym)
            if device is not None and self.synchronize:
                return [self._waiting.bind(index, device, output=None)]
            return [lap.bind(index, output=None)]

        new = with_observers(computation_trace, type(self).__name__, after=after, after_releases=True)
        first = next((i for i, b in enumerate(new.bound_symbols) if is_computing(b)), None)
        if first is not None:
            new.bound_symbols.insert(first, start.bind(output=None))
        return new

    def _start(self) -> None:
        self._last.ns = time.perf_counter_ns()

    def _lap(self, index: int) -> None:
        now = time.perf_counter_ns()
        self._times[index].add(now - self._last.ns)
        self._last.ns = time.perf_counter_ns()

    def _synchronized_lap(self, index: int, device: str) -> None:
        torch.get_device_module(device).synchronize(device)
        self._lap(index)

    def pass_over(self, ns: int) -> None:
        """Leave `ns` nanoseconds, which an observer has taken, out of the statement's time."""
        self._last.ns += ns

    def times_of(self, trace: TraceCtx) -> dict[int, OperationTime]:
        """Return the times of a final trace's statements that have run, by their positions in it."""
        laps = {self._symbols[1].id, self._waiting.id}
        times: dict[int, OperationTime] = {}
        computing = -1
        for position, bsym in enumerate(trace.bound_symbols):
            if is_computing(bsym):
                computing = position
            elif bsym.sym.id in laps and self._times[bsym.args[0]].calls:
                times[computing] = self._times[bsym.args[0]]
        return times

    def reset(self) -> None:
        """Set all times to zero, for example after the first calls."""
        for operation in self._times:
            operation.calls = operation.total_ns = operation.shortest_ns = 0

    def operations(self) -> list[OperationTime]:
        """Return the operations that have run, in the order of their statements."""
        return [operation for operation in self._times if operation.calls]

    def lines(self) -> list[LineTime]:
        """Return the time of each of the user's lines, longest first."""
        times: dict[Location | None, list[float]] = {}
        for operation in self.operations():
            places = operation.statement.locations or (None,)
            for place in places:
                both = times.setdefault(place, [0.0, 0.0])
                both[operation.statement.branch == "backward"] += operation.total_ns / len(places)
        lines = [LineTime(place, round(f), round(b)) for place, (f, b) in times.items()]
        return sorted(lines, key=lambda line: -line.total_ns)

    def modules(self) -> list[ModuleTime]:
        """Return the time of each module of the program, longest first."""
        times: dict[str, list[int]] = {}
        for operation in self.operations():
            both = times.setdefault(operation.statement.module, [0, 0])
            both[operation.statement.branch == "backward"] += operation.total_ns
        modules = [ModuleTime(name, *both) for name, both in times.items()]
        return sorted(modules, key=lambda module: -module.total_ns)

    @property
    def overhead_ns(self) -> int:
        """The time that the readings of the clock took: their number times that of one, measured now."""
        readings = sum(operation.calls for operation in self._times)
        return round(readings * _time_of_a_reading())

    def table(self, limit: int | None = 20) -> Any:
        """Return a `rich` renderable: the lines, then the operations, longest first, and the overhead.

        `limit` is the number of rows of each table. Raises RequirementNotMet if rich is not installed.
        """
        return table_of(self.lines(), self.operations(), self.overhead_ns, limit)

    def show(self, limit: int | None = 20) -> None:
        """Print the tables. Raises RequirementNotMet if rich is not installed."""
        needed("rich.console", "a table of times").Console().print(self.table(limit))

    def picture(self, path: str | Path, limit: int = 20) -> None:
        """Write a picture of the times of the longest lines, forward and backward, to a file.

        The suffix of `path` is the format, such as `.png` or `.svg`. Raises RequirementNotMet if matplotlib
        is not installed.
        """
        draw_lines(self.lines()[:limit], path, self.overhead_ns)


def _accelerator(bsym: BoundSymbol) -> str | None:
    """Return the device of a statement's tensors that is not the CPU, or None."""
    tensors: Iterable[Any] = (*bsym.flat_proxy_outs, *bsym.flat_proxy_args)
    devices = {p.device for p in tensors if isinstance(p, TensorProxy)}
    return next((d.device_str() for d in devices if d.type not in ("cpu", "meta")), None)


def _time_of_a_reading(repeats: int = 5, readings: int = 200) -> float:
    """Return the time of one reading in nanoseconds: the median of several means."""
    scratch = ProfileTransform()
    scratch._times.append(OperationTime(Statement("inference", "", "", None, ())))
    means = []
    for _ in range(repeats):
        scratch._start()
        start = time.perf_counter_ns()
        for _ in range(readings):
            scratch._lap(0)
        means.append((time.perf_counter_ns() - start) / readings)
    return sorted(means)[repeats // 2]
