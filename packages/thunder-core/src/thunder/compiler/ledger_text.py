"""The ledger as text: a plain table, and one for terminals if rich is installed."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from thunder.base.errors import Location
from thunder.base.optional_modules import optional_module
from thunder.base.text_tables import aligned, terminal_width
from thunder.compiler.ledger_rows import ExecutorReason, LedgerRow
from thunder.executor_base.refusal import sentence

__all__ = ["LedgerTable", "as_rich_table", "as_text", "print_table", "text_of"]

_COLUMNS = ("#", "trace", "module", "symbol", "outputs", "claimed by", "via", "source")


@dataclass(frozen=True)
class LedgerTable:
    """The content of a table: rows, each with reasons below it, and notes at the end."""

    rows: Sequence[LedgerRow]
    absent: Sequence[ExecutorReason] = ()
    baked: Sequence[str] = ()
    #: what rules rewrote, what lookasides replaced, and which tensors transforms left
    changes: Sequence[str] = ()
    #: whether the reasons of executors that were not consulted are shown too
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
        absent = [f"not in this compile: {text_of(reason)}" for reason in self.absent]
        return absent + list(self.changes) + [f"baked in: {edge}" for edge in self.baked]


def as_text(table: LedgerTable, width: int | None = None) -> str:
    """Return a table with a line for each call, and the reasons indented below it.

    With `width`, in characters, wide cells are wrapped so that the table fits.
    """
    lines = [_COLUMNS, *map(_cells, table.rows)]
    if not any(row.module for row in table.rows):
        module = _COLUMNS.index("module")
        lines = [(*cells[:module], *cells[module + 1 :]) for cells in lines]
    head, dashes, *texts = aligned(lines, width, rule=True)
    text = [head, dashes]
    for row, line in zip(table.rows, texts, strict=True):
        text.append(line)
        text += [f"   - {reason}" for reason in table.reasons(row)]
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
    text = _rich_text
    grid = tables.Table("#", "trace", "module", "symbol", "outputs", "claimed by", "reasons", "source")
    for row in table.rows:
        reasons = "\n".join(table.reasons(row))
        index, trace, module, symbol, outputs, owner, via, source = _cells(row)
        runs = text(owner, "green") if row.claimed_by is not None else text(via, "dim")
        if via not in ("operator", "decomposed"):
            runs.append(f" ({via})", style="dim")
        grid.add_row(
            *(index, trace, text(module), text(symbol, "bold"), outputs, runs),
            *(text(reasons, "yellow"), text(source, "dim")),
        )
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
        ", ".join(row.outputs),
        row.claimed_by or "-",
        row.via,
        _short(row.source) if row.source is not None else "",
    )


def text_of(reason: ExecutorReason) -> str:
    """Return a reason as a sentence, with whose it is before it."""
    return f"{reason.executor}: {sentence(reason.message, reason.facts)}"


def _short(line: Location) -> str:
    """Return a line with its file relative to the working directory, or to a directory of imports."""
    file = Path(line.file)
    folders = filter(file.is_relative_to, (Path.cwd(), *map(Path, filter(None, sys.path))))
    deepest = max(folders, key=lambda folder: len(folder.parts), default=None)
    return str(line if deepest is None else line._replace(file=str(file.relative_to(deepest))))
