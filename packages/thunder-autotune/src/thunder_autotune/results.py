"""What a tuning returns: the tuned program, the decisions with their figures, and what was not measured."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from thunder_autotune.entries import Entries, Figure, time_text
from thunder_autotune.lock_writing import add_to
from thunder_autotune.profiles import counted

__all__ = ["Tuning"]


@dataclass(frozen=True, kw_only=True)
class Tuning:
    """What was measured and decided; `str()` is a table.

    Attributes:
        compiled: the program with the decisions, with the settings of the one that was tuned.
        entries: the decisions, with the figures.
        default: the time of the program without them, or None where it was not measured.
        tuned: the time of the program with them.
        why: why the program is as it was, or "".
        skipped: what was not measured, with the reasons.
        measured: how many units were measured now, and not before.
        seconds: how long it took.
        is_complete: whether the time was enough for everything.
    """

    compiled: Any
    entries: Entries
    default: Figure | None
    tuned: Figure | None
    why: str
    skipped: Mapping[str, str]
    measured: int
    seconds: float
    is_complete: bool

    def save(self, path: str | os.PathLike[str]) -> None:
        """Add the entries to a lock file, which is made if there is none."""
        add_to(path, self.entries)

    def __str__(self) -> str:
        changed = sum(entry.executor != entry.default for entry in self.entries)
        lines = [
            f"{counted(len(self.entries), 'call')} and regions with several candidates, "
            f"{changed} not run as by default, in {self.seconds:.1f} s"
        ]
        if self.default is not None and self.tuned is not None:
            lines.append(
                f"program: {time_text(self.default.us)} by default, {time_text(self.tuned.us)} tuned"
            )
        lines += [f"as by default: {self.why}"] if self.why else []
        for entry in self.entries:
            name = f"region of {entry.calls}" if entry.kind == "region" else entry.key
            lines.append(f"  {entry.executor}: {name}\n    {entry.text()}")
            lines += [f"    {entry.reason}"] if entry.reason else []
        lines += [f"  not measured: {what}: {why}" for what, why in self.skipped.items()]
        lines += [] if self.is_complete else ["the time was over before everything was measured"]
        return "\n".join(lines)

    __repr__ = __str__
