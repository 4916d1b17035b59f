"""A range of NVTX for each operation, for Nsight Systems and other profilers of NVIDIA."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any, Protocol

import torch

import thunder
from thunder.core.errors import RequirementNotMet
from thunder.core.symbol import BoundSymbol
from thunder.core.trace import TraceCtx
from thunder_transforms.observing import branch_of, observer, statement_of, with_observers

__all__ = ["NvtxProfileTransform", "Ranges"]


class Ranges(Protocol):
    """An object that opens and closes ranges, such as `torch.cuda.nvtx`."""

    def range_push(self, msg: str) -> object:
        """Open a range."""

    def range_pop(self) -> object:
        """Close the range that was opened last."""


class NvtxProfileTransform(thunder.Transform):
    """Opens a range of NVTX before each operation of forward and backward, and closes it after it.

    A range is named after the operator and the user's line, `"linear model.py:41"`; of a fusion, after the
    first line. The range of an operation that raises is closed when the next one begins.

    Args:
        ranges: where ranges are opened, `torch.cuda.nvtx` by default.
    """

    observes = True

    def __init__(self, ranges: Ranges | None = None) -> None:
        self.ranges: Ranges = torch.cuda.nvtx if ranges is None else ranges
        self._open = threading.local()
        self._symbols = observer("nvtx_push", self._push), observer("nvtx_pop", self._pop)

    def validate(self, fn: Any, options: Mapping[str, Any]) -> None:
        if self.ranges is torch.cuda.nvtx and not torch.cuda.is_available():
            raise RequirementNotMet(
                "NvtxProfileTransform needs CUDA, which torch does not find",
                found={"torch": torch.__version__},
                hint="ProfileTransform measures each operation without CUDA.",
            )

    def transform_trace_post_optimization(self, computation_trace: TraceCtx, **kwargs: Any) -> TraceCtx:
        push, pop = self._symbols
        branch = branch_of(computation_trace)

        def before(bsym: BoundSymbol) -> list[BoundSymbol]:
            statement = statement_of(bsym, branch)
            return [push.bind(f"{statement.operator} {statement.place}".rstrip(), output=None)]

        return with_observers(
            computation_trace,
            type(self).__name__,
            before=before,
            after=lambda bsym: [pop.bind(output=None)],
        )

    def _push(self, name: str) -> None:
        if getattr(self._open, "is_open", False):
            self.ranges.range_pop()
        self.ranges.range_push(name)
        self._open.is_open = True

    def _pop(self) -> None:
        self.ranges.range_pop()
        self._open.is_open = False
