"""Measured tables as plots: a point for each way, a row for each workload, the spread as a line."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from typing import Any, Final

from docutils import nodes
from docutils.parsers.rst import directives
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from sphinx.util.docutils import SphinxDirective

from .svg import inline
from .tables import TABLES, Point, points

#: colours that colour-blind readers tell apart (Okabe and Ito, 2008), each with a marker, for all plots
_STYLES: Final = {
    "eager": ("#888888", "|"),
    "torch.compile": ("#e69f00", "s"),
    "thunder, torch": ("#56b4e9", "o"),
    "thunder, inductor": ("#0072b2", "D"),
    "lightning-thunder, torchcompile_cat": ("#cc79a7", "X"),
    "thunder, inductor, frozen": ("#009e73", "^"),
    'thunder, inductor, "same input"': ("#009e73", "v"),
    "thunder, bare function": ("#d55e00", "P"),
}
#: what matplotlib writes for text and lines, which take the colour of the page's text
_INK: Final = "#010203"
_SETTINGS: Final[dict[Any, Any]] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "thunder",
    "font.size": 9,
    **dict.fromkeys(("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color"), _INK),
}


def drawn(figures: Sequence[Point], label: str, *, logarithmic: bool) -> str:
    """Return the plot of a table as SVG: a panel for each mode, sharing the axis of values."""
    modes = list(dict.fromkeys(point.mode for point in figures))
    ways = [way for way in _STYLES if any(point.way == way for point in figures)]
    if unknown := {point.way for point in figures} - {*ways}:
        raise ValueError(f"no colour for {', '.join(sorted(unknown))}: add it to _STYLES")
    counts = [len({point.workload for point in figures if point.mode == mode}) for mode in modes]
    with rc_context(_SETTINGS):
        figure = Figure(figsize=(7.4, 0.9 + 0.26 * sum(counts) + 0.45 * len(modes)), layout="constrained")
        panels = figure.subplots(
            len(modes), 1, sharex=True, squeeze=False, gridspec_kw={"height_ratios": counts}
        )[:, 0]
        for axes, mode in zip(panels, modes, strict=True):
            _panel(axes, [point for point in figures if point.mode == mode], ways, logarithmic)
            axes.set_title(mode, loc="left", fontsize=9, fontweight="bold", color=_INK)
        panels[-1].set_xlabel(label)
        handles = {
            way: handle
            for axes in panels
            for handle, way in zip(*axes.get_legend_handles_labels(), strict=True)
        }
        figure.legend(handles.values(), handles, loc="outside lower left", ncols=2, frameon=False)
        text = io.StringIO()
        figure.savefig(text, format="svg", transparent=True, metadata={"Date": None})
    return re.sub(_INK, "currentColor", text.getvalue())


def _panel(axes: Axes, figures: Sequence[Point], ways: Sequence[str], logarithmic: bool) -> None:
    workloads = list(dict.fromkeys(point.workload for point in figures))
    places = {workload: place for place, workload in enumerate(workloads)}
    for number, way in enumerate(ways):
        colour, marker = _STYLES[way]
        of_way = [point for point in figures if point.way == way]
        if not of_way:
            continue
        shift = 0.5 * ((number + 0.5) / len(ways) - 0.5)
        axes.errorbar(
            [point.value for point in of_way],
            [places[point.workload] + shift for point in of_way],
            xerr=[point.spread for point in of_way],
            fmt=marker, markersize=5, color=colour, elinewidth=1, label=way,
        )  # fmt: skip
    if logarithmic:
        axes.set_xscale("log")
    axes.axvline(1.0, color=_INK, linewidth=0.6, linestyle=":")
    axes.set_yticks(range(len(workloads)), workloads)
    axes.set_ylim(len(workloads) - 0.5, -0.5)
    axes.grid(axis="x", color=_INK, alpha=0.15, linewidth=0.5)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(axis="y", length=0)


class TablePlot(SphinxDirective):
    """`{plot-of-table} NAME`: a table of benchmarks/README.md as a plot, with its text as the description."""

    required_arguments = 1
    option_spec = {  # noqa: RUF012
        "value": directives.unchanged_required,
        "label": directives.unchanged_required,
        "log": directives.flag,
    }

    def run(self) -> list[nodes.Node]:
        """Return the plot as raw HTML; the page is made again when the tables change."""
        self.env.note_dependency(str(TABLES))
        figures = list(points(self.arguments[0], self.options.get("value")))
        svg = drawn(figures, self.options["label"], logarithmic="log" in self.options)
        described = (
            f"Plot of the table {self.arguments[0]}: {self.options['label']}, for each workload and way."
        )
        return [nodes.raw("", inline(svg, described, kind="plot"), format="html")]
