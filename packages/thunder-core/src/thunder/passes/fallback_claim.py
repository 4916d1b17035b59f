"""Claims of the fallback executors, which run the calls that no other executor runs."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence

from thunder.executor_base.executor import Executor
from thunder.executor_base.operator_executor import OperatorExecutor
from thunder.executor_base.refusal import Refusal
from thunder.executor_base.unfused import no_reason, reason_left_out
from thunder.ir.symbol import BoundSymbol
from thunder.ir.trace import TraceCtx, TraceProvenance, from_trace, tracectx
from thunder.passes.claim import PROVENANCE, Claimer
from thunder.passes.placement import Placement, is_executable
from thunder.passes.result_memory import ProgramMemory


def claim_rest(
    trace: TraceCtx, executors: Sequence[Executor], placements: Sequence[Placement] = ()
) -> tuple[TraceCtx, list[Placement]]:
    """Let the fallback executors claim the calls that are not executable yet.

    These are calls that a fusion executor claimed and did not fuse, and calls that execution transforms
    recorded. Returns the same trace if there are none. `placements` are the placements so far; those of
    calls that were not fused are replaced.
    """
    if all(is_executable(b.sym) for b in trace.bound_symbols):
        return trace, list(placements)
    start = time.perf_counter_ns()
    claimer = Claimer(from_trace(trace), executors, "always", ProgramMemory(trace))
    placements_of = {(p.symbol, p.outputs): [p] for p in placements}
    with tracectx(claimer.trace):
        for bsym in trace.bound_symbols:
            if is_executable(bsym.sym):
                claimer.keep(bsym)
            else:
                earlier = placements_of.get(_key(bsym), [])
                claimer.place(*_unfused(bsym, earlier))
                placements_of[_key(bsym)] = claimer.placements
                claimer.placements = []
    claimer.trace.set_provenance(TraceProvenance(PROVENANCE, time.perf_counter_ns() - start))
    return claimer.trace, [placement for group in placements_of.values() for placement in group]


def _key(bsym: BoundSymbol) -> tuple[str, tuple[str, ...]]:
    return bsym.sym.id, tuple(p.name for p in bsym.flat_proxy_outs)


def _unfused(
    bsym: BoundSymbol, earlier: Sequence[Placement]
) -> tuple[BoundSymbol, tuple[tuple[str, Refusal], ...]]:
    """Return the call without its fusion executor, and its refusals including this one."""
    refusals = earlier[0].refusals if earlier else ()
    owner = bsym.sym.executor
    if owner is None:
        return bsym, refusals
    if isinstance(owner, OperatorExecutor):
        refusal = Refusal(
            "no-function", f"{bsym.sym.id} was registered without fn=, and has no implementation"
        )
    else:
        bsym, reason = reason_left_out(bsym)
        if reason is None:
            reason = no_reason(owner.name, bsym.sym.id)
        refusal = reason
    return bsym.from_bsym(sym=dataclasses.replace(bsym.sym, executor=None)), (
        *refusals,
        (owner.name, refusal),
    )
