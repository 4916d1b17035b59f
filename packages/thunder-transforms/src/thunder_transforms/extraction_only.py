"""A prologue that fetches a module's tensors without checking them."""

from __future__ import annotations

from typing import Any

import thunder
from thunder.core.trace import TraceCtx
from thunder_transforms.prologue_values import CHECK_TENSORS, PrologueValues

__all__ = ["ExtractionOnlyPrologueTransform"]


class ExtractionOnlyPrologueTransform(thunder.Transform):
    """Drops the checks of metadata of parameters and buffers, where a caller guards them already.

    Such a caller is `torch.compile`, whose graphs are valid for the metadata that it has guarded. With
    `DebugOptions(check_guards=True)` the dropped checks are made at each call that finds a program.

    Args:
        skip_check_on_input_tensors: whether the checks of tensors among the arguments are dropped, too.
    """

    stateless = True

    def __init__(self, skip_check_on_input_tensors: bool = False) -> None:
        self.skip_check_on_input_tensors = skip_check_on_input_tensors
        self.keeps_sizes = not skip_check_on_input_tensors

    def transform_traces_pre_prologue(
        self,
        prologue_trace: TraceCtx,
        computation_trace: TraceCtx,
        epilogue_trace: TraceCtx | None,
        **kwargs: Any,
    ) -> tuple[TraceCtx, TraceCtx, TraceCtx | None]:
        values = PrologueValues(prologue_trace)
        roots = {"self", "overrides"}
        if self.skip_check_on_input_tensors:
            roots |= {"args", "kwargs"}
        prologue_trace.bound_symbols = [
            b
            for b in prologue_trace.bound_symbols
            if b.sym.id not in CHECK_TENSORS or values.path(b.args[0])[0] not in roots
        ]
        return prologue_trace, computation_trace, epilogue_trace
