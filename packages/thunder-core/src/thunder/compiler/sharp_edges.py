"""The policy of `sharp_edges=` for reads and writes that can be neither guarded nor replayed."""

from __future__ import annotations

import warnings

from thunder.base.errors import SharpEdgeWarning, ThunderError
from thunder.base.options import SHARP_EDGES_OPTIONS

__all__ = ["SharpEdges"]


class SharpEdges:
    """The policy for reads and writes that can be neither guarded nor replayed.

    The program is refused, or the value becomes part of it, with or without a warning.
    """

    def __init__(self, mode: SHARP_EDGES_OPTIONS, baked: list[str]) -> None:
        self.mode, self.baked = mode, baked

    def __call__(self, edge: ThunderError) -> None:
        if self.mode is SHARP_EDGES_OPTIONS.ERROR:
            raise edge
        self.baked.append(str(edge))
        if self.mode is SHARP_EDGES_OPTIONS.WARN:
            warnings.warn(str(edge), SharpEdgeWarning, stacklevel=2)
