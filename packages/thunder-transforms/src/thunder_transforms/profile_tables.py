"""Tables of measured times, for terminals."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from thunder.core.errors import Location
from thunder_transforms.observing import Statement
from thunder_transforms.optional_libraries import needed

__all__ = ["UNITS", "short_place", "table_of", "time_text"]

#: units of time and their length in nanoseconds
UNITS = (("s", 1e9), ("ms", 1e6), ("µs", 1e3))


class TimedLine(Protocol):
    """A user's line with the time of its operations, and of their gradients."""

    @property
    def location(self) -> Location | None: ...
    @property
    def forward_ns(self) -> int: ...
    @property
    def backward_ns(self) -> int: ...
    @property
    def total_ns(self) -> int: ...


class TimedOperation(Protocol):
    """A statement with the number of its calls and their time."""

    statement: Statement
    calls: int
    total_ns: int
    shortest_ns: int


def table_of(
    lines: Sequence[TimedLine], operations: Sequence[TimedOperation], overhead_ns: int, limit: int | None
) -> Any:
    """Return a `rich` group of two tables, each with at most `limit` rows, and a line about the overhead."""
    group = needed("rich.console", "a table of times").Group
    total = sum(operation.total_ns for operation in operations)
    longest = sorted(operations, key=lambda operation: -operation.total_ns)
    readings = sum(operation.calls for operation in operations)
    return group(
        _table(
            "Time by line",
            ("line", "source", "forward", "backward", "share"),
            [
                (
                    short_place(line.location),
                    line.location.text if line.location is not None else "",
                    time_text(line.forward_ns),
                    time_text(line.backward_ns),
                    _share(line.total_ns, total),
                )
                for line in lines[:limit]
            ],
        ),
        _table(
            "Time by operation",
            ("operation", "line", "part", "executor", "calls", "total", "fastest", "share"),
            [
                (
                    operation.statement.operator,
                    short_place(next(iter(operation.statement.locations), None)),
                    operation.statement.branch,
                    operation.statement.executor or "",
                    str(operation.calls),
                    time_text(operation.total_ns),
                    time_text(operation.shortest_ns),
                    _share(operation.total_ns, total),
                )
                for operation in longest[:limit]
            ],
        ),
        f"{time_text(total)} in {readings} calls of operations; the readings of the clock took "
        f"{time_text(overhead_ns)} besides ({_share(overhead_ns, total + overhead_ns)} of both)",
    )


def _table(title: str, columns: Sequence[str], rows: Sequence[tuple[str, ...]]) -> Any:
    table = needed("rich.table", "a table of times").Table(title=title, title_justify="left")
    text = needed("rich.text", "a table of times").Text
    for column in columns:
        numeric = column in ("forward", "backward", "share", "calls", "total", "fastest")
        table.add_column(column, justify="right" if numeric else "left", overflow="fold")
    for row in rows:
        table.add_row(*(text(cell) for cell in row))
    return table


def short_place(location: Location | None) -> str:
    """Return the file's name and the line's number, or an empty text."""
    return "" if location is None else f"{Path(location.file).name}:{location.line}"


def time_text(ns: int) -> str:
    """Return a time with its unit: `"850 ns"`, `"12.3 µs"`, `"4.56 ms"` or `"1.20 s"`."""
    for unit, size in UNITS:
        if ns >= size:
            return f"{ns / size:.3g} {unit}"
    return f"{ns} ns"


def _share(ns: int, total: int) -> str:
    return f"{100 * ns / total:.1f} %" if total else ""
