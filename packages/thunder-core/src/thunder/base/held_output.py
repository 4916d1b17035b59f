"""Output of a compiled program: held back while the program may still have to be undone."""

from __future__ import annotations

import functools
import io
from collections.abc import Callable
from contextvars import ContextVar, Token
from typing import Any

__all__ = ["Held", "perform", "show"]

_held: ContextVar[list[Callable[[], object]] | None] = ContextVar("thunder_held_output", default=None)


def show(*values: Any, sep: str | None = " ", end: str | None = "\n", flush: bool = False) -> None:
    """``print(*values)``, now or when :class:`Held` lets go of it."""
    held = _held.get()
    if held is None:
        print(*values, sep=sep, end=end, flush=flush)
        return
    text = io.StringIO()
    print(*values, sep=sep, end=end, file=text)
    held.append(functools.partial(show, text.getvalue(), end="", flush=flush))


def perform(fn: Callable[..., object], *args: Any, **kwargs: Any) -> None:
    """``fn(*args, **kwargs)``, a warning or the like, now or when :class:`Held` lets go of it."""
    held = _held.get()
    if held is None:
        fn(*args, **kwargs)
    else:
        held.append(functools.partial(fn, *args, **kwargs))


class Held:
    """What :func:`show` and :func:`perform` are called with from now on is kept, until :meth:`let_go`."""

    __slots__ = ("_actions", "_token")

    def __init__(self) -> None:
        self._actions: list[Callable[[], object]] = []
        self._token: Token[list[Callable[[], object]] | None] = _held.set(self._actions)

    def let_go(self, *, printed: bool) -> None:
        """Ends the holding; puts out what was held, or drops it."""
        _held.reset(self._token)
        for action in self._actions if printed else ():
            action()
