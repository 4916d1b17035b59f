"""Which numbers a compiled function has as inputs, see Note [Numbers that vary]."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from thunder.base.errors import RaisedByProgram, ThunderError
from thunder.compiler.stats import RecompileReason
from thunder.frontend.acquire import Acquisition

__all__ = ["VaryingNumbers"]


class VaryingNumbers:
    """The numbers of a compiled function that vary from call to call, by the sources of their paths."""

    def __init__(self) -> None:
        self.sources: frozenset[str] = frozenset()
        self._fixed: frozenset[str] = frozenset()

    def note(self, reasons: Iterable[RecompileReason]) -> None:
        """Note the numbers that a program has written and whose facts have failed."""
        varying = {
            reason.source
            for reason in reasons
            if type(reason.expected) in (int, float)
            and type(reason.found) is type(reason.expected)
            and reason.source in reason.entry.written
        }
        self.sources |= varying - self._fixed

    def acquired(
        self, acquire: Callable[[frozenset[str]], Acquisition], varying: frozenset[str]
    ) -> Acquisition:
        """Return the program with numbers as inputs; with fewer where it needs their values."""
        while varying:
            try:
                program = acquire(varying)
            except RaisedByProgram:
                raise
            except ThunderError:
                needed = varying
            else:
                needed = program.needed_values
                if not needed:
                    return program
            self._fixed |= needed
            self.sources -= needed
            varying -= needed
        return acquire(varying)
