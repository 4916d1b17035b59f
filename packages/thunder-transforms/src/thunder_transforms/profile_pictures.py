"""Pictures of measured times."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from thunder_transforms.optional_libraries import needed
from thunder_transforms.profile_tables import UNITS, TimedLine, short_place, time_text

__all__ = ["draw_lines"]

#: inches of a row, and of what surrounds the rows
_ROW, _MARGINS, _WIDTH = 0.35, 1.4, 9.0


def draw_lines(lines: Sequence[TimedLine], path: str | Path, overhead_ns: int) -> None:
    """Write a picture with a bar for each line: its forward in one colour, its backward in another."""
    figures = needed("matplotlib.figure", "a picture of times")
    figure: Any = figures.Figure(figsize=(_WIDTH, _MARGINS + _ROW * max(len(lines), 1)), layout="constrained")
    axes = figure.subplots()
    labels = [_label(line) for line in lines]
    unit, size = _unit(max((line.total_ns for line in lines), default=0))
    forward = [line.forward_ns / size for line in lines]
    backward = [line.backward_ns / size for line in lines]
    places = range(len(lines))
    axes.barh(places, forward, color="#4878a8", label="forward")
    axes.barh(places, backward, left=forward, color="#d8854f", label="backward")
    axes.set_yticks(places, labels, family="monospace", fontsize=8)
    axes.invert_yaxis()
    axes.locator_params(axis="x", nbins=6)
    axes.set_xlabel(f"{unit}   (readings of the clock: {time_text(overhead_ns)}, not included)")
    axes.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside upper right", ncols=2, frameon=False)
    figure.savefig(path)


def _unit(longest: int) -> tuple[str, float]:
    """Return the unit for times up to `longest` nanoseconds, and its length in nanoseconds."""
    return next(((name, size) for name, size in UNITS if longest >= size), UNITS[-1])


def _label(line: TimedLine) -> str:
    text = line.location.text if line.location is not None else "without a line"
    shortened = text if len(text) <= 48 else f"{text[:47]}…"
    return f"{shortened}  {short_place(line.location)}".strip().replace("$", r"\$")
