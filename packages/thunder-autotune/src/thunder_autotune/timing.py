"""How candidates are timed: in turns, with median and spread."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import quantiles
from typing import Any, Protocol

from thunder_autotune.entries import Figure
from thunder_bisect.slowness.answer import Times
from thunder_bisect.slowness.runs import Limits, Repeated, measured

__all__ = ["PROGRAM", "UNIT", "Timer", "WallTimer", "figure_of"]

#: limits of the runs of one candidate of a unit, and of the whole program
UNIT = Limits(seconds=0.05, fewest=9, most=60, without_waits=True)
PROGRAM = Limits(seconds=0.6, fewest=15, most=60, without_waits=True)


class Timer(Protocol):
    """What measures: functions take turns, so that what slows the machine down slows all of them."""

    def unit(self, call: Repeated, forms: Mapping[str, Callable[..., Any]]) -> dict[str, Times]:
        """Return the times of the candidates of a unit."""

    def program(self, call: Repeated, forms: Mapping[str, Callable[..., Any]]) -> dict[str, Times]:
        """Return the times of forms of the whole program."""


@dataclass(frozen=True)
class WallTimer:
    """The timer of this machine: wall time, after a GPU has finished.

    What the thread has waited for a processor, while other programs ran, is left out.
    """

    units: Limits = UNIT
    programs: Limits = PROGRAM

    def unit(self, call: Repeated, forms: Mapping[str, Callable[..., Any]]) -> dict[str, Times]:
        """Return the times of the candidates of a unit."""
        return measured(call, forms, limits=self.units)

    def program(self, call: Repeated, forms: Mapping[str, Callable[..., Any]]) -> dict[str, Times]:
        """Return the times of forms of the whole program."""
        return measured(call, forms, limits=self.programs)


def figure_of(times: Times) -> Figure:
    """Return the median and half the distance between the quartiles, in microseconds."""
    if len(times.walls) < 2:
        return Figure(times.wall * 1e6)
    low, _, high = quantiles(times.walls, n=4, method="inclusive")
    return Figure(times.wall * 1e6, (high - low) / 2 * 1e6)
