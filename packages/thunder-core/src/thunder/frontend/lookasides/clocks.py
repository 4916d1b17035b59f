"""Clocks in the traced program: each reading is one of the call that runs.

    start = time.perf_counter()
    y = self.layer(x)
    self.elapsed = time.perf_counter() - start     # in each call, of the kernels of this part of the program

In a checkpointed region, and in a function that is mapped over a batch, a clock is refused.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from thunder.frontend.lookasides.lookaside_registry import LookasideTable
from thunder.frontend.places import READS_CLOCK
from thunder.frontend.session import TracingSession
from thunder.ir.proxies import NumberProxy
from thunder.ops import prims
from thunder.ops.prims.clock_readings import CLOCKS

TABLE = LookasideTable(READS_CLOCK)


def _read(name: str, clock: Callable[[], Any]) -> None:
    @TABLE.lookaside(clock)
    def rule(session: TracingSession, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if args or kwargs:
            raise TypeError(f"time.{name}() takes no arguments ({len(args) + len(kwargs)} given)")
        session.place.check(READS_CLOCK, f"the program reads time.{name}()")
        return prims.read_clock(name)


for _name, _clock in CLOCKS.items():
    _read(_name, _clock)


@TABLE.lookaside(time.sleep)
def _sleep(session: TracingSession, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    session.place.check(READS_CLOCK, "the program calls time.sleep()")
    (seconds,) = args
    if not isinstance(seconds, int | float | NumberProxy):
        raise TypeError(f"'{type(seconds).__name__}' object cannot be interpreted as an integer")
    prims.python_call(time.sleep, seconds)
