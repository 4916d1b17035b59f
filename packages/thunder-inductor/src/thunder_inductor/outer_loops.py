"""Users of a buffer that do not read it, where TorchInductor fuses outer loops.

For a buffer between loops that it fuses it asks by which index each user reads it, and keeps a row of it
instead, if all read what was just written. A node that computes in the memory of an input is a user of what
it only has to come after: it reads nothing, and TorchInductor raises KeyError. Without an index the buffer
stays whole.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from torch._inductor.loop_body import LoopBody

__all__ = ["without_index"]

#: the method of a node that returns the index
_INDEX: Final = "get_read_expr"


def without_index(index_of: Callable[[Any, str], Any]) -> Callable[[Any, str], Any]:
    """Return a method with the results of TorchInductor's, and None for a buffer that is not read."""

    def get_read_expr(self: Any, buffer_name: str) -> Any:
        try:
            return index_of(self, buffer_name)
        except KeyError:
            return None

    return get_read_expr


# TorchInductor has no hook for it. Replaced once, since regions may be compiled in several threads.
setattr(LoopBody, _INDEX, without_index(getattr(LoopBody, _INDEX)))
