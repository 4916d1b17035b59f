"""Reads the measured tables of benchmarks/README.md, the one place of these figures."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
TABLES: Final = ROOT / "benchmarks" / "README.md"
_RATIO: Final = " ÷ eager"


@dataclass(frozen=True, kw_only=True)
class Point:
    """A measured figure of a workload in a mode by a way; the spread is 0 where none is given."""

    mode: str
    workload: str
    way: str
    value: float
    spread: float


def table(name: str) -> list[dict[str, str]]:
    """Return the rows of the table between `<!-- name -->` and its end, by column.

    Raises KeyError for a name without such a table. A column's name that is there twice is that of the first.
    """
    _, begin, rest = TABLES.read_text(encoding="utf-8").partition(f"<!-- {name} -->")
    lines = [line for line in rest.partition("<!-- end")[0].splitlines() if line.startswith("|")]
    if not begin or len(lines) < 3:
        raise KeyError(f"{TABLES.name} has no table {name!r}")
    head, _, *rows = ([cell.strip() for cell in line.strip("|").split("|")] for line in lines)
    return [dict(reversed(list(zip(head, row, strict=True)))) for row in rows]


def points(name: str, value: str | None = None) -> Iterator[Point]:
    """Yield the figures of a table, without its means and what was not measured.

    Its columns `way ÷ eager`, or, of a table with a line for each way, the column `value`.
    """
    rows = [row for row in table(name) if row["mode"]]
    several = len({row["dtype"] for row in rows}) > 1
    for row in rows:
        workload = f"{row['workload']} {row['dtype']}" if several else row["workload"]
        columns = {row["way"]: row[value]} if value else _ratios(row)
        for way, cell in columns.items():
            if cell not in ("-", ""):
                number, spread = _number(cell)
                yield Point(mode=row["mode"], workload=workload, way=way, value=number, spread=spread)


def _ratios(row: dict[str, str]) -> dict[str, str]:
    return {name.removesuffix(_RATIO): cell for name, cell in row.items() if name.endswith(_RATIO)}


def _number(cell: str) -> tuple[float, float]:
    numbers = re.fullmatch(r"(\S+)(?: ± (\S+))?", cell)
    if numbers is None:
        raise ValueError(f"{cell!r} is not a figure")
    return float(numbers[1]), float(numbers[2] or 0)
