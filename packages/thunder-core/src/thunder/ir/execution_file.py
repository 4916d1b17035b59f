"""Running traces from a file that the user may edit: `thunder.set_execution_callback_file`."""

from __future__ import annotations

import sys
from contextvars import ContextVar
from pathlib import Path

__all__ = ["runs_from_file", "set_execution_callback_file", "text_to_run"]

_file: ContextVar[Path | None] = ContextVar("thunder_execution_file", default=None)


def set_execution_callback_file(path: str | Path | None) -> None:
    """Write each trace that is compiled from now on to a file, and run the text that is there then.

    Each trace replaces the one before. Where standard input is a terminal, the compile waits for Enter, so
    that the file can be edited. None ends this. The setting belongs to the current context (`contextvars`).
    """
    _file.set(None if path is None else Path(path))


def runs_from_file() -> bool:
    """Return whether what runs is what is in the user's file, and may be another program than the trace."""
    return _file.get() is not None


def text_to_run(text: str) -> str:
    """Return the text of a trace after it has been in the user's file; the text itself without a file."""
    path = _file.get()
    if path is None:
        return text
    path.write_text(text, encoding="utf-8")
    if sys.stdin is not None and sys.stdin.isatty():
        input(f"thunder wrote the next trace to {path}; Enter runs what is there: ")
    return path.read_text(encoding="utf-8")
