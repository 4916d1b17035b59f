"""A progress bar of the optional library tqdm, for work that takes longer than expected."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, Final, TextIO

from thunder.base.optional_modules import optional_module

__all__ = ["DELAY", "ProgressBar"]

#: seconds after which a bar is shown
DELAY: Final = 2.0


class ProgressBar:
    """A bar that is shown on a terminal once the work has taken `DELAY` seconds.

    It is a context manager, which removes the bar at its end.

    Args:
        total: the number of pieces of work.
        description: the text before the bar.
        enabled: False never shows it; nor is it shown where `stream` is not a terminal or tqdm is missing.
        stream: the terminal, by default standard error.
        clock: returns the time in seconds.
    """

    def __init__(
        self,
        total: int,
        description: str,
        *,
        enabled: bool = True,
        stream: TextIO | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._total, self._description, self._clock = total, description, clock
        self._stream = sys.stderr if stream is None else stream
        self._can_show = enabled and _is_terminal(self._stream)
        self._start, self._done = clock(), 0
        self._bar: Any = None

    def advance(self, pieces: int = 1) -> None:
        """Count pieces of work as done."""
        self._done += pieces
        if self._bar is not None:
            self._bar.update(pieces)
        self.refresh()

    def refresh(self) -> None:
        """Show the bar if the work has taken long enough and is not done."""
        if self.seconds_left != 0 or self._done >= self._total:
            return
        tqdm = optional_module("tqdm")
        if tqdm is None:
            self._can_show = False
            return
        self._bar = tqdm.tqdm(
            total=self._total,
            initial=self._done,
            desc=self._description,
            file=self._stream,
            leave=False,
        )

    @property
    def seconds_left(self) -> float | None:
        """The seconds until `refresh` shows the bar; None if it never does or has done so."""
        if not self._can_show or self._bar is not None:
            return None
        return max(0.0, self._start + DELAY - self._clock())

    def __enter__(self) -> ProgressBar:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.close()


def _is_terminal(stream: TextIO | None) -> bool:
    """Return whether a stream is an open terminal; standard error may be None or closed."""
    return stream is not None and not stream.closed and stream.isatty()
