"""Decides whether fusion executors compile the regions of a program, sketch them, or leave them.

Note [Sketched regions]
Who compares several programs needs their memory, and compiling a region takes seconds. A sketched region is
a call with the inputs, outputs and calls of the region, and without code:

    [t1, t3] = myFusion0(x)     # as compiled

Its memory is guessed: elementwise calls store nothing, others as if they ran one by one. What the code needs
is known when it is compiled. A program with a sketch cannot run.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from contextvars import ContextVar
from typing import Any, Final, Literal, Never, get_args

from thunder.base.context_variables import assigned
from thunder.base.errors import InvalidArgument
from thunder.base.tags import OpenTag
from thunder.ir.symbol import BoundSymbol

__all__ = ["REGION_MODES", "RegionMode", "is_sketch", "no_code", "region_mode", "regions_are", "sketch"]

RegionMode = Literal["compiled", "sketched", "left"]

REGION_MODES: Final[tuple[RegionMode, ...]] = get_args(RegionMode)

_mode: ContextVar[RegionMode] = ContextVar("thunder_region_mode", default="compiled")


def region_mode() -> RegionMode:
    """Return what is done with regions now."""
    return _mode.get()


def regions_are(mode: RegionMode) -> AbstractContextManager[None]:
    """Within the context, do this with regions; raise InvalidArgument for another word."""
    if mode not in REGION_MODES:
        raise InvalidArgument(f"regions are {', '.join(REGION_MODES)}", found={"regions": mode})
    return assigned(_mode, mode)


_SKETCH: Final = OpenTag("SKETCH")


def sketch(bsym: BoundSymbol) -> BoundSymbol:
    """Return the call of a region as one of a sketch."""
    return bsym.from_bsym(tags=bsym.own_tags | {_SKETCH})


def is_sketch(bsym: BoundSymbol) -> bool:
    """Return whether a call is the sketch of a region."""
    return _SKETCH in bsym.own_tags


def no_code(*inputs: Any) -> Never:
    """Raise AssertionError: a sketch is not run."""
    raise AssertionError("a sketched region has no code")
