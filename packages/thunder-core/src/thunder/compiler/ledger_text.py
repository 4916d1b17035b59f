"""The ledger as text: a plain table, and one for terminals where the library rich is installed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, TextIO

from thunder.compiler.ledger_records import LedgerRow, RefusalRecord
from thunder.compiler.rich_output import rich_module
from thunder.executor_base.executor import sentence

if TYPE_CHECKING:
    from thunder.compiler.ledger import Explanation

__all__ = ["as_rich_table", "as_text", "print_table"]

_COLUMNS = ("#", "trace", "symbol", "outputs", "claimed by", "via", "source")


def as_text(explanation: Explanation) -> str:
    """A table with a line for each call, and the reasons indented below it."""
    rows = explanation.rows
    head, rule, *lines = _aligned([_COLUMNS, *map(_cells, rows)])
    text = [head, rule]
    for row, line in zip(rows, lines, strict=True):
        text.append(line)
        text += [f"   - {_sentence(record)}" for record in _shown(explanation, row)]
    return "\n".join([*text, *_notes(explanation)])


def print_table(explanation: Explanation, file: TextIO) -> None:
    """Prints to a terminal in colours, if rich is installed; else the plain text."""
    console = rich_module("console")
    if console is None or not file.isatty():
        print(as_text(explanation), file=file)
    else:
        console.Console(file=file).print(as_rich_table(explanation))


def as_rich_table(explanation: Explanation) -> Any:
    """The table for rich, or the plain text where rich is not installed."""
    table, group = rich_module("table"), rich_module("console")
    if table is None or group is None:
        return as_text(explanation)
    text = _rich_text
    built = table.Table("#", "trace", "symbol", "outputs", "claimed by", "reasons", "source")
    for row in explanation.rows:
        reasons = "\n".join(map(_sentence, _shown(explanation, row)))
        index, trace, symbol, outputs, owner, via, source = _cells(row)
        runs = text(owner, "green") if row.claimed_by is not None else text(via, "dim")
        if via not in ("operator", "decomposed"):
            runs.append(f" ({via})", style="dim")
        built.add_row(
            index, trace, text(symbol, "bold"), outputs, runs, text(reasons, "yellow"), text(source, "dim")
        )
    return group.Group(built, *map(text, _notes(explanation)))


def _rich_text(content: str, style: str = "") -> Any:
    """Text that says what it says: no square bracket in it is markup."""
    module = rich_module("text")
    assert module is not None, "whoever asks has found rich"
    return module.Text(content, style=style)


def _cells(row: LedgerRow) -> tuple[str, ...]:
    return (
        str(row.index),
        row.trace,
        row.symbol,
        ", ".join(row.outputs),
        row.claimed_by or "-",
        row.via,
        str(row.source) if row.source is not None else "",
    )


def _shown(explanation: Explanation, row: LedgerRow) -> tuple[RefusalRecord, ...]:
    """Refusals; who was not asked is of interest to those who ask about one executor."""
    return row.refusals if explanation.about is None else (*row.refusals, *row.not_asked)


def _sentence(record: RefusalRecord) -> str:
    return f"{record.executor}: {sentence(record.message, record.facts)}"


def _notes(explanation: Explanation) -> Iterator[str]:
    for record in explanation.absent:
        yield f"never asked: {_sentence(record)}"
    for edge in explanation.baked:
        yield f"baked in: {edge}"


def _aligned(lines: Sequence[tuple[str, ...]]) -> list[str]:
    """Lines in columns, with a rule below the first one, the head."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    head, *body = ["  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip() for row in lines]
    return [head, "  ".join("-" * w for w in widths), *body]
