"""What was found out about the time of a program."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import mean, median
from textwrap import fill

from thunder.core.errors import Location
from thunder_bisect.slowness.texts import counted, place_text, share_text, time_text

__all__ = ["Finding", "LongStatement", "Slowness", "Times"]


@dataclass(frozen=True)
class Times:
    """The times of some calls in seconds: of each by the clock, and of all threads of the process."""

    walls: tuple[float, ...]
    cpus: tuple[float, ...]

    @property
    def wall(self) -> float:
        """The median by the clock."""
        return median(self.walls)

    @property
    def cpu(self) -> float:
        """The median of all threads of the process."""
        return median(self.cpus)

    @property
    def fastest(self) -> float:
        """The time of the fastest call by the clock, in which other programs of the machine are least."""
        return min(self.walls)

    def exceeds(self, other: Times) -> float:
        """Return the share of calls that took longer than those of `other` with which they took turns."""
        return mean(own > others for own, others in zip(self.walls, other.walls, strict=True))


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One reason why a call takes long.

    Attributes:
        kind: the name of the rule that found it, such as ``"guards"``.
        seconds: what it costs at most in each call, measured in the fastest; of ``"first call"`` that call
            alone; None where it costs memory, not time.
        share: `seconds` as a part of the fastest call (above 1 where it is not in a warm call), or None.
        evidence: what was measured and counted.
        advice: what to try.
        where: the user's lines, those that cost most first.
    """

    kind: str
    seconds: float | None
    share: float | None
    evidence: str
    advice: str
    where: Sequence[Location] = ()

    def __str__(self) -> str:
        cost = "" if self.seconds is None else f"  {time_text(self.seconds)}"
        cost += "" if self.share is None else f" ({share_text(self.share)} of a call)"
        lines = [f"{self.kind}{cost}", _paragraph("", self.evidence)]
        lines += [f"      at {place_text(location)}" for location in self.where]
        return "\n".join([*lines, _paragraph("try: ", self.advice)])


def _paragraph(label: str, text: str) -> str:
    indent = "    "
    return fill(
        text,
        110,
        initial_indent=indent + label,
        subsequent_indent=indent + " " * len(label),
        break_long_words=False,
        break_on_hyphens=False,
    )


@dataclass(frozen=True, kw_only=True)
class LongStatement:
    """A statement that takes long.

    Attributes:
        seconds: its time in each call.
        operator: what it calls; of a region its function, with the number of calls.
        in_backward: whether it is one of the backward.
        module: the name of the module that calls it, or of the one around all calls of a region.
        where: the user's lines; a region may have many.
    """

    seconds: float
    operator: str
    in_backward: bool
    module: str
    where: Sequence[Location]

    def __str__(self) -> str:
        parts = [
            f"{time_text(self.seconds):>8}",
            self.operator,
            "of the backward" if self.in_backward else "",
        ]
        place = f"at {place_text(self.where[0])}" if self.where else ""
        if len(self.where) > 1:
            place += f", and {counted(len(self.where) - 1, 'other line')}"
        return "  ".join(filter(None, [*parts, self.module, place]))


@dataclass(frozen=True, kw_only=True)
class Slowness:
    """The answer of `thunder.why_slow`; `str()` is its text.

    Attributes:
        findings: the reasons, the most expensive one first; empty if nothing stands out.
        compiled, eager: the times of a call, with its backward if a result requires grad.
        with_backward: whether they have a backward.
        guards: the time of the prologue in seconds, in the fastest call.
        statements: the time of the statements of forward and backward, in the call where it is least.
        longest: those that take longest.
        notes: what the program changes outside of itself, and what has become of it.
    """

    findings: Sequence[Finding]
    compiled: Times
    eager: Times
    with_backward: bool
    guards: float
    statements: float
    longest: Sequence[LongStatement] = ()
    notes: Sequence[str] = ()

    @property
    def speedup(self) -> float:
        """How many times as fast as eager the compiled program is, by the clock."""
        return self.eager.wall / self.compiled.wall

    def __str__(self) -> str:
        call = "a call with its backward" if self.with_backward else "a call"
        own, eager = self.compiled, self.eager
        rest = max(own.fastest - self.guards - self.statements, 0.0)
        lines = [
            f"{call}: {time_text(own.wall)} compiled, {time_text(eager.wall)} eager: "
            f"{self.speedup:.2f} times as fast (CPU {time_text(own.cpu)} and {time_text(eager.cpu)})",
            f"the fastest one: {time_text(own.fastest)}, of it guards {time_text(self.guards)}, statements "
            f"{time_text(self.statements)}, the rest {time_text(rest)}",
            *(f"  {statement}" for statement in self.longest),
        ]
        if not self.findings:
            lines += ["", "nothing stands out"]
        for number, finding in enumerate(self.findings, start=1):
            lines += ["", f"{number}. {finding}"]
        return "\n".join([*lines, *([""] if self.notes else []), *self.notes])
