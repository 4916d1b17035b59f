"""The user's files, highlighted line by line with pygments."""

from __future__ import annotations

import linecache
from pathlib import Path

from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import PythonLexer

from thunder_report.model import Place, SourceFile

__all__ = ["SourceFiles"]

#: lines of a longer file that are shown round those that a trace names
_LONGEST, _AROUND = 6_000, 400


class SourceFiles:
    """The files that statements name, in the order in which they were named."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self._lines: dict[str, set[int]] = {}

    def place(self, file: str, line: int, inner: str, module: str) -> Place:
        """Return the place of a line, and note the line."""
        self._lines.setdefault(file, set()).add(line)
        return Place(self._numbers.setdefault(file, len(self._numbers)), line, inner, module)

    def collected(self) -> tuple[SourceFile, ...]:
        """Return the files. One that cannot be read any more has no lines."""
        return tuple(self._file(path) for path in self._numbers)

    def _file(self, path: str) -> SourceFile:
        lines = linecache.getlines(path)
        first, last = 1, len(lines)
        if len(lines) > _LONGEST:
            named = self._lines[path]
            first, last = max(1, min(named) - _AROUND), min(len(lines), max(named) + _AROUND)
        text = "".join(lines[first - 1 : last])
        return SourceFile(path, Path(path).name, first, _highlighted(text) if text else ())


def _highlighted(text: str) -> tuple[str, ...]:
    """Return each line as HTML: escaped text, with tokens in spans with pygments' classes."""
    lexer = PythonLexer(stripnl=False, ensurenl=True)
    html = highlight(text, lexer, HtmlFormatter(nowrap=True))
    return tuple(html.removesuffix("\n").split("\n"))
