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
from thunder.compiler.context import Branch, Context
from thunder.compiler.copy_on_edit import edit_copy
from thunder.compiler.stages import LATE_STAGES, STAGES, Stage, StageFn, Step
from thunder.executor_base.executor import Executor
from thunder.ir.proxies import is_proxy
from thunder.ir.trace import TraceCtx
from thunder.ir.verify import check_plugin_trace
from thunder.passes.placement import Placement
from thunder.passes.rewriting.replacement import Rewriting
from thunder.passes.transform import Transform
from thunder.plugins.contributions import configure_pipeline, isolated
from thunder.plugins.manager import get_manager

__all__ = ["STAGES", "Compiled", "Context", "Pipeline", "Stage", "configured_pipeline"]


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
    rewritings: list[Rewriting] = field(default_factory=list)
    #: the traces of the writes and views that run after torch's autograd node
    deferred_traces: list[TraceCtx] = field(default_factory=list)


class Pipeline:
    """An ordered list of named stages."""

    def __init__(self, stages: Iterable[Stage] = STAGES) -> None:
        self._stages = list(stages)

    def names(self) -> list[str]:
        """Return the names of the stages, in order."""
        return [stage.name for stage in self._stages]

    def insert_before(self, stage: str, name: str, fn: StageFn) -> None:
        """Insert the stage `name` directly before another. `fn(trace, context)` returns a trace.

        The stage may edit the trace that it receives. Its result is among the traces of the compile,
        constructed by `name` unless its provenance says otherwise; a stage that changes nothing adds none.
        After the partition a stage runs for the forward, and then for the backward.
        """
        self._insert(self._position(stage), name, fn)

    def insert_after(self, stage: str, name: str, fn: StageFn) -> None:
        """Insert the stage `name` directly after another; as `insert_before`."""
        self._insert(self._position(stage) + 1, name, fn)

    def _insert(self, position: int, name: str, fn: StageFn) -> None:
        if name in self.names():
            raise InvalidArgument(f"the pipeline has a stage {name!r} already", hint="Choose another name.")
        self._stages.insert(position, Stage(name, partial(_inserted, name, fn), is_builtin=False))

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
        """Run all stages on a program. `executors` ends with the fallback executors.

        With `check` each new trace is verified. Raises PluginError for a stage that does not return a trace.
        """
        context = Context(
            tuple(executors), tuple(transforms), options or {}, check, prologue=prologue, epilogue=epilogue
        )
        context.append(trace, "acquire")
        for stage in self._stages:
            start = time.perf_counter_ns()
            for step in stage.steps(context):
                _run_step(step, context)
            context.stage_times[stage.name] = time.perf_counter_ns() - start
        return _compiled(context)


def _run_step(step: Step, context: Context) -> None:
    """Run one step for each branch; note whether a transform or plugin changed the backward."""
    for branch in context.branches:
        context.branch = branch
        before = branch.traces[-1]
        context.append(step.run(before, context), step.name)
        if not step.is_builtin and context.is_backward:
            context.backward_is_changed |= _calls(before) != _calls(branch.traces[-1])
    context.branch = context.forward


def _inserted(name: str, fn: StageFn, trace: TraceCtx, context: Context) -> TraceCtx:
    """Run a stage that a plugin or a transform inserted; its errors are reported as its own."""
    try:
        result = edit_copy(trace, lambda copy: fn(copy, context), name)
    except ThunderError:
        raise
    except Exception as error:
        raise PluginError(
            f"the stage {name!r} raised {type(error).__name__}: {error}",
            hint="A plugin or a transform inserted it; thunder.plugins.disabled(...) leaves a plugin out.",
        ).blame(origin_of(fn)) from error
    if not isinstance(result, TraceCtx):
        raise PluginError(
            f"the stage {name!r} returned {type(result).__name__}", hint="It returns a trace."
        ).blame(origin_of(fn))
    if result is not trace and not context.check:  # with the option, each trace is checked more thoroughly
        check_plugin_trace(result, name, lambda: origin_of(fn))
    return result


def _calls(trace: TraceCtx) -> Counter[tuple[Any, ...]]:
    """Return the calls of a trace in no order, without comments and releases."""
    return Counter(
        (b.sym.id, tuple(p.name for p in b.flat_proxy_args), tuple(p.name for p in b.flat_proxy_outs))
        for b in trace.bound_symbols
        if b.sym.id not in RELEASES and b.sym.id != COMMENT
    )


def _compiled(context: Context) -> Compiled:
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
        rewritings=context.rewritings,
    )
    if autograd is None or autograd.program is None or backward is None:
        return compiled
    assert backward.fn is not None, "the stage that generates code runs for the backward too"
    lowering = Lowering(
        context.executors, context.options.get("rematerialization", "min-cut"), partial(_lower_late, context)
    )
    interface = Interface.of(forward.traces[-1])
    fn: Callable[..., Any] = connected(
        autograd.program, forward.fn, backward.fn, lowering, interface, context.backward_is_changed
    )
    if not torch.is_grad_enabled():  # a region of torch.enable_grad has computed what requires grad
        fn = torch.enable_grad()(fn)
    deferred_traces: list[TraceCtx] = []
    if autograd.deferred is not None:
        deferred = _late_branch(context, autograd.deferred)
        deferred_traces, fn = deferred.traces, _with_deferred_writes(fn, deferred, forward.traces[-1])
    return replace(
        compiled,
        fn=fn,
        backward_fn=backward.fn,
        backward_traces=backward.traces,
        backward_ledger=backward.placements,
        deferred_traces=deferred_traces,
    )


def _late_branch(context: Context, trace: TraceCtx) -> Branch:
    """Run the last builtin stages on a trace that was constructed after the pipeline has run."""
    late = Context(context.executors, options=context.options, check=context.check)
    late.append(trace, "partition")
    for stage in LATE_STAGES:
        for step in stage.steps(late):
            _run_step(step, late)
    return late.forward


def _lower_late(context: Context, trace: TraceCtx) -> Callable[..., Any]:
    """Return the function of a trace that was constructed after the pipeline has run."""
    fn = _late_branch(context, trace).fn
    assert fn is not None, "the last of these stages generates code"
    return fn


def _with_deferred_writes(fn: Callable[..., Any], deferred: Branch, forward: TraceCtx) -> Callable[..., Any]:
    """Return ``fn``, followed by the deferred writes on its results and inputs."""
    positions = {p.name: i for i, p in enumerate(forward.args) if is_proxy(p)}
    read = tuple(positions[p.name] for p in deferred.traces[0].args if p.name in positions)
    finish = deferred.fn
    assert finish is not None, "the deferred writes have been through the stage that generates code"

    def run(*args: Any) -> Any:
        return finish(*fn(*args), *[args[i] for i in read])

    return run


def _with_plugins(options: Mapping[str, Any]) -> Pipeline:
    pipeline = Pipeline()
    configure_pipeline(get_manager(), pipeline, options)
    return pipeline


def configured_pipeline(transforms: Sequence[Transform], options: Mapping[str, Any]) -> Pipeline:
    """Return the builtin stages with those that plugins, then transforms, insert."""
    pipeline = isolated(get_manager(), lambda: _with_plugins(options))
    for transform in transforms:
        transform.configure_pipeline(pipeline, options)
    return pipeline
