"""Reads the cells of published documents on Thunder, which lie in a folder outside of this repository.

They are other people's texts. What is here is where their programs and outputs are, by lines
(`documents.published.cells`), and how deep a line is indented where the copy of a text has lost that.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
#: the variable that names the folder of the documents
VARIABLE = "THUNDER_PUBLISHED_DOCUMENTS"
#: where it is looked for otherwise: beside the checkout, or one folder up
BESIDE = ("../shared/seeds", "../../shared/seeds")

Lines = tuple[int, int]


@dataclass(frozen=True)
class Cell:
    """A program of a document.

    Attributes:
        name: the document's name of the cell.
        lines: the first and the last line of the program, counted from one.
        shown: the first and the last line of what the document shows as its output, if it does.
        device: `cuda` for a cell that has no meaning on the CPU.
        slow: whether only a whole run of the tests runs it.
        module: what it imports that may be missing.
        gpus: how many it needs where it runs on GPUs.
    """

    name: str
    lines: Lines
    shown: Lines | None = None
    device: str | None = None
    slow: bool = False
    module: str | None = None
    gpus: int = 1


@dataclass(frozen=True)
class Document:
    """A published text.

    Attributes:
        name: the beginning of the file's name.
        sha256: the beginning of the hash of the text that the lines are for.
        levels: the line → how deep it is indented, where that is less than the line before requires; None
            for a text with its indentation.
        corrected: (wrong, right) for what cannot run as it is printed.
        on_cpu: (text, replacement) for what is too big, or is on a GPU, in programs and in what they show.
    """

    name: str
    sha256: str
    cells: Sequence[Cell]
    levels: Mapping[int, int] | None = None
    corrected: Sequence[tuple[str, str]] = ()
    on_cpu: Sequence[tuple[str, str]] = ()

    def read(self) -> list[str]:
        """Return the lines of the text; raise AssertionError for another text than the one that was read."""
        folder = documents_folder()
        assert folder is not None, "the tests are skipped without it"
        (path,) = folder.glob(f"{self.name}_*")
        text = path.read_text(encoding="utf-8")
        found = hashlib.sha256(text.encode()).hexdigest()
        assert found.startswith(self.sha256), f"{path.name} has changed: the lines of its cells are unknown"
        return text.split("\n")

    def source(self, cell: Cell, device: str) -> str:
        """Return the program of a cell for a device, `cpu` or `cuda`."""
        first, last = cell.lines
        lines = self.read()[first - 1 : last]
        if self.levels is not None:
            lines = indented(lines, first, self.levels)
        return self._on(device, "\n".join(lines) + "\n", self.corrected)

    def shown(self, cell: Cell, device: str) -> str:
        """Return what the document shows as the output of a cell, as it would be on a device."""
        assert cell.shown is not None, f"{self.name} shows nothing for {cell.name}"
        first, last = cell.shown
        return self._on(device, "\n".join(self.read()[first - 1 : last]), ())

    def _on(self, device: str, text: str, corrected: Sequence[tuple[str, str]]) -> str:
        for old, new in (*corrected, *(self.on_cpu if device == "cpu" else ())):
            text = text.replace(old, new)
        return text


def documents_folder() -> Path | None:
    """Return the folder of the documents, or None where they are not."""
    named = os.environ.get(VARIABLE)
    candidates = [Path(named)] if named else [ROOT / path for path in BESIDE]
    return next((path.resolve() for path in candidates if path.is_dir()), None)


def indented(lines: Sequence[str], first: int, levels: Mapping[int, int]) -> list[str]:
    """Return lines with four blanks for each level.

    A statement that ends with a colon begins a level; `levels` has the lines at which one ends. A line within
    brackets or quotes is not changed unless it is in `levels`.
    """
    result: list[str] = []
    level = 0
    for start, end in _statements(lines):
        level = levels.get(first + start, level)
        result.append("    " * level + lines[start])
        result += ["    " * levels.get(first + k, 0) + lines[k] for k in range(start + 1, end + 1)]
        code = lines[end].partition(" #")[0].rstrip()
        level += code.endswith(":") and not lines[start].startswith("#")
    return result


def _statements(lines: Sequence[str]) -> Iterator[tuple[int, int]]:
    """Yield the first and the last line of each statement; it ends outside of brackets and quotes."""
    start = 0
    while start < len(lines):
        end, depth, quote = start, *_open(lines[start], 0, "")
        while depth or quote:
            end += 1
            depth, quote = _open(lines[end], depth, quote)
        yield start, end
        start = end + 1


def _open(line: str, depth: int, quote: str) -> tuple[int, str]:
    """Return how many brackets are open after a line, and the quotes of a text that goes on."""
    at = 0
    while at < len(line):
        if quote:
            at = line.find(quote, at)
            if at < 0:
                return depth, quote if len(quote) == 3 else ""
            at, quote = at + len(quote), ""
            continue
        character = line[at]
        if character == "#":
            break
        if character in "\"'":
            quote = line[at : at + 3] if line[at : at + 3] == 3 * character else character
            at += len(quote) - 1
        depth += (character in "([{") - (character in ")]}")
        at += 1
    return depth, quote
