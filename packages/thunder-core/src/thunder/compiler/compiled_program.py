"""The result of a compile: forward and backward, connected to torch's autograd."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch

from thunder.autograd.lowering import Lowering, connected
from thunder.autograd.wiring import Interface
from thunder.compiler.connected_trace import connected_trace
from thunder.compiler.context import Branch, Context
from thunder.compiler.running_compile import compiling
from thunder.compiler.running_stages import run_step
from thunder.compiler.stages import LATE_STAGES
from thunder.ir.trace import TraceCtx
from thunder.passes.below_autograd import BelowAutograd
from thunder.passes.notes import Note
from thunder.passes.placement import Placement
from thunder.passes.write_in_place import InputWrite

__all__ = ["Compiled", "compiled_program"]


@dataclass(frozen=True)
class Compiled:
    """The result of the pipeline for one program."""

    traces: list[TraceCtx]
    fn: Callable[..., Any]
    ledger: list[Placement]
    stage_times: dict[str, int]
    prologue: TraceCtx | None = None
    epilogue: TraceCtx | None = None
    backward_fn: Callable[..., Any] | None = None
    backward_traces: list[TraceCtx] = field(default_factory=list)
    backward_ledger: list[Placement] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)
    #: what became of the writes to inputs
    writes: list[InputWrite] = field(default_factory=list)
    #: which calls of the program, or of its forward, run below torch's autograd
    below_autograd: BelowAutograd | None = None
    #: the prologue after each transform that may change it
    prologues: list[TraceCtx] = field(default_factory=list)
    #: the traces of the writes and views that run after torch's autograd node, and of what runs round it
    connected_traces: list[TraceCtx] = field(default_factory=list)


def compiled_program(context: Context) -> Compiled:
    """Collect the results of the stages; connect forward and backward to torch's autograd."""
    forward, backward, autograd = context.forward, context.backward, context.autograd
    assert forward.fn is not None, "the pipeline has a stage that generates code"
    compiled = Compiled(
        forward.traces,
        forward.fn,
        forward.placements,
        context.stage_times,
        context.prologue,
        context.epilogue,
        notes=context.notes,
        writes=context.writes,
        below_autograd=forward.below_autograd,
        prologues=context.prologues,
    )
    if autograd is None or autograd.program is None or backward is None:
        return _connected(compiled, context)
    assert backward.fn is not None, "the stage that generates code runs for the backward too"
    lowering = Lowering(
        context.executors, context.options.get("rematerialization", "min-cut"), partial(_lower_late, context)
    )
    interface = Interface.of(forward.traces[-1])
    fn = connected(
        autograd.program, forward.fn, backward.fn, lowering, interface, context.backward_is_changed
    )
    differentiable = replace(
        compiled,
        fn=fn,
        backward_fn=backward.fn,
        backward_traces=backward.traces,
        backward_ledger=backward.placements,
    )
    return _connected(differentiable, context)


def _connected(compiled: Compiled, context: Context) -> Compiled:
    """Return the program with the statements round its forward, which are in a trace of their own."""
    deferred = None if context.autograd is None else context.autograd.deferred
    traces = [] if deferred is None else _late_branch(context, deferred).traces
    trace = connected_trace(
        compiled.traces[-1],
        compiled.fn,
        requests=context.grad_requests,
        deferred=traces[-1] if traces else None,
        # a region of torch.enable_grad has computed what requires grad
        enables_grad=compiled.backward_fn is not None and not torch.is_grad_enabled(),
    )
    if trace is None:
        return compiled
    return replace(compiled, fn=trace.python_callable(), connected_traces=[*traces, trace])


def _late_branch(context: Context, trace: TraceCtx) -> Branch:
    """Run the last stages of core, and transforms that observe, on a trace constructed after the pipeline."""
    observers = tuple(t for t in context.transforms if type(t).observes)
    late = Context(context.executors, observers, context.options, context.check)
    late.preferences = context.preferences
    late.append(trace, "partition")
    for stage in LATE_STAGES:
        for step in stage.steps(late):
            run_step(step, late)
    return late.forward


def _lower_late(context: Context, trace: TraceCtx) -> Callable[..., Any]:
    """Return the function of a trace that was constructed after the pipeline has run."""
    with compiling(context.compile):
        fn = _late_branch(context, trace).fn
    assert fn is not None, "the last of these stages generates code"
    return fn
