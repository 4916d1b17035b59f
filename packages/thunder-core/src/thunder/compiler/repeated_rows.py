"""Blocks of rows of the ledger that repeat for each layer of a model."""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterator, Sequence
from typing import NamedTuple

from thunder.compiler.ledger_rows import LedgerRow

__all__ = ["Repetition", "repetitions"]

_NUMBER = re.compile(r"\d+")
#: the most rows of a block
_LONGEST = 400
#: the fewest rows that a repetition stands for
_FEWEST = 8


class Repetition(NamedTuple):
    """Rows that repeat those before them, but for numbers in the names of their modules.

    The rows `[start - period, start)` come again up to `end`; `first` and `last` are the modules of the
    repeated blocks.
    """

    start: int
    end: int
    period: int
    first: str
    last: str


def repetitions(rows: Sequence[LedgerRow], details: Sequence[Hashable]) -> Iterator[Repetition]:
    """Yield the blocks of rows that repeat, in order, without overlaps.

    `details` has what rows show beside their call: rows in which they differ are different.
    """
    keys = [
        (row.trace, _NUMBER.sub("#", row.module), row.symbol, row.claimed_by, row.via, row.source, detail)
        for row, detail in zip(rows, details, strict=True)
    ]
    begin = 0
    while begin < len(rows):
        found = _repetition(rows, keys, begin)
        if found is not None:
            yield found
        begin = begin + 1 if found is None else found.end


def _repetition(rows: Sequence[LedgerRow], keys: Sequence[Hashable], begin: int) -> Repetition | None:
    """Return the repetition of the shortest block that begins at a row, or None."""
    for period in range(2, min(_LONGEST, (len(keys) - begin) // 2) + 1):
        start = end = begin + period
        if keys[start] != keys[begin]:
            continue
        while keys[end : end + period] == keys[begin:start]:
            end += period
        if end - start < _FEWEST:
            continue
        layers = _layers(rows[begin:start], rows[start : start + period], rows[end - period : end])
        if layers is not None:
            return Repetition(start, end, period, *layers)
    return None


def _layers(
    block: Sequence[LedgerRow], second: Sequence[LedgerRow], last: Sequence[LedgerRow]
) -> tuple[str, str] | None:
    """Return the layers whose calls the second and the last block are, or None if the first is not one."""
    of_first = [row.module.split(".") for row in block]
    of_second = [row.module.split(".") for row in second]
    pairs = zip(of_first, of_second, last, strict=True)
    differing = ((a, b, row.module.split(".")) for a, b, row in pairs if a != b)
    own, again, final = next(differing, ([], [], []))
    depth = next((n for n, (a, b) in enumerate(zip(own, again, strict=True)) if a != b), 0)
    layers = {module[depth] for module in of_first if module[:depth] == own[:depth] and len(module) > depth}
    if own == again or len(layers) > 1:
        return None
    return ".".join(again[: depth + 1]), ".".join(final[: depth + 1])
