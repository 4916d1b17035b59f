"""The stages that give every call of a trace to an executor, as one pass."""

from __future__ import annotations

from collections.abc import Sequence

from thunder.core.executor import Executor
from thunder.core.fusion_executor import FusionExecutor
from thunder.core.passes.always import always
from thunder.core.passes.claim import claim
from thunder.core.passes.fuse import fuse
from thunder.core.trace import TraceCtx


def transform_for_execution(trace: TraceCtx, executors_list: Sequence[Executor]) -> TraceCtx:
    """Claims every call, fuses, and gives the rest to the executors that run single operators.

    Raises NoExecutor for a primitive that nobody takes.
    """
    claimed, placements = claim(trace, executors_list)
    fused = fuse(claimed, executors_list)
    single = [ex for ex in executors_list if not isinstance(ex, FusionExecutor)]
    return always(fused, single, placements)[0]
