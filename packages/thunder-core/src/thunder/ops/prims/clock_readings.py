"""The primitive that reads a clock of Python's module ``time`` when the program runs.

start = time.perf_counter()   →   start = read_clock("perf_counter")
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final

from thunder.base.tags import OpTags
from thunder.ir.proxies import FloatProxy, IntegerProxy, NumberProxy
from thunder.ops.operator import NONDIFFERENTIABLE
from thunder.ops.prims.declaration import primitive

__all__ = ["CLOCKS", "read_clock"]

_NAMES = ("time", "perf_counter", "monotonic", "process_time", "thread_time")

#: name → the function of ``time``; those that end with ``_ns`` return integers (nanoseconds), others seconds
CLOCKS: Final[dict[str, Callable[[], Any]]] = {
    name: getattr(time, name) for base in _NAMES for name in (base, f"{base}_ns") if hasattr(time, name)
}


def _read_clock_meta(name: str) -> NumberProxy:
    return IntegerProxy(python_type=int) if name.endswith("_ns") else FloatProxy()


def _read_clock(name: str) -> Any:
    return CLOCKS[name]()


#: reads a clock; each call is a reading of its own, in order with other effects
read_clock = primitive(
    "read_clock",
    _read_clock_meta,
    python_impl=_read_clock,
    eager=_read_clock,
    vjp=NONDIFFERENTIABLE,
    tags=(OpTags.DONT_DCE,),
)
