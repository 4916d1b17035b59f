"""Notes on the errors of compiled programs: the user's line, and the function that raised.

The traceback shows the statement of the generated text. The user's line is a comment above it.

    IndexError: index out of range in self
    while the compiled program ran  t0 = lookup(indices, table)
      at  model.py:41   x = embed(tokens)
      lookup:  from thunder-acme 0.3.1, thunder_acme.kernels
"""

from __future__ import annotations

import linecache
import re
from collections.abc import Iterator, Sequence
from types import FrameType
from typing import Any, NamedTuple

from thunder.base.errors import Location, ThunderError
from thunder.base.extension_origin import module_of, origin_of

__all__ = ["Callee", "callees_until_failure", "failed_callee", "is_foreign", "note_call", "note_statement"]

_LINE = re.compile(r"\s*# (.+):(\d+): \t(.*)")
_CALL = re.compile(r"(?:.* = )?([A-Za-z_][\w.]*)\(")
_WORDS = "while the compiled program ran"


def note_statement(error: BaseException) -> None:
    """Add a note with the statement to an error of a compiled program, at most once.

    Errors of thunder, which have their own lines, get none.
    """
    position = _statement(error) if _may_note(error) else None
    if position is None:
        return
    frame, line = position
    file = frame.f_code.co_filename
    statement = _text(frame, line)
    note = _note(statement, next(_sources(file, line), None))
    called = _CALL.match(statement)
    if called is not None and called[1] in frame.f_globals:
        note += f"\n  {called[1]}:  from {origin_of(frame.f_globals[called[1]])}"
    error.add_note(note)


def note_call(error: BaseException, statement: str, sources: Sequence[Location]) -> None:
    """Add a note with a call inside of a statement, and the first of its lines, as `note_statement` does."""
    if _may_note(error):
        error.add_note(_note(statement, next(iter(sources), None)))


def _may_note(error: BaseException) -> bool:
    return not (
        isinstance(error, ThunderError) or any(n.startswith(_WORDS) for n in getattr(error, "__notes__", ()))
    )


def _note(statement: str, source: Location | None) -> str:
    return f"{_WORDS}  {statement}" if source is None else f"{_WORDS}  {statement}\n  at  {source}"


class Callee(NamedTuple):
    """The callee of a statement: the last part of its name, and the function or None."""

    name: str
    function: Any


def failed_callee(error: BaseException) -> Callee | None:
    """Return the callee of the statement that raised ``error``, or None.

    It is None if no statement of a compiled program raised it.
    """
    position = _statement(error)
    called = _CALL.match(_text(*position)) if position is not None else None
    if position is None or called is None:
        return None
    return Callee(called[1].rpartition(".")[2], position[0].f_globals.get(called[1]))


def callees_until_failure(error: BaseException) -> frozenset[str]:
    """Return the last parts of the names of the callees up to the statement that raised ``error``.

    Empty if no statement of a compiled program raised it.
    """
    position = _statement(error)
    if position is None:
        return frozenset()
    frame, line = position
    texts = linecache.getlines(frame.f_code.co_filename)[:line]
    calls = (_CALL.match(text.strip()) for text in texts)
    return frozenset(called[1].rpartition(".")[2] for called in calls if called is not None)


def is_foreign(callee: Callee) -> bool:
    """Return whether the callee is a function of neither torch nor thunder."""
    if callee.function is None:
        return False
    return module_of(callee.function).partition(".")[0] not in ("torch", "thunder", "builtins")


def _text(frame: FrameType, line: int) -> str:
    """Return the statement at this line of a generated text."""
    return linecache.getline(frame.f_code.co_filename, line).partition("  # ")[0].strip()


def _statement(error: BaseException) -> tuple[FrameType, int] | None:
    """Return the innermost frame of a generated text in the traceback, and its line."""
    entry, innermost = error.__traceback__, None
    while entry is not None:
        if entry.tb_frame.f_code.co_filename.startswith("<thunder."):
            innermost = entry.tb_frame, entry.tb_lineno
        entry = entry.tb_next
    return innermost


def _sources(file: str, line: int) -> Iterator[Location]:
    """Yield the user's lines above a statement, nearest first."""
    for above in range(line - 1, 0, -1):
        match = _LINE.fullmatch(linecache.getline(file, above).rstrip("\n"))
        if match is not None:
            yield Location(match[1], int(match[2]), match[3].strip())
