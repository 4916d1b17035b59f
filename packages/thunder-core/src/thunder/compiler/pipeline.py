"""The stages from an acquired program to one that runs, as an explicit list.

A stage is a named function `(trace, context) -> trace`. One that returns the trace that it got did nothing.
Transforms and plugins insert stages of their own by name; nothing else decides the order.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from thunder.core.errors import InvalidArgument, PluginError, nearest
from thunder.core.executor import Executor
from thunder.core.passes.always import always
from thunder.core.passes.claim import claim
from thunder.core.passes.cse import cse
from thunder.core.passes.dce import dce
from thunder.core.passes.del_last_used import del_last_used
from thunder.core.passes.execution import always_executors
from thunder.core.passes.functionalise import functionalise
from thunder.core.passes.fuse import fuse
from thunder.core.passes.placement import Placement
from thunder.core.passes.watch import watch
from thunder.core.proxies import TensorProxy
from thunder.core.trace import TraceCtx, TraceProvenance, from_trace
from thunder.core.transform import Transform, call_trace_hook, defines_hook
from thunder.core.verify import check_trace
from thunder.plugins.contributions import configure_pipeline
from thunder.plugins.manager import get_manager

__all__ = ["STAGES", "Compiled", "Context", "Pipeline", "Stage", "configured_pipeline"]


@dataclass
class Context:
    """What the stages of one compile share: their inputs, and the records that they leave behind."""

    executors: tuple[Executor, ...]
    transforms: tuple[Transform, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)
    #: whether each new trace is verified, and each result compared with its proxy when it is computed
    check: bool = False
    prologue: TraceCtx | None = None
    epilogue: TraceCtx | None = None
    #: the trace as acquired, then one for each stage that changed it
    traces: list[TraceCtx] = field(default_factory=list)
    placements: list[Placement] = field(default_factory=list)
    #: stage → ns
    stage_times: dict[str, int] = field(default_factory=dict)
    fn: Callable[..., Any] | None = None

    def record(self, trace: TraceCtx, stage: str) -> None:
        """Appends a new trace to the list, and verifies it if asked."""
        if self.traces and self.traces[-1] is trace:
            return
        if self.check:
            check_trace(trace, stage=stage)
        self.traces.append(trace)

    @property
    def facts(self) -> dict[str, Any]:
        """The keyword arguments of every trace hook."""
        return {"executors_list": self.executors, "options": self.options}


StageFn = Callable[[TraceCtx, Context], TraceCtx]


@dataclass(frozen=True)
class Stage:
    """A named step of the pipeline."""

    name: str
    run: StageFn


# -- the stages --------------------------------------------------------------------------------------------


def _functionalise(trace: TraceCtx, context: Context) -> TraceCtx:
    return functionalise(trace)


def _pre_prologue(trace: TraceCtx, context: Context) -> TraceCtx:
    for transform in context.transforms:
        if defines_hook(transform, "transform_traces_pre_prologue") and context.prologue is not None:
            context.prologue, trace, context.epilogue = call_trace_hook(
                transform,
                "transform_traces_pre_prologue",
                context.prologue,
                trace,
                context.epilogue,
                **context.facts,
            )
            context.record(trace, type(transform).__name__)
    return trace


def _transforms(hook: str) -> StageFn:
    """The stage that runs one trace hook of every transform, in list order."""

    def run(trace: TraceCtx, context: Context) -> TraceCtx:
        for transform in context.transforms:
            if defines_hook(transform, hook):
                trace = _transformed(transform, hook, trace, context)
                context.record(trace, type(transform).__name__)
        return trace

    return run


def _transformed(transform: Transform, hook: str, trace: TraceCtx, context: Context) -> TraceCtx:
    # A transform may edit what it gets, down to the headers of bound symbols; the traces on record must not
    # change.
    given = from_trace(trace)
    given.bound_symbols = [bsym.from_bsym() for bsym in trace.bound_symbols]
    copies = list(given.bound_symbols)
    start = time.perf_counter_ns()
    (result,) = call_trace_hook(transform, hook, given, **context.facts)
    if result is given and _is_unchanged(copies, trace, given):
        return trace
    if result.provenance is None:
        result.set_provenance(TraceProvenance(type(transform).__name__, time.perf_counter_ns() - start))
    return result  # type: ignore[no-any-return]


def _is_unchanged(copies: list[Any], before: TraceCtx, after: TraceCtx) -> bool:
    return (
        len(after.bound_symbols) == len(copies)
        and all(a is b for a, b in zip(after.bound_symbols, copies, strict=True))
        and all(a.header == b.header for a, b in zip(copies, before.bound_symbols, strict=True))
    )


def _dce(trace: TraceCtx, context: Context) -> TraceCtx:
    return dce(trace)


def _cse(trace: TraceCtx, context: Context) -> TraceCtx:
    return cse(trace) if context.options.get("cse", True) else trace


def _claim(trace: TraceCtx, context: Context) -> TraceCtx:
    claimed, context.placements = claim(trace, context.executors)
    return claimed


def _fuse(trace: TraceCtx, context: Context) -> TraceCtx:
    return fuse(trace, context.executors)


def _always(trace: TraceCtx, context: Context) -> TraceCtx:
    last = always_executors(context.executors)
    done, context.placements = always(trace, last, context.placements)
    return done


def _del_last_used(trace: TraceCtx, context: Context) -> TraceCtx:
    return del_last_used(trace, clear_mutable_collections=True)


def _requires_grad(arg: Any) -> bool:
    return isinstance(arg, TensorProxy) and arg.requires_grad


def _codegen(trace: TraceCtx, context: Context) -> TraceCtx:
    # The guards hold the ambient state to what it is now. So the decorators, which set grad mode and
    # autocast, change something only where autocast is on, or where gradients are to be left out although an
    # input requires them.
    differentiates = torch.is_grad_enabled() and any(map(_requires_grad, trace.args))
    leaves_grad_out = differentiates and not trace.grad_enabled
    decorated = torch._C._is_any_autocast_enabled() or leaves_grad_out
    context.fn = (watch(trace) if context.check else trace).python_callable(decorated=decorated)
    return trace


STAGES: tuple[Stage, ...] = (
    Stage("functionalise", _functionalise),
    Stage("transforms_pre_prologue", _pre_prologue),
    Stage("dce", _dce),
    Stage("cse", _cse),
    Stage("transforms_pre_execution", _transforms("transform_trace_pre_execution")),
    Stage("claim", _claim),
    Stage("fuse", _fuse),
    Stage("always", _always),
    Stage("del_last_used", _del_last_used),
    Stage("transforms_post_optimization", _transforms("transform_trace_post_optimization")),
    Stage("codegen", _codegen),
)


# -- the pipeline ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Compiled:
    """What the pipeline makes of one trace."""

    traces: list[TraceCtx]
    fn: Callable[..., Any]
    ledger: list[Placement]
    stage_times: dict[str, int]
    prologue: TraceCtx | None = None
    epilogue: TraceCtx | None = None


class Pipeline:
    """An ordered list of named stages."""

    def __init__(self, stages: Iterable[Stage] = STAGES) -> None:
        self._stages = list(stages)

    def names(self) -> list[str]:
        """The names of the stages, in order."""
        return [stage.name for stage in self._stages]

    def insert_before(self, stage: str, name: str, fn: StageFn) -> None:
        """Puts the stage `name` directly before another. `fn(trace, context)` returns a trace."""
        self._insert(self._position(stage), name, fn)

    def insert_after(self, stage: str, name: str, fn: StageFn) -> None:
        """Puts the stage `name` directly after another. `fn(trace, context)` returns a trace."""
        self._insert(self._position(stage) + 1, name, fn)

    def _insert(self, position: int, name: str, fn: StageFn) -> None:
        if name in self.names():
            raise InvalidArgument(f"the pipeline has a stage {name!r} already", hint="Choose another name.")
        self._stages.insert(position, Stage(name, fn))

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
            result = stage.run(trace, context)
            if not isinstance(result, TraceCtx):
                raise PluginError(
                    f"the stage {stage.name!r} returned {type(result).__name__}", hint="It returns a trace."
                )
            if result is not trace:
                context.record(result, stage.name)
            trace = result
            context.stage_times[stage.name] = time.perf_counter_ns() - start
        assert context.fn is not None, "the pipeline has a stage that generates code"
        return Compiled(
            context.traces,
            context.fn,
            context.placements,
            context.stage_times,
            context.prologue,
            context.epilogue,
        )


def configured_pipeline(transforms: Sequence[Transform], options: Mapping[str, Any]) -> Pipeline:
    """The stages of core with those that plugins, in their order, and then transforms, in theirs, insert."""
    pipeline = Pipeline()
    configure_pipeline(get_manager(), pipeline, options)
    for transform in transforms:
        transform.configure_pipeline(pipeline, options)
    return pipeline
