"""The ledger as text: a plain table, and one for terminals if rich is installed."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from thunder.base.errors import Location
from thunder.base.optional_modules import optional_module
from thunder.base.text_tables import aligned, terminal_width
from thunder.compiler.ledger_codes import AbsenceCode
from thunder.compiler.ledger_rows import ExecutorReason, LedgerRow
from thunder.compiler.repeated_rows import repetitions
from thunder.executor_base.refusal import sentence

__all__ = ["LedgerTable", "as_rich_table", "as_text", "print_table", "text_of"]

#: a table of as many rows says how many calls each executor runs
_LONG = 10
#: the codes of executors that a program can use if it lists or enables them
_USABLE: frozenset[str] = frozenset[AbsenceCode]({"not-listed", "disabled"})
#: the most characters of the names of results that a table shows
_MOST_NAMES = 40
_COLUMNS = ("#", "trace", "module", "symbol", "outputs", "claimed by", "via", "source")


@dataclass(frozen=True)
class LedgerTable:
    """The content of a table: rows, each with reasons below it, and notes at the end."""

    rows: Sequence[LedgerRow]
    absent: Sequence[ExecutorReason] = ()
    baked: Sequence[str] = ()
    #: what rules rewrote, what lookasides replaced, and which tensors transforms left
    changes: Sequence[str] = ()
    #: whether the table is about one executor: the reasons of those that were not consulted are shown too
    shows_skipped: bool = False

    def reasons(self, row: LedgerRow) -> list[str]:
        """Return the sentences below a row."""
        reasons = (*row.refusals, *row.skipped) if self.shows_skipped else row.refusals
        chosen = [] if row.cost is None else [f"{row.claimed_by}: has the least cost ({row.cost:g})"]
        if row.facts:
            chosen.append(", ".join(f"{name} {value}" for name, value in row.facts.items()))
        return chosen + [text_of(reason) for reason in reasons]

    @property
    def notes(self) -> list[str]:
        """The sentences below the table."""
        return [
            *self._counts(),
            *self._absent(),
            *self.changes,
            *(f"baked in: {edge}" for edge in self.baked),
        ]

    def shown(self) -> list[LedgerRow | str]:
        """Return the rows, and for those that repeat earlier ones for other layers a sentence."""
        rows: list[LedgerRow | str] = list(self.rows)
        details = [tuple(self.reasons(row)) for row in self.rows]
        for start, end, period, first, last in reversed(list(repetitions(self.rows, details))):
            numbers = f"rows {self.rows[start].index} to {self.rows[end - 1].index}"
            layers = first if first == last else f"{first} to {last}"
            rows[start:end] = [f"{numbers} are those {period} calls for {layers}"]
        return rows

    def _counts(self) -> Iterator[str]:
        """Yield how many calls of a long table each executor runs."""
        if self.shows_skipped or len(self.rows) < _LONG:
            return
        for trace in dict.fromkeys(row.trace for row in self.rows):
            owners = Counter(row.claimed_by for row in self.rows if row.trace == trace and row.claimed_by)
            yield f"{trace}: " + ", ".join(f"{owner} runs {n} calls" for owner, n in owners.most_common())

    def _absent(self) -> Iterator[str]:
        """Yield the executors that are not part of the compile: the reason of one, or their names."""
        if self.shows_skipped:
            yield from (f"not in this compile: {text_of(reason)}" for reason in self.absent)
            return
        for is_usable, words in ((True, "not in this compile"), (False, "cannot be used here")):
            names = [r.executor for r in self.absent if (r.code in _USABLE) is is_usable]
            if names:
                yield f"{words}: {', '.join(names)} (why_not(name) has the reason)"


def as_text(table: LedgerTable, width: int | None = None) -> str:
    """Return a table with a line for each call, and the reasons indented below it.

    With `width`, in characters, wide cells are wrapped so that the table fits.
    """
    shown = table.shown()
    lines = [_COLUMNS, *(_cells(row) for row in shown if isinstance(row, LedgerRow))]
    if not any(row.module for row in table.rows):
        module = _COLUMNS.index("module")
        lines = [(*cells[:module], *cells[module + 1 :]) for cells in lines]
    head, dashes, *texts = aligned(lines, width, rule=True)
    text, following = [head, dashes], iter(texts)
    for row in shown:
        if isinstance(row, str):
            text.append(f"   ... {row}")
        else:
            text += [next(following), *(f"   - {reason}" for reason in table.reasons(row))]
    return "\n".join([*text, *table.notes])


def print_table(table: LedgerTable, file: TextIO) -> None:
    """Print to a terminal in colours, if rich is installed; else print the plain text."""
    console = optional_module("rich.console")
    if console is None or not file.isatty():
        print(as_text(table, terminal_width() if file.isatty() else None), file=file)
    else:
        console.Console(file=file).print(as_rich_table(table))


def as_rich_table(table: LedgerTable) -> Any:
    """Return the table for rich, or the plain text where rich is not installed."""
    tables, consoles = optional_module("rich.table"), optional_module("rich.console")
    if tables is None or consoles is None:
        return as_text(table)
    text, rows = _rich_text, list[tuple[Any, ...]]()
    for row in table.shown():
        if isinstance(row, str):
            rows.append(("...", *[""] * 6, text(row, "dim")))
            continue
        reasons = "\n".join(table.reasons(row))
        index, trace, module, symbol, outputs, owner, via, source = _cells(row)
        runs = text(owner, "green") if row.claimed_by is not None else text(via, "dim")
        if via not in ("operator", "decomposed"):
            runs.append(f" ({via})", style="dim")
        rows.append(
            (
                *(index, trace, text(module), text(symbol, "bold"), outputs, runs),
                *(text(reasons, "yellow"), text(source, "dim")),
            )
        )
    names = ("#", "trace", "module", "symbol", "outputs", "claimed by", "reasons", "source")
    filled = [n for n, column in enumerate(zip(*rows, strict=True)) if any(map(str, column))]
    grid = tables.Table(*(names[n] for n in filled))
    for cells in rows:
        grid.add_row(*(cells[n] for n in filled))
    return consoles.Group(grid, *map(text, table.notes))


def _rich_text(content: str, style: str = "") -> Any:
    """Return text for rich in which square brackets are not markup."""
    module = optional_module("rich.text")
    assert module is not None, "rich is installed: its table was imported before"
    return module.Text(content, style=style)


def _cells(row: LedgerRow) -> tuple[str, ...]:
    return (
        str(row.index),
        row.trace,
        row.module,
        row.symbol,
        _names(row.outputs),
        row.claimed_by or "-",
        row.via,
        _short(row.source) if row.source is not None else "",
    )


def _names(outputs: Sequence[str]) -> str:
    """Return the names of results; of many, the first and how many more there are."""
    shown = next((n for n in range(len(outputs), 1, -1) if len(", ".join(outputs[:n])) <= _MOST_NAMES), 1)
    more = f", and {len(outputs) - shown} more" if shown < len(outputs) else ""
    return ", ".join(outputs[:shown]) + more


def text_of(reason: ExecutorReason) -> str:
    """Return a reason as a sentence, with whose it is before it."""
    return f"{reason.executor}: {sentence(reason.message, reason.facts)}"


def _short(line: Location) -> str:
    """Return a line with its file relative to the working directory, or to a directory of imports."""
    file = Path(line.file)
    folders = filter(file.is_relative_to, (Path.cwd(), *map(Path, filter(None, sys.path))))
    deepest = max(folders, key=lambda folder: len(folder.parts), default=None)
    return str(line if deepest is None else line._replace(file=str(file.relative_to(deepest))))
