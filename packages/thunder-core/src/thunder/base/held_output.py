"""Output of a compiled program, held back while the program may still have to be undone."""

from __future__ import annotations

import functools
import io
from collections.abc import Callable
from contextvars import ContextVar, Token
from typing import Any

from thunder.base.shown_tensors import as_it_is_now

__all__ = ["Held", "perform", "show"]

_held: ContextVar[list[Callable[[], object]] | None] = ContextVar("thunder_held_output", default=None)


def show(*values: Any, sep: str | None = " ", end: str | None = "\n", flush: bool = False) -> None:
    """Print the values, now or when :meth:`Held.release` is called."""
    held = _held.get()
    if held is None:
        print(*values, sep=sep, end=end, flush=flush)
        return
    text = io.StringIO()
    print(*values, sep=sep, end=end, file=text)
    held.append(functools.partial(show, text.getvalue(), end="", flush=flush))


def perform(fn: Callable[..., object], *args: Any, **kwargs: Any) -> None:
    """Call ``fn`` (a warning or the like), now or when :meth:`Held.release` is called.

    A later call gets the tensors as they are now.
    """
    held = _held.get()
    if held is None:
        fn(*args, **kwargs)
    else:
        held.append(functools.partial(fn, *as_it_is_now(args), **as_it_is_now(kwargs)))


class Held:
    """Holds back the calls of :func:`show` and :func:`perform` until :meth:`release`."""

    __slots__ = ("_actions", "_token")

    def __init__(self) -> None:
        self._actions: list[Callable[[], object]] = []
        self._token: Token[list[Callable[[], object]] | None] = _held.set(self._actions)

    def release(self, *, printed: bool) -> None:
        """Stop holding back; perform what was held back, or drop it."""
        _held.reset(self._token)
        for action in self._actions if printed else ():
            action()
