"""The stages in their order, and a program's way through them."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch

from thunder.autograd.lowering import Lowering, connected
from thunder.autograd.wiring import Interface
from thunder.base.errors import InvalidArgument, PluginError, ThunderError, nearest
from thunder.base.extension_origin import origin_of
from thunder.base.structural_ids import COMMENT, RELEASES
from thunder.compiler.context import Context, Line
from thunder.compiler.copy_on_edit import edited
from thunder.compiler.stages import LOWERING, STAGES, Stage, StageFn
from thunder.executor_base.executor import Executor
from thunder.ir.proxies import is_proxy
from thunder.ir.trace import TraceCtx
from thunder.ir.verify import check_work
from thunder.passes.placement import Placement
from thunder.passes.transform import Transform
from thunder.plugins.contributions import configure_pipeline, isolated
from thunder.plugins.manager import get_manager

__all__ = ["STAGES", "Compiled", "Context", "Pipeline", "Stage", "configured_pipeline"]


@dataclass(frozen=True)
class Compiled:
    """What the pipeline makes of one trace."""

    traces: list[TraceCtx]
    fn: Callable[..., Any]
    ledger: list[Placement]
    stage_times: dict[str, int]
    prologue: TraceCtx | None = None
    epilogue: TraceCtx | None = None
    backward_fn: Callable[..., Any] | None = None
    backward_traces: list[TraceCtx] = field(default_factory=list)
    backward_ledger: list[Placement] = field(default_factory=list)
    #: what runs behind the function that torch's autograd sees
    tail_traces: list[TraceCtx] = field(default_factory=list)


class Pipeline:
    """An ordered list of named stages."""

    def __init__(self, stages: Iterable[Stage] = STAGES) -> None:
        self._stages = list(stages)

    def names(self) -> list[str]:
        """The names of the stages, in order."""
        return [stage.name for stage in self._stages]

    def insert_before(self, stage: str, name: str, fn: StageFn) -> None:
        """Puts the stage `name` directly before another. `fn(trace, context)` returns a trace.

        The stage may edit the trace that it gets. Its result is among the traces of the compile, constructed
        by `name` unless it says otherwise; one that changes nothing adds none. After the partition a stage
        runs for the forward, and then for the backward.
        """
        self._insert(self._position(stage), name, fn)

    def insert_after(self, stage: str, name: str, fn: StageFn) -> None:
        """Puts the stage `name` directly after another; as `insert_before`."""
        self._insert(self._position(stage) + 1, name, fn)

    def _insert(self, position: int, name: str, fn: StageFn) -> None:
        if name in self.names():
            raise InvalidArgument(f"the pipeline has a stage {name!r} already", hint="Choose another name.")
        self._stages.insert(position, Stage(name, partial(_inserted, name, fn)))

    def _position(self, stage: str) -> int:
        names = self.names()
        if stage not in names:
            close = nearest(stage, names)
            raise InvalidArgument(
                f"the pipeline has no stage {stage!r}",
                found={"stages": ", ".join(names)},
                hint=f"Did you mean {close!r}?" if close else None,
            )
        return names.index(stage)

    def run(
        self,
        trace: TraceCtx,
        executors: Sequence[Executor],
        transforms: Sequence[Transform] = (),
        options: Mapping[str, Any] | None = None,
        *,
        check: bool = False,
        prologue: TraceCtx | None = None,
        epilogue: TraceCtx | None = None,
    ) -> Compiled:
        """Takes a program through all stages. `executors` ends with the always-executors.

        With `check` each new trace is verified. Raises PluginError for a stage that returns no trace.
        """
        context = Context(
            tuple(executors), tuple(transforms), options or {}, check, prologue=prologue, epilogue=epilogue
        )
        context.record(trace, "acquire")
        for stage in self._stages:
            start = time.perf_counter_ns()
            for name, step in stage.steps(context):
                cores_own = stage in STAGES and step is stage.run
                for line in context.lines:
                    context.line = line
                    before = line.traces[-1]
                    _advance(line, name, step, context)
                    if not cores_own and _is_backward(line, context):
                        context.backward_is_changed |= _calls(before) != _calls(line.traces[-1])
                context.line = context.forward
            context.stage_times[stage.name] = time.perf_counter_ns() - start
        return _finished(context)


def _inserted(name: str, fn: StageFn, trace: TraceCtx, context: Context) -> TraceCtx:
    """Runs a stage of others; what goes wrong in it is told as its fault."""
    try:
        result = edited(trace, lambda given: fn(given, context), name)
    except ThunderError:
        raise
    except Exception as error:
        raise PluginError(
            f"the stage {name!r} raised {type(error).__name__}: {error}",
            hint="A plugin or a transform inserted it; thunder.plugins.disabled(...) leaves a plugin out.",
        ).of(origin_of(fn)) from error
    if not isinstance(result, TraceCtx):
        raise PluginError(
            f"the stage {name!r} returned {type(result).__name__}", hint="It returns a trace."
        ).of(origin_of(fn))
    if result is not trace and not context.check:  # with it, each trace is checked, and more thoroughly
        check_work(result, name, lambda: origin_of(fn))
    return result


def _advance(line: Line, name: str, step: StageFn, context: Context) -> None:
    trace = line.traces[-1]
    result = step(trace, context)
    if result is not trace:
        context.record(result, name)


def _is_backward(line: Line, context: Context) -> bool:
    """Whether the line in work is, or contains, the backward."""
    return context.gradient is not None and line is (context.backward or context.forward)


def _calls(trace: TraceCtx) -> Counter[tuple[Any, ...]]:
    """What a trace computes, in whatever order, and with whatever comments."""
    return Counter(
        (b.sym.id, tuple(p.name for p in b.flat_proxy_args), tuple(p.name for p in b.flat_proxy_outs))
        for b in trace.bound_symbols
        if b.sym.id not in RELEASES and b.sym.id != COMMENT
    )


def _finished(context: Context) -> Compiled:
    forward, backward, gradient = context.forward, context.backward, context.gradient
    assert forward.fn is not None, "the pipeline has a stage that generates code"
    compiled = Compiled(
        forward.traces,
        forward.fn,
        forward.placements,
        context.stage_times,
        context.prologue,
        context.epilogue,
    )
    if gradient is None or gradient.program is None or backward is None:
        return compiled
    assert backward.fn is not None, "the stage that generates code runs for the backward too"
    lowering = Lowering(
        context.executors, context.options.get("rematerialization", "min-cut"), partial(_lowered, context)
    )
    interface = Interface.of(forward.traces[-1])
    fn: Callable[..., Any] = connected(
        gradient.program, forward.fn, backward.fn, lowering, interface, context.backward_is_changed
    )
    if not torch.is_grad_enabled():  # a region of torch.enable_grad has computed what requires grad
        fn = torch.enable_grad()(fn)
    tail_traces: list[TraceCtx] = []
    if gradient.tail is not None:
        tail = _line_of(gradient.tail, context)
        tail_traces, fn = tail.traces, _with_tail(fn, tail, forward.traces[-1])
    return replace(
        compiled,
        fn=fn,
        backward_fn=backward.fn,
        backward_traces=backward.traces,
        backward_ledger=backward.placements,
        tail_traces=tail_traces,
    )


def _line_of(trace: TraceCtx, context: Context) -> Line:
    """The way of a trace that is made behind the others: through the last stages of core."""
    later = Context(context.executors, options=context.options, check=context.check)
    later.record(trace, "partition")
    for stage in STAGES:
        if stage.name in LOWERING and stage.run is not None:
            _advance(later.forward, stage.name, stage.run, later)
    return later.forward


def _lowered(context: Context, trace: TraceCtx) -> Callable[..., Any]:
    fn = _line_of(trace, context).fn
    assert fn is not None, "the last of these stages generates code"
    return fn


def _with_tail(fn: Callable[..., Any], tail: Line, forward: TraceCtx) -> Callable[..., Any]:
    """``fn``, and then the tail on what it returns and on the inputs that the tail reads."""
    positions = {p.name: i for i, p in enumerate(forward.args) if is_proxy(p)}
    read = tuple(positions[p.name] for p in tail.traces[0].args if p.name in positions)
    last = tail.fn
    assert last is not None, "the tail has been through the stage that generates code"

    def run(*args: Any) -> Any:
        return last(*fn(*args), *[args[i] for i in read])

    return run


def _with_plugins(options: Mapping[str, Any]) -> Pipeline:
    pipeline = Pipeline()
    configure_pipeline(get_manager(), pipeline, options)
    return pipeline


def configured_pipeline(transforms: Sequence[Transform], options: Mapping[str, Any]) -> Pipeline:
    """The stages of core with those that plugins, in their order, and then transforms, in theirs, insert."""
    pipeline = isolated(get_manager(), lambda: _with_plugins(options))
    for transform in transforms:
        transform.configure_pipeline(pipeline, options)
    return pipeline
