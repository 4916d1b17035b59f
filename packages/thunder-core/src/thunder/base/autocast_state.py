"""Torch's autocast state as a value, and functions that run under one.

Generated programs run with autocast off: the casts that it would insert are operators of the trace already.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import ParamSpec, TypeVar, overload

import torch

P = ParamSpec("P")
R = TypeVar("R")

#: the device types that have an autocast state; reading that of a type which this build lacks calls no driver
AUTOCAST_DEVICES = ("cpu", "cuda")


@dataclass(frozen=True)
class AutocastState:
    """The autocast state of every device type.

    ``dtypes`` has the dtype to which autocast casts on each of ``AUTOCAST_DEVICES``, or None where it is off.
    ``keeps_casts`` tells whether torch keeps the casts of weights for later calls.
    """

    dtypes: tuple[torch.dtype | None, ...]
    keeps_casts: bool

    @property
    def label(self) -> str:
        """The state as part of a name, such as ``cpu_bfloat16``."""
        pairs = zip(AUTOCAST_DEVICES, self.dtypes, strict=True)
        on = [f"{kind}_{str(dtype).removeprefix('torch.')}" for kind, dtype in pairs if dtype]
        return "_".join(on if self.keeps_casts else [*on, "uncached"])


#: autocast is off on every device
OFF = AutocastState((None,) * len(AUTOCAST_DEVICES), keeps_casts=True)


def autocast_now() -> AutocastState:
    """Return the state that is active now."""
    dtypes = (torch.get_autocast_dtype(k) if torch.is_autocast_enabled(k) else None for k in AUTOCAST_DEVICES)
    return AutocastState(tuple(dtypes), torch.is_autocast_cache_enabled())


def autocast_kinds() -> set[str]:
    """Return the kinds of device for which autocast is on now."""
    return {kind for kind in AUTOCAST_DEVICES if torch.is_autocast_enabled(kind)}


@contextlib.contextmanager
def autocast_as(state: AutocastState) -> Iterator[None]:
    """Within the context, torch's autocast is in ``state``.

    Casts of weights are cached only where gradients are recorded: a cast that was computed without gradients
    must not be reused by a later call of the caller.
    """
    before = [(k, torch.is_autocast_enabled(k), torch.get_autocast_dtype(k)) for k in AUTOCAST_DEVICES]
    was_caching = torch.is_autocast_cache_enabled()
    torch.autocast_increment_nesting()
    try:
        torch.set_autocast_cache_enabled(state.keeps_casts and torch.is_grad_enabled())
        for kind, dtype in zip(AUTOCAST_DEVICES, state.dtypes, strict=True):
            torch.set_autocast_enabled(kind, dtype is not None)
            if dtype is not None:
                torch.set_autocast_dtype(kind, dtype)
        yield
    finally:
        if torch.autocast_decrement_nesting() == 0:
            torch.clear_autocast_cache()
        torch.set_autocast_cache_enabled(was_caching)
        for kind, enabled, was in before:
            torch.set_autocast_enabled(kind, enabled)
            torch.set_autocast_dtype(kind, was)


def autocast_off() -> contextlib.AbstractContextManager[None]:
    """Within the context, autocast is off on every kind of device."""
    return autocast_as(OFF)


@functools.cache
def under_autocast(state: AutocastState, fn: Callable[P, R]) -> Callable[P, R]:
    """Return a function that runs ``fn`` under ``state``; one object for each pair."""

    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        with autocast_as(state):
            return fn(*args, **kwargs)

    run.__name__ = run.__qualname__ = f"{getattr(fn, '__name__', 'function')}_under_{state.label}"
    return run


@overload
def no_autocast(fn: Callable[P, R]) -> Callable[P, R]: ...
@overload
def no_autocast(fn: None = None) -> Callable[[Callable[P, R]], Callable[P, R]]: ...
def no_autocast(fn: Callable[P, R] | None = None) -> Callable[..., object]:
    """Return ``fn`` so that it runs with autocast off and then restores the caller's state.

    Written `@no_autocast` or `@no_autocast()`.
    """
    if fn is None:
        return no_autocast
    inner = fn

    @functools.wraps(inner)
    def without_autocast(*args: P.args, **kwargs: P.kwargs) -> R:
        enabled = [kind for kind in AUTOCAST_DEVICES if torch.is_autocast_enabled(kind)]
        if not enabled:
            return inner(*args, **kwargs)
        try:
            for kind in enabled:
                torch.set_autocast_enabled(kind, False)
            return inner(*args, **kwargs)
        finally:
            for kind in enabled:
                torch.set_autocast_enabled(kind, True)

    return without_autocast
