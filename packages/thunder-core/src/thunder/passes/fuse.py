"""Fusion of claimed calls into regions."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Sequence

from thunder.base.errors import PluginError, PluginTraceError
from thunder.base.plugin_calls import kind_of, plugin_call
from thunder.executor_base.executor import Executor
from thunder.executor_base.fusion_executor import FusionExecutor
from thunder.executor_base.refusal import Refusal
from thunder.executor_base.region_modes import region_mode
from thunder.executor_base.unfused import left_out
from thunder.ir.effects import is_ordered
from thunder.ir.symbol import BoundSymbol
from thunder.ir.trace import TraceCtx, TraceProvenance, with_bound_symbols
from thunder.ir.verify import check_plugin_trace
from thunder.passes.claim import PROVENANCE

_NO_REGIONS = Refusal("not-fused", "no region is compiled in this program, which needs less memory so")


def fuse(trace: TraceCtx, executors: Sequence[Executor]) -> TraceCtx:
    """Run the fusion pass of each fusion executor, in list order.

        t0 = ltorch.sin(x); t1 = ltorch.cos(t0)   →   [t1] = myFusion0(x)

    Returns the same trace if nothing was fused. Where regions are left, the calls that would be in them get
    the reason, and other executors run them. Raises PluginError for a pass that does not return a trace, and
    TraceError for one that loses an effect or fuses a call of another executor.
    """
    start = time.perf_counter_ns()
    fused = trace
    for executor in executors:
        if isinstance(executor, FusionExecutor):
            fused = _left(executor, fused) if region_mode() == "left" else _run(executor, fused)
    if fused is not trace:
        fused.set_provenance(TraceProvenance(PROVENANCE, time.perf_counter_ns() - start))
    return fused


def _left(executor: FusionExecutor, trace: TraceCtx) -> TraceCtx:
    """Return the trace with the calls of an executor left to others."""
    statements = [left_out(b, _NO_REGIONS) if b.sym.executor is executor else b for b in trace.bound_symbols]
    return with_bound_symbols(trace, statements, PROVENANCE)


def _run(executor: FusionExecutor, trace: TraceCtx) -> TraceCtx:
    what = f"the fusion pass of executor {executor.name!r}"
    hint = "With set_fuel(0) the executor fuses nothing; it can also be left out of executors=."
    with plugin_call(what, lambda: executor.origin, hint=hint):
        new = executor.fusion_pass(trace)
    if not isinstance(new, TraceCtx):
        raise PluginError(
            f"{what} returned {kind_of(new)}",
            hint="It returns a trace: its argument, or from_trace(trace) with other bound symbols.",
        ).blame(executor.origin)
    lost = Counter(_effects(trace.bound_symbols)) - Counter(_effects(new.bound_symbols))
    if lost:
        raise PluginTraceError(
            f"the fusion pass of {executor.name!r} lost a call with an effect: {next(iter(lost))}",
            hint="Random operators, writes and printed lines have to stay, in their order.",
        ).blame(executor.origin)
    for fusion in new.bound_symbols:
        if fusion.sym.is_fusion and fusion.sym.executor == executor:
            _check_members(executor, fusion)
    if new is not trace:
        check_plugin_trace(new, f"the fusion pass of {executor.name!r}", lambda: executor.origin)
    return new


def _effects(bsyms: Sequence[BoundSymbol]) -> Iterator[str]:
    """Yield the ids of calls with effects, in the program and in its fusions."""
    for bsym in bsyms:
        if bsym.sym.is_fusion:
            yield from _effects(bsym.subsymbols)
        elif is_ordered(bsym):
            yield bsym.sym.id


def _check_members(executor: FusionExecutor, fusion: BoundSymbol) -> None:
    for member in fusion.subsymbols:
        owner = member.sym.executor
        if owner is not None and owner != executor:
            raise PluginTraceError(
                f"the fusion {fusion.sym.name} of {executor.name!r} contains a call of {owner.name!r}",
                found={"call": member.line},
                hint="A fusion pass groups calls whose sym.executor is the fusion executor itself.",
            ).blame(executor.origin)
