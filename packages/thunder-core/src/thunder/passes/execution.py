"""The stages that give every call of a trace to an executor, as one pass."""

from __future__ import annotations

from collections.abc import Sequence

from thunder.executor_base.executor import Executor
from thunder.extend.registry import get_registry
from thunder.ir.trace import TraceCtx
from thunder.passes.claim import claim
from thunder.passes.fallback_claim import always
from thunder.passes.fuse import fuse


def transform_for_execution(trace: TraceCtx, executors_list: Sequence[Executor]) -> TraceCtx:
    """Claims every call, fuses, and gives the rest to the always-executors in the list.

    Raises NoExecutor for a primitive that nobody takes.
    """
    claimed, placements = claim(trace, executors_list)
    fused = fuse(claimed, executors_list)
    return always(fused, always_executors(executors_list), placements)[0]


def always_executors(executors_list: Sequence[Executor]) -> tuple[Executor, ...]:
    """Those of a list that are asked last, for whatever nobody else took."""
    registered = get_registry().get_always_executors()
    return tuple(ex for ex in executors_list if ex in registered)
