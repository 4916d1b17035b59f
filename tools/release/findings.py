"""The rows of the table that a release check prints."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass, field

__all__ = ["Finding", "Findings"]


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check of one package; without a fault it passed."""

    package: str
    check: str
    faults: tuple[str, ...] = ()
    #: seconds
    took: float = 0.0


@dataclass(slots=True)
class Findings:
    """All results so far; each is printed when it is there."""

    rows: list[Finding] = field(default_factory=list)
    _last: float = field(default_factory=time.perf_counter)

    def add(self, package: str, check: str, faults: Iterable[str] = ()) -> None:
        """Add a result, with the seconds since the last one."""
        now = time.perf_counter()
        row = Finding(package, check, tuple(faults), now - self._last)
        self._last = now
        self.rows.append(row)
        print(_line(row), flush=True)
        for fault in row.faults:
            print(_indented(fault), file=sys.stderr, flush=True)

    @property
    def failed(self) -> list[Finding]:
        """The results with faults."""
        return [row for row in self.rows if row.faults]

    def table(self) -> str:
        """Return a table: a row for each package, a column for each check."""
        checks = list(dict.fromkeys(row.check for row in self.rows))
        packages = list(dict.fromkeys(row.package for row in self.rows))
        cells = {(row.package, row.check): "FAILED" if row.faults else "ok" for row in self.rows}
        lines = [["package", *checks]]
        lines += [[package, *(cells.get((package, check), "") for check in checks)] for package in packages]
        widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
        return "\n".join(
            "  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip()
            for line in lines
        )


def _line(row: Finding) -> str:
    return f"{'FAILED' if row.faults else 'ok':8}{row.package:44}{row.check:18}{row.took:6.1f} s"


def _indented(text: str) -> str:
    return "\n".join(f"        {line}" for line in text.splitlines())
