"""What is told of an error that a compiled program raises: the user's line, and whose function it was.

The traceback shows the statement of the generated text. Above it stands the user's line as a comment.

    IndexError: index out of range in self
    while the compiled program ran  t0 = lookup(indices, table)
      at  model.py:41   x = embed(tokens)
      lookup:  from thunder-acme 0.3.1, thunder_acme.kernels
"""

from __future__ import annotations

import linecache
import re
from collections.abc import Iterator
from types import FrameType

from thunder.core.errors import Location, ThunderError
from thunder.core.origins import origin_of

__all__ = ["note_statement"]

_LINE = re.compile(r"\s*# (.+):(\d+): \t(.*)")
_CALL = re.compile(r"(?:.* = )?([A-Za-z_]\w*)\(")
_WORDS = "while the compiled program ran"


def note_statement(error: BaseException) -> None:
    """Adds a note to an error that came out of a compiled program, unless it has one, or knows its place."""
    if isinstance(error, ThunderError) or any(n.startswith(_WORDS) for n in getattr(error, "__notes__", ())):
        return
    found = _statement(error)
    if found is None:
        return
    frame, line = found
    file = frame.f_code.co_filename
    statement = linecache.getline(file, line).partition("  # ")[0].strip()
    note = f"{_WORDS}  {statement}"
    source = next(_sources(file, line), None)
    if source is not None:
        note += f"\n  at  {source}"
    callee = _CALL.match(statement)
    if callee is not None and callee[1] in frame.f_globals:
        note += f"\n  {callee[1]}:  from {origin_of(frame.f_globals[callee[1]])}"
    error.add_note(note)


def _statement(error: BaseException) -> tuple[FrameType, int] | None:
    """The innermost frame of a generated text, and the line that it was at."""
    entry, found = error.__traceback__, None
    while entry is not None:
        if entry.tb_frame.f_code.co_filename.startswith("<thunder."):
            found = entry.tb_frame, entry.tb_lineno
        entry = entry.tb_next
    return found


def _sources(file: str, line: int) -> Iterator[Location]:
    """The user's lines above a statement, nearest first."""
    for above in range(line - 1, 0, -1):
        match = _LINE.fullmatch(linecache.getline(file, above).rstrip("\n"))
        if match is not None:
            yield Location(match[1], int(match[2]), match[3].strip())
