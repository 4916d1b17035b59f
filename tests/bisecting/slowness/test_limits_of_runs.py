"""Functions that are timed in turns: how often, by which clock, and without waits for a processor."""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from thunder_bisect.slowness.runs import Limits, measured

#: where Linux counts how long a thread has waited
COUNTS = Path("/proc/thread-self/schedstat")


class Repeated:
    """Calls a function, and notes that it has restored what it had written."""

    def __init__(self) -> None:
        self.restored = 0

    def run(self, fn: Callable[..., Any]) -> Any:
        return fn()

    def restore(self) -> None:
        self.restored += 1


class Clock:
    """A clock that functions turn on, in seconds."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def taking(self, seconds: float) -> Callable[[], None]:
        def run() -> None:
            self.now += seconds

        return run


def test_functions_take_turns_by_a_given_clock() -> None:
    clock, call = Clock(), Repeated()
    order: list[str] = []
    forms = {"a": clock.taking(1.0), "b": clock.taking(2.0)}
    times = measured(call, forms, order.append, Limits(seconds=1e9, fewest=2, most=3, clock=clock))
    assert order == ["a", "b"] * 3
    assert (times["a"].walls, times["b"].walls) == ((1.0,) * 3, (2.0,) * 3)
    assert call.restored == 6


def test_time_ends_the_runs_after_the_fewest() -> None:
    clock = Clock()
    limits = Limits(seconds=1.0, fewest=2, most=100, clock=clock)
    times = measured(Repeated(), {"a": clock.taking(0.9)}, limits=limits)
    assert times["a"].walls == (0.9, 0.9)


def busy(seconds: float) -> None:
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass


@pytest.mark.skipif(not COUNTS.exists(), reason="only Linux counts how long a thread has waited")
def test_waits_for_a_processor_are_left_out() -> None:
    """On one processor beside another busy process, 60 ms of work take about 120 by the clock."""
    processors = os.sched_getaffinity(0)
    one = {min(processors)}
    os.sched_setaffinity(0, one)
    other = multiprocessing.get_context("fork").Process(target=busy, args=(30.0,))
    other.start()
    try:
        limits = Limits(seconds=1e9, fewest=3, most=3, without_waits=True)
        begin = time.perf_counter()
        times = measured(Repeated(), {"busy": lambda: busy(0.06)}, limits=limits)
        took = time.perf_counter() - begin
    finally:
        other.kill()
        other.join()
        os.sched_setaffinity(0, processors)
    assert max(times["busy"].walls) < 0.09
    assert took > 3 * 0.08


def test_sleep_is_not_a_wait_for_a_processor() -> None:
    limits = Limits(seconds=1e9, fewest=3, most=3, without_waits=True)
    times = measured(Repeated(), {"asleep": lambda: time.sleep(0.02)}, limits=limits)
    assert min(times["asleep"].walls) > 0.015
