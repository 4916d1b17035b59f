"""Printing by a compiled program: held back while the program may still have to be undone."""

from __future__ import annotations

import io
from contextvars import ContextVar, Token
from typing import Any

__all__ = ["Held", "show"]

_held: ContextVar[list[tuple[str, bool]] | None] = ContextVar("thunder_held_output", default=None)


def show(*values: Any, sep: str | None = " ", end: str | None = "\n", flush: bool = False) -> None:
    """``print(*values)``, now or when :class:`Held` lets go of it."""
    held = _held.get()
    if held is None:
        print(*values, sep=sep, end=end, flush=flush)
        return
    text = io.StringIO()
    print(*values, sep=sep, end=end, file=text)
    held.append((text.getvalue(), flush))


class Held:
    """What :func:`show` is called with from now on is kept as text, until :meth:`let_go`."""

    __slots__ = ("_texts", "_token")

    def __init__(self) -> None:
        self._texts: list[tuple[str, bool]] = []
        self._token: Token[list[tuple[str, bool]] | None] = _held.set(self._texts)

    def let_go(self, *, printed: bool) -> None:
        """Ends the holding; prints what was held, or drops it."""
        _held.reset(self._token)
        for text, flush in self._texts if printed else ():
            show(text, end="", flush=flush)
