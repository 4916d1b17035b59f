"""The stages that assign each call of a trace to an executor, as one pass."""

from __future__ import annotations

from collections.abc import Sequence

from thunder.executor_base.executor import Executor
from thunder.extend.registry import get_registry
from thunder.ir.trace import TraceCtx
from thunder.passes.claim import claim
from thunder.passes.fallback_claim import claim_rest
from thunder.passes.fuse import fuse


def transform_for_execution(trace: TraceCtx, executors_list: Sequence[Executor]) -> TraceCtx:
    """Claim every call, fuse, and let the fallback executors of the list claim the rest.

    Raises NoExecutor for a primitive that no executor claims.
    """
    claimed, placements = claim(trace, executors_list)
    fused = fuse(claimed, executors_list)
    return claim_rest(fused, always_executors(executors_list), placements)[0]


def always_executors(executors_list: Sequence[Executor]) -> tuple[Executor, ...]:
    """Return the fallback executors of a list, which claim the rest."""
    registered = get_registry().get_always_executors()
    return tuple(ex for ex in executors_list if ex in registered)
