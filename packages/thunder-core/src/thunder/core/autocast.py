"""Generated programs run with autocast off: the casts that it would make are operators of the trace
already.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar, overload

import torch

P = ParamSpec("P")
R = TypeVar("R")

#: the kinds of device for which torch keeps an autocast state; asking for one that this build lacks calls
#: no driver
_KINDS = ("cpu", "cuda")


@overload
def no_autocast(fn: Callable[P, R]) -> Callable[P, R]: ...
@overload
def no_autocast(fn: None = None) -> Callable[[Callable[P, R]], Callable[P, R]]: ...
def no_autocast(fn: Callable[P, R] | None = None) -> Callable[..., object]:
    """Runs a function with autocast off, and restores at its end the state that was found at the call.

    Written `@no_autocast` or `@no_autocast()`.
    """
    if fn is None:
        return no_autocast
    inner = fn

    @functools.wraps(inner)
    def without_autocast(*args: P.args, **kwargs: P.kwargs) -> R:
        enabled = [kind for kind in _KINDS if torch.is_autocast_enabled(kind)]
        if not enabled:
            return inner(*args, **kwargs)
        for kind in enabled:
            torch.set_autocast_enabled(kind, False)
        try:
            return inner(*args, **kwargs)
        finally:
            for kind in enabled:
                torch.set_autocast_enabled(kind, True)

    return without_autocast
