"""Times without waits for a processor: what falls between two readings is in neither or in both."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext

import pytest

from thunder_bisect.slowness.runs import Limits, measured


class Machine:
    """A clock, and waits that begin at one of the readings of the two: each takes 20 ms."""

    def __init__(self, waits_at: set[int]) -> None:
        self.now = self.waits = 0.0
        self._waits_at, self._readings = waits_at, 0

    def _read(self) -> None:
        self.now += 1e-9
        self._readings += 1
        if self._readings in self._waits_at:
            self.now += 0.02
            self.waits += 0.02

    def clock(self) -> float:
        self._read()
        return self.now

    def waited(self) -> float:
        self._read()
        return self.waits


class Nothing:
    def __init__(self, machine: Machine) -> None:
        self._machine = machine

    def run(self, fn: Callable[[], None]) -> None:
        self._machine.now += 0.001

    def restore(self) -> None:
        """Do nothing."""


@pytest.mark.parametrize("reading", range(1, 12))
def test_a_wait_between_two_readings_is_left_out(monkeypatch: pytest.MonkeyPatch, reading: int) -> None:
    machine = Machine({reading})
    monkeypatch.setattr("thunder_bisect.slowness.runs._waits", lambda: nullcontext(machine.waited))
    limits = Limits(seconds=1.0, fewest=1, most=1, clock=machine.clock, without_waits=True)
    times = measured(Nothing(machine), {"form": lambda: None}, limits=limits)["form"]
    assert times.walls[0] == pytest.approx(0.001, abs=1e-6)
