"""Measured entries as pictures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from .measurement import Entry
from .tables import Table
from .ways import WAYS

__all__ = ["draw"]

Value = Callable[[Entry], float]

#: what is drawn of an entry → the title of its axis, and whether it is drawn as a multiple of eager's
DRAWN: dict[str, list[tuple[str, Value, bool]]] = {
    "time": [("time ÷ eager", lambda entry: median(entry.values["us"]), True)],
    "first call": [
        ("CPU time with empty caches, s", lambda entry: median(entry.values["cold_s"]), False),
        ("CPU time with filled caches, s", lambda entry: median(entry.values["warm_s"]), False),
    ],
    "memory": [
        ("saved, MiB", lambda entry: (entry.values["saved"] or 0) / 2**20, False),  # none of whole steps
        ("peak, MiB", lambda entry: entry.values["peak"] / 2**20, False),
    ],
}


def draw(table: Table, entries: Sequence[Entry], path: Path) -> None:
    """Write a picture: a group of bars for each row, a bar for each way; PNG by the name of the file."""
    measured = [entry for entry in entries if entry.failed is None]
    rows = list(dict.fromkeys((e.workload, e.dtype, e.mode) for e in measured))
    panels = DRAWN[table.measured]
    figure = Figure(figsize=(max(6.0, 0.9 * len(rows) + 2), 3.6 * len(panels)), layout="constrained")
    figure.suptitle(table.title)
    for number, (label, value, relative) in enumerate(panels):
        axes = figure.add_subplot(len(panels), 1, number + 1)
        _bars(axes, measured, rows, value, relative)
        axes.set_ylabel(label)
        axes.set_xticks(range(len(rows)), ["\n".join(row) for row in rows], fontsize=7)
        if relative:
            axes.axhline(1.0, color="black", linewidth=0.8)
    if rows:
        figure.legend(*figure.axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
    figure.savefig(path, dpi=120)


def _bars(
    axes: Axes, entries: Sequence[Entry], rows: Sequence[tuple[str, str, str]], value: Value, relative: bool
) -> None:
    """Draw a bar for each entry; relative ones are divided by eager's of the row, which has none."""
    values = {((e.workload, e.dtype, e.mode), e.way): value(e) for e in entries}
    ways = [way for way in dict.fromkeys(e.way for e in entries) if not (relative and way == "eager")]
    width = 0.8 / max(len(ways), 1)
    for number, way in enumerate(ways):
        places, heights = [], []
        for place, row in enumerate(rows):
            base = values.get((row, "eager")) if relative else 1.0
            if (row, way) in values and base is not None:
                places.append(place + (number - (len(ways) - 1) / 2) * width)
                heights.append(values[row, way] / base)
        axes.bar(places, heights, width, label=WAYS[way].label)
