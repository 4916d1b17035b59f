"""Which numbers a compiled function has as inputs, see Note [Numbers that vary]."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from thunder.base.errors import RaisedByProgram, StateChanged, UnsupportedProgram
from thunder.compiler.stats import RecompileReason
from thunder.frontend.acquire import Acquisition
from thunder.frontend.ran_code import refuse_another_trace

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
        """Return the program with numbers as inputs; with fewer where it needs their values.

        A program that raises with numbers as inputs is acquired with their values: operations that Python
        has for numbers alone, in code that is not interpreted, raise TypeErrors for others.
        """
        raised: RaisedByProgram | None = None
        while varying:
            try:
                program = acquire(varying)
            except RaisedByProgram as error:
                raised = error
                break
            except StateChanged:
                raise
            except UnsupportedProgram:
                needed = varying
            else:
                needed = program.needed_values
                if not needed:
                    return program
                refuse_another_trace(program.is_for_one_call)
            self._fix(needed)
            varying -= needed
        try:
            program = acquire(frozenset() if raised is not None else varying)
        except RaisedByProgram as error:
            if raised is not None and type(error.error) is not type(raised.error):
                self._fix(varying)
            raise
        if raised is not None:
            self._fix(varying)
        return program

    def _fix(self, sources: frozenset[str]) -> None:
        """Note numbers whose values the program needs."""
        self._fixed |= sources
        self.sources -= sources
