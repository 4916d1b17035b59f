"""Measured entries as tables of text."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from .measurement import Entry
from .statistics_of_rounds import Spread, geometric_mean
from .tables import Table
from .ways import WAYS

__all__ = ["Rendered", "markdown", "rendered"]

Row = tuple[str, str, str]


class Rendered:
    """A table as text: a head, rows of equal length, and notes."""

    def __init__(self, title: str, head: Sequence[str]) -> None:
        self.title, self.head = title, tuple(head)
        self.rows: list[tuple[str, ...]] = []
        self.notes: list[str] = []


def markdown(table: Rendered) -> str:
    """Return a table as markdown with columns of equal width."""
    widths = [max(len(row[n]) for row in (table.head, *table.rows)) for n in range(len(table.head))]

    def line(cells: Sequence[str]) -> str:
        aligned = [cells[0].ljust(widths[0])]
        aligned += [cell.rjust(width) for cell, width in zip(cells[1:], widths[1:], strict=True)]
        return f"| {' | '.join(aligned)} |\n"

    rule = f"|{'|'.join('-' * (width + 2) for width in widths)}|\n"
    text = line(table.head) + rule + "".join(line(row) for row in table.rows)
    return text + "".join(f"\n{note}\n" for note in table.notes)


def rendered(table: Table, entries: Sequence[Entry]) -> Rendered:
    """Return the text of a table from what was measured."""
    result = RENDERERS[table.measured](table, entries)
    failures = sorted({(WAYS[e.way].label, e.failed) for e in entries if e.failed is not None})
    for label, why in failures:
        rows = [_row(e) for e in entries if WAYS[e.way].label == label and e.failed == why]
        count, first = f"{len(rows)} of {len(_by_row(entries))} rows", ", ".join(rows[0])
        where = "" if why.startswith("absent") else f" in {count}, the first {first}"
        result.notes.append(f"{label}{where}: {why}.")
    return result


def _row(entry: Entry) -> Row:
    return entry.workload, entry.dtype, entry.mode


def _by_row(entries: Sequence[Entry]) -> dict[Row, dict[str, Entry]]:
    """Return the entries that were measured, by row and way."""
    rows: dict[Row, dict[str, Entry]] = {}
    for entry in entries:
        ways = rows.setdefault(_row(entry), {})
        if entry.failed is None:
            ways[entry.way] = entry
    return rows


def _ways(entries: Sequence[Entry]) -> list[str]:
    """Return the ways of which anything was measured, in order."""
    return list(dict.fromkeys(entry.way for entry in entries if entry.failed is None))


def _times(table: Table, entries: Sequence[Entry]) -> Rendered:
    """Return medians of eager in ms, and each way's times as multiples of eager's in the same rounds."""
    rows, ways = _by_row(entries), _ways(entries)
    base = ways[0] if ways else "eager"
    others = [way for way in ways if way != base]
    compared = [way for way in others if way.startswith("thunder-") and "compile" in others]
    heads = [f"{WAYS[way].label} ÷ {WAYS[base].label}" for way in others]
    faster = [f"torch.compile ÷ {WAYS[way].label}" for way in compared]
    result = Rendered(table.title, ("workload", "dtype", "mode", f"{WAYS[base].label}, ms", *heads, *faster))
    ratios: dict[str, list[float]] = {head: [] for head in (*heads, *faster)}
    pairs = [*((way, base) for way in others), *(("compile", way) for way in compared)]
    for row, of_way in rows.items():
        cells = []
        for head, (way, other) in zip(ratios, pairs, strict=True):
            if way in of_way and other in of_way:
                spread = Spread.of_ratios(of_way[way].values["us"], of_way[other].values["us"])
                ratios[head].append(spread.middle)
                cells.append(f"{spread.middle:.2f} ± {spread.half:.2f}")
            else:
                cells.append("-")
        first = Spread.of(of_way[base].values["us"]) if base in of_way else None
        time = f"{first.middle / 1e3:.4g} ± {first.half / 1e3:.2g}" if first else "-"
        result.rows.append((*row, time, *cells))
    means = [f"{geometric_mean(values):.2f}" if values else "-" for values in ratios.values()]
    result.rows.append(("geometric mean", "", "", "", *means))
    result.notes.append(
        "CPU time; with several threads the time that passes. Ratios are taken in each round; ± is half the "
        f"distance between the quartiles. In columns `÷ {WAYS[base].label}` less is faster, in columns "
        "`torch.compile ÷` more is."
    )
    return result


def _first_calls(table: Table, entries: Sequence[Entry]) -> Rendered:
    """Return CPU seconds of first calls, as multiples of torch.compile's, and warm ones of cold ones."""
    head = ("workload", "dtype", "mode", "way", "empty caches, s", "÷ torch.compile", "filled, s", "÷ empty")
    result = Rendered(table.title, head)
    for row, of_way in _by_row(entries).items():
        base = Spread.of(of_way["compile"].values["cold_s"]).middle if "compile" in of_way else None
        for way, entry in of_way.items():
            cold, warm = (Spread.of(entry.values[name]).middle for name in ("cold_s", "warm_s"))
            ratio = f"{cold / base:.2f}" if base else "-"
            cells = (f"{cold:.2f}", ratio, f"{warm:.2f}", f"{warm / cold:.2f}")
            result.rows.append((*row, WAYS[way].label, *cells))
    result.notes.append(
        "The clock starts after `import torch` and a call in eager: the other imports of a way count."
    )
    return result


def _memory(table: Table, entries: Sequence[Entry]) -> Rendered:
    """Return saved and highest bytes in MiB, and as multiples of eager's."""
    head = ("workload", "dtype", "mode", "way", "saved, MiB", "÷ eager", "peak, MiB", "÷ eager")
    result = Rendered(table.title, head)
    for row, of_way in _by_row(entries).items():
        for way, entry in of_way.items():
            cells = []
            for name in ("saved", "peak"):
                size = entry.values[name]
                base = of_way["eager"].values[name] if "eager" in of_way else None
                cells += [f"{size / 2**20:.2f}" if size else "-", f"{size / base:.3f}" if base else "-"]
            result.rows.append((*row, WAYS[way].label, *cells))
    result.notes.append("Bytes, so exact. The peak is counted from the beginning of a step, with gradients.")
    return result


RENDERERS: dict[str, Callable[[Table, Sequence[Entry]], Rendered]] = {
    "time": _times,
    "first call": _first_calls,
    "memory": _memory,
}
