"""What no other executor runs goes to the always-executors."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence

from thunder.executor_base.executor import Executor, Refusal
from thunder.executor_base.operator_executor import OperatorExecutor
from thunder.ir.symbol import BoundSymbol
from thunder.ir.trace import TraceCtx, TraceProvenance, from_trace, tracectx
from thunder.passes.claim import PROVENANCE, Claimer
from thunder.passes.placement import Placement, runs


def always(
    trace: TraceCtx, executors: Sequence[Executor], placements: Sequence[Placement] = ()
) -> tuple[TraceCtx, list[Placement]]:
    """Gives what does not run yet to the always-executors: members of no fusion, and calls that execution
    transforms made.

    Returns the same trace if everything runs. `placements` are the records so far; those of calls that
    their fusion executor left alone are replaced.
    """
    if all(runs(b.sym) for b in trace.bound_symbols):
        return trace, list(placements)
    start = time.perf_counter_ns()
    claimer = Claimer(from_trace(trace), executors, "always")
    records = {(p.symbol, p.outputs): [p] for p in placements}
    with tracectx(claimer.trace):
        for bsym in trace.bound_symbols:
            if runs(bsym.sym):
                claimer.keep(bsym)
            else:
                earlier = records.get(_key(bsym), [])
                claimer.place(*_unfused(bsym, earlier))
                records[_key(bsym)] = claimer.placements
                claimer.placements = []
    claimer.trace.set_provenance(TraceProvenance(PROVENANCE, time.perf_counter_ns() - start))
    return claimer.trace, [record for group in records.values() for record in group]


def _key(bsym: BoundSymbol) -> tuple[str, tuple[str, ...]]:
    return bsym.sym.id, tuple(p.name for p in bsym.flat_proxy_outs)


def _unfused(
    bsym: BoundSymbol, earlier: Sequence[Placement]
) -> tuple[BoundSymbol, tuple[tuple[str, Refusal], ...]]:
    """The call without its fusion executor, and the refusals that it has met, this executor's among them."""
    refusals = earlier[0].refusals if earlier else ()
    owner = bsym.sym.executor
    if owner is None:
        return bsym, refusals
    if isinstance(owner, OperatorExecutor):
        left = Refusal("no-function", f"{bsym.sym.id} was registered without fn=, and has no implementation")
    else:
        left = Refusal("not-fused", f"{owner.name} took {bsym.sym.id} into no region")
    return bsym.from_bsym(sym=dataclasses.replace(bsym.sym, executor=None)), (*refusals, (owner.name, left))
