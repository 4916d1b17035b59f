"""The primitives that read a clock, or draw from the system's randomness, when the program runs.

start = time.perf_counter()   →   start = read_clock("perf_counter")
run = uuid.uuid4()            →   run = make_value(uuid4())
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from thunder.base import opaque_results
from thunder.base.tags import OpTags
from thunder.ir.proxies import AnyProxy, FloatProxy, IntegerProxy, NumberProxy
from thunder.ops.operator import NONDIFFERENTIABLE
from thunder.ops.prims.declaration import primitive

__all__ = ["CLOCKS", "DerivedValue", "MadeValue", "derive_value", "make_value", "read_clock"]

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


@dataclass(frozen=True, eq=False)
class MadeValue:
    """A call of a function of the system, whose result differs from call to call.

    ``number`` counts those that the program makes before: where a call begins again it has the same values.
    """

    make: Callable[..., Any]
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)
    number: int = 0

    def __repr__(self) -> str:
        arguments = [*map(repr, self.args), *(f"{name}={value!r}" for name, value in self.kwargs.items())]
        return f"{self.make.__qualname__}({', '.join(arguments)})"

    def run(self) -> Any:
        """Return a new value, or the one that this call has made."""
        make = functools.partial(self.make, *self.args, **self.kwargs)
        return opaque_results.made((self.number, repr(self)), make)


def _make_value_meta(value: MadeValue) -> AnyProxy:
    return AnyProxy()


def _make_value(value: MadeValue) -> Any:
    return value.run()


@dataclass(frozen=True, eq=False)
class DerivedValue:
    """A pure call of values of a program, whose result is of the class ``kind``."""

    fn: Callable[..., Any]
    kind: type
    kwargs: dict[str, Any] = field(default_factory=dict)

    def __repr__(self) -> str:
        return getattr(self.fn, "__qualname__", repr(self.fn))


def _derive_value_meta(value: DerivedValue, args: tuple[Any, ...]) -> AnyProxy | NumberProxy:
    if value.kind is bool or value.kind is int:
        return IntegerProxy(python_type=value.kind)
    return FloatProxy() if value.kind is float else AnyProxy()


def _derive_value(value: DerivedValue, args: tuple[Any, ...]) -> Any:
    return value.fn(*args, **value.kwargs)


#: computes a number, a text or another immutable value of values that the program has made
derive_value = primitive(
    "derive_value",
    _derive_value_meta,
    python_impl=_derive_value,
    eager=_derive_value,
    vjp=NONDIFFERENTIABLE,
    tags=(OpTags.DONT_RECOMPUTE_IN_BACKWARD,),
)


#: makes an immutable value of any type; each call is a value of its own, in order with other effects
make_value = primitive(
    "make_value",
    _make_value_meta,
    python_impl=_make_value,
    eager=_make_value,
    vjp=NONDIFFERENTIABLE,
    tags=(OpTags.DONT_DCE, OpTags.DONT_RECOMPUTE_IN_BACKWARD),
)
