"""Text for people: tables of columns, within the width of a terminal if asked, and numbers of bytes."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Sequence
from itertools import zip_longest

__all__ = ["aligned", "byte_text", "terminal_width"]

_GAP = "  "
#: columns are not made narrower than this, so that a word still fits
_NARROWEST = 16


def aligned(rows: Sequence[Sequence[str]], width: int | None = None, *, rule: bool = False) -> list[str]:
    """Return one text for each row, with its cells in columns; with `rule` a line of dashes below the first.

    With `width`, in characters, the widest columns are made narrower until the table fits, and their cells
    are wrapped; a table of many columns may still be wider.
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    if width is not None:
        widths = _fitted(widths, width)
    texts = ["\n".join(_lines(row, widths)) for row in rows]
    return [texts[0], _GAP.join("-" * w for w in widths), *texts[1:]] if rule else texts


def byte_text(count: int) -> str:
    """Return a number of bytes in the largest binary unit that is not larger: `"1.50 GiB"`, `"12 B"`."""
    for unit, power in (("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10)):
        if count >= 1 << power:
            return f"{count / (1 << power):.2f} {unit}"
    return f"{count} B"


def terminal_width() -> int:
    """Return the width of the terminal in characters (the variable COLUMNS goes first), or 120."""
    return shutil.get_terminal_size((120, 24)).columns


def _fitted(widths: list[int], width: int) -> list[int]:
    """Return narrower columns: all above a limit are as wide as the limit, which is as large as fits."""
    room = width - len(_GAP) * (len(widths) - 1)
    limit = max(widths)
    while sum(min(w, limit) for w in widths) > room and limit > _NARROWEST:
        limit -= 1
    return [min(w, limit) for w in widths]


def _lines(row: Sequence[str], widths: Sequence[int]) -> list[str]:
    wrapped = [
        textwrap.wrap(cell, width, break_on_hyphens=False) if len(cell) > width else [cell]
        for cell, width in zip(row, widths, strict=True)
    ]
    return [
        _GAP.join(part.ljust(width) for part, width in zip(parts, widths, strict=True)).rstrip()
        for parts in zip_longest(*wrapped, fillvalue="")
    ]
