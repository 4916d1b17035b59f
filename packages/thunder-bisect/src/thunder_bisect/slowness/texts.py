"""Times, shares and lines as texts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from textwrap import shorten

from thunder.core.errors import Location
from thunder_transforms.profile_tables import time_text as nanoseconds_text

__all__ = ["counted", "listed", "place_text", "share_text", "time_text"]


def time_text(seconds: float) -> str:
    """Return a time with its unit: `"12.3 µs"`."""
    return nanoseconds_text(round(seconds * 1e9))


def share_text(share: float) -> str:
    """Return a share of a call: `"23 %"`, or `"12 times the time"` if it is more than a call."""
    return f"{share:.0%}".replace("%", " %") if share < 2 else f"{share:,.0f} times the time"


def place_text(location: Location) -> str:
    """Return a line of the program with the name of its file, and the beginning of its text."""
    return f"{Path(location.file).name}:{location.line}   {shorten(location.text, 80)}".rstrip()


def listed(names: Iterable[str], most: int = 3) -> str:
    """Return the most frequent of some names with their numbers: `"add (12), mul (3) and 4 others"`."""
    counts = Counter(names).most_common()
    shown = [name if n == 1 else f"{name} ({n})" for name, n in counts[:most]]
    rest = sum(n for _, n in counts[most:])
    return ", ".join(shown) + (f" and {rest} others" if rest else "")


def counted(number: int, noun: str) -> str:
    """Return a number with its noun: `"1 call"`, `"12 calls"`."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
