"""The stages from an acquired program to one that runs, as an explicit list.

A stage is a named function ``(trace, context) -> trace``. One that returns its argument did nothing. Up to
the partition there is one trace; after it each stage is run for the forward and then for the backward.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Set
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial

import torch

from thunder.autograd.backward_inside import compute_again_inside
from thunder.autograd.deferred_writes import split_deferred_writes, written_inputs
from thunder.autograd.joint_program import BackwardPlanner, JointProgram, Order, check_order
from thunder.autograd.joint_trace import differentiable_outputs, differentiate, joint_trace
from thunder.autograd.lowering import Differentiated
from thunder.autograd.partition import partition
from thunder.autograd.results_without_grad import (
    depends_on_grad_mode,
    detach_results_without_grad,
    without_gradients,
)
from thunder.autograd.segments import connecting_values, segments_of, whole
from thunder.base.errors import PluginError
from thunder.base.extension_origin import origin_of
from thunder.base.plugin_calls import plugin_call
from thunder.base.tags import OpTags
from thunder.compiler.context import AutogradState, Branch, Context
from thunder.compiler.copy_on_edit import copied, edit_copy
from thunder.compiler.observers import check_only_observed
from thunder.executor_base.private_values import private_values_are
from thunder.executor_base.region_modes import RegionMode, regions_are
from thunder.ir.module_inputs import check_count, check_metadata
from thunder.ir.requires_grad import any_requires_grad
from thunder.ir.trace import TraceCtx, TraceProvenance, TraceTag
from thunder.ir.verify import check_plugin_trace
from thunder.ops.region_strides import after_forward
from thunder.passes.below_autograd import below_autograd
from thunder.passes.claim import claim
from thunder.passes.compute_late import compute_late
from thunder.passes.computed_size_checks import check_sizes
from thunder.passes.cse import cse
from thunder.passes.dce import dce
from thunder.passes.del_last_used import del_last_used
from thunder.passes.execution import always_executors
from thunder.passes.fallback_claim import claim_rest
from thunder.passes.functionalise import functionalise
from thunder.passes.fuse import fuse
from thunder.passes.keep_errors import keep_errors
from thunder.passes.placed_writes.own_memory import private_values
from thunder.passes.placed_writes.program_facts import ProgramFacts
from thunder.passes.placement import Placement
from thunder.passes.raising_first import raising_first
from thunder.passes.replaced_calls import replaced_calls
from thunder.passes.requires_grad_flow import propagate_requires_grad
from thunder.passes.runtime_checks import watch
from thunder.passes.stride_checks import watch_transforms
from thunder.passes.transform import Transform, call_trace_hook, defines_hook
from thunder.passes.write_in_place import write_in_place

__all__ = ["LATE_STAGES", "STAGES", "Stage", "StageFn", "Step", "blamed_on"]

StageFn = Callable[[TraceCtx, Context], TraceCtx]


@dataclass(frozen=True)
class Stage:
    """A named stage of the pipeline: a function, or a hook of every transform, in list order.

    ``for_joint`` marks a stage for the joint trace, which only programs with gradients have. ``is_builtin``
    is False for a stage that a plugin or a transform inserted.
    """

    name: str
    run: StageFn | None = None
    hook: str | None = None
    for_joint: bool = False
    is_builtin: bool = True
    #: returns the origin of a stage that was inserted
    origin: Callable[[], str] | None = None

    def steps(self, context: Context) -> Iterator[Step]:
        """Yield the steps of the stage; each runs for the forward and then for the backward."""
        if self.for_joint and context.autograd is None:
            return
        if self.run is not None:
            yield Step(self.name, self.run, self.is_builtin, self.origin)
        for transform in context.transforms:
            if self.hook is not None and defines_hook(transform, self.hook):
                run = partial(_transformed, transform, self.hook)
                origin = partial(origin_of, type(transform))
                yield Step(type(transform).__name__, run, False, origin, type(transform).observes)


@dataclass(frozen=True)
class Step:
    """One function of a stage: the stage's own, or the hook of one transform.

    ``observes`` is True for a transform that changes nothing which the program computes.
    """

    name: str
    run: StageFn
    is_builtin: bool
    origin: Callable[[], str] | None = None
    observes: bool = False


def _functionalise(trace: TraceCtx, context: Context) -> TraceCtx:
    required = context.compile.require if context.compile is not None else {}
    context.replaced_calls = replaced_calls(trace, context.executors, required)
    return functionalise(trace)


def _pre_prologue(trace: TraceCtx, context: Context) -> TraceCtx:
    """Let transforms change copies of prologue, computation and epilogue."""
    for position, transform in enumerate(context.transforms):
        if defines_hook(transform, "transform_traces_pre_prologue") and context.prologue is not None:
            trace = _with_changed_inputs(transform, position, trace, context)
            context.append(trace, type(transform).__name__, partial(origin_of, type(transform)))
    if context.prologues:
        with blamed_on(context.transforms):
            check_metadata(context.prologues[-1], trace)
        # Gradients are enabled where transforms may add inputs that require grad.
        trace.grad_enabled = trace.grad_enabled and depends_on_grad_mode(trace)
    return trace


@contextmanager
def blamed_on(transforms: Iterable[Transform]) -> Iterator[None]:
    """Add to a PluginError where the transforms that may change inputs come from."""
    try:
        yield
    except PluginError as error:
        types = [type(t) for t in transforms if defines_hook(t, "transform_traces_pre_prologue")]
        raise error.blame(", ".join(dict.fromkeys(map(origin_of, types)))) from error.__cause__


def _with_changed_inputs(transform: Transform, position: int, trace: TraceCtx, context: Context) -> TraceCtx:
    """Return the computation from a transform's hook; the context gets the prologue and the epilogue."""
    name, acquired = type(transform).__name__, context.prologue
    assert acquired is not None, "the caller has checked it"

    def change(copy: TraceCtx) -> TraceCtx:
        epilogue = None if context.epilogue is None else copied(context.epilogue)
        own = copied(acquired)
        own.input_forms = {} if context.forms_for is None else context.forms_for(position)
        prologue, computation, context.epilogue = call_trace_hook(
            transform,
            "transform_traces_pre_prologue",
            own,
            copy,
            epilogue,
            **context.hook_arguments,
        )
        context.prologues.append(prologue)
        return computation  # type: ignore[no-any-return]

    computation: TraceCtx = edit_copy(trace, change, name)
    prologue = context.prologue = context.prologues[-1]
    for changed in (prologue, computation, context.epilogue):
        if changed is not None and changed.provenance is None:
            changed.set_provenance(TraceProvenance(name))
    if computation is not trace:
        check_plugin_trace(computation, name, lambda: origin_of(type(transform)))
    check_plugin_trace(prologue, name, lambda: origin_of(type(transform)))
    with blamed_on((transform,)):
        check_count(prologue, computation, name)
    return propagate_requires_grad(computation, trace)


def _transformed(transform: Transform, hook: str, trace: TraceCtx, context: Context) -> TraceCtx:
    def change(copy: TraceCtx) -> TraceCtx:
        (result,) = call_trace_hook(transform, hook, copy, **context.hook_arguments)
        return result  # type: ignore[no-any-return]

    changed: TraceCtx = edit_copy(trace, change, type(transform).__name__)
    if type(transform).observes:
        check_only_observed(trace, changed, type(transform))
    if (
        changed is not trace and not context.check
    ):  # with the option, each trace is checked, and more thoroughly
        check_plugin_trace(changed, type(transform).__name__, lambda: origin_of(type(transform)))
    return changed


def _dce(trace: TraceCtx, context: Context) -> TraceCtx:
    return dce(keep_errors(trace))


def _cse(trace: TraceCtx, context: Context) -> TraceCtx:
    return cse(trace) if context.options.get("cse", True) else trace


def _autograd(trace: TraceCtx, context: Context) -> TraceCtx:
    """Return the joint trace if a result, or a value written to an input, requires grad.

    Another program that runs with gradients on has results detached that are declared to require no grad.
    """
    if not trace.grad_enabled:
        return trace
    core, deferred = split_deferred_writes(trace)
    outputs = differentiable_outputs(core)
    if not outputs:
        without = trace if differentiable_outputs(trace) else without_gradients(trace)
        return detach_results_without_grad(trace) if without is trace else without
    tape = differentiate(core, context.executors)
    written = written_inputs(deferred)
    context.autograd = AutogradState(tape, outputs, written, deferred)
    return joint_trace(tape, outputs)


def _partition(trace: TraceCtx, context: Context) -> TraceCtx:
    """Return the forward, and begin the branch of the backward."""
    autograd = context.autograd
    policy = context.options.get("rematerialization", "min-cut")
    if autograd is None:
        return compute_again_inside(trace, policy)
    cotangents = trace.args[-len(autograd.outputs) :]
    tape, outputs = autograd.tape, autograd.outputs
    segments = (whole(tape, outputs),) if context.backward_is_changed else segments_of(tape, outputs)
    connecting = connecting_values(segments)
    forward, backward = partition(
        trace, cotangents, tape.differentiable, policy, autograd.written, connecting, _planner(context)
    )
    autograd.program = Differentiated(tape, outputs, segments, forward, backward)
    context.backward = context.branch = Branch()
    context.append(backward, "partition")
    context.branch = context.forward
    return forward.trace


def _planner(context: Context) -> BackwardPlanner | None:
    """Return the planner of the backward that a stage has set, or None."""
    plan = context.plan_backward
    if plan is None:
        return None

    def planner(program: JointProgram) -> Order:
        with plugin_call("the planner of a backward", partial(origin_of, plan)):
            order = plan(replace(program, lower=partial(_lowered, context)))
            if order is not None:
                check_order(program, order)
        return order

    return planner


def _lowered(
    context: Context, forward: TraceCtx, backward: TraceCtx, regions: RegionMode
) -> tuple[TraceCtx, TraceCtx]:
    """Return a forward and a backward as they would run, without changing the context."""
    trial = Context(context.executors, (), context.options, context.check, regions=regions)
    trial.backward = Branch()
    for branch, trace in zip(trial.branches, (forward, backward), strict=True):
        branch.traces.append(trace)
    for run in (_claim, _fuse, _always, _del_last_used):
        for branch in trial.branches:
            trial.branch = branch
            branch.traces.append(run(branch.traces[-1], trial))
    return trial.forward.traces[-1], trial.backward.traces[-1]


def _claim(trace: TraceCtx, context: Context) -> TraceCtx:
    claimed, placements = claim(trace, context.executors)
    if context.branch is context.forward:
        unclaimed = context.autograd.tape.unclaimed if context.autograd is not None else ()
        by_rules = [Placement(bsym, None, "decomposed", refusals) for bsym, refusals in unclaimed]
        placements = [*context.replaced_calls, *by_rules, *placements]
    context.branch.placements = placements
    return claimed


def _fuse(trace: TraceCtx, context: Context) -> TraceCtx:
    forward = context.forward.traces[-1] if context.branch is context.backward else None

    def private() -> Set[str]:
        return private_values(ProgramFacts(trace, *_memory_read_elsewhere(context)))

    with after_forward(forward), regions_are(context.regions), private_values_are(private):
        return fuse(trace, context.executors)


def _always(trace: TraceCtx, context: Context) -> TraceCtx:
    fallbacks = always_executors(context.executors)
    claimed, context.branch.placements = claim_rest(trace, fallbacks, context.branch.placements)
    return claimed


def _check_sizes(trace: TraceCtx, context: Context) -> TraceCtx:
    return check_sizes(trace)


def _raising_first(trace: TraceCtx, context: Context) -> TraceCtx:
    return raising_first(trace)


def _compute_late(trace: TraceCtx, context: Context) -> TraceCtx:
    if context.plan_backward is not None:
        return trace  # the order is that of the plan
    return compute_late(trace, *_memory_read_elsewhere(context))


def _write_in_place(trace: TraceCtx, context: Context) -> TraceCtx:
    deferred, saved = _memory_read_elsewhere(context)
    placed, deferred, writes = write_in_place(trace, context.effects, deferred, saved)
    context.writes += writes
    if context.autograd is not None and context.branch is context.forward:
        context.autograd.deferred = deferred
    return placed


def _memory_read_elsewhere(context: Context) -> tuple[TraceCtx | None, Set[str]]:
    """Return the writes that follow a forward, and the saved values that a backward alone has."""
    if context.autograd is None:
        return None, frozenset()
    if context.branch is context.forward:
        return context.autograd.deferred, frozenset()
    forward = context.forward.traces[-1]
    if context.own_saved is None or context.own_saved[0] is not forward:
        context.own_saved = forward, ProgramFacts(forward).own_saved()
    return None, context.own_saved[1]


def _del_last_used(trace: TraceCtx, context: Context) -> TraceCtx:
    return del_last_used(trace, clear_mutable_collections=True)


def _below_autograd(trace: TraceCtx, context: Context) -> TraceCtx:
    branch = context.branch
    branch.in_blocks, branch.below_autograd = below_autograd(trace)
    return branch.in_blocks


def _codegen(trace: TraceCtx, context: Context) -> TraceCtx:
    if context.branch.in_blocks not in (None, trace):  # an inserted stage has changed it
        trace = _below_autograd(trace, context)
    if context.check:
        watched = watch(watch_transforms(trace, context.branch.placements, context.executors))
    else:
        watched = watch(trace, _CHECKED)
    context.branch.fn = watched.python_callable(decorated=_decorated(trace))
    return trace


#: tags of calls whose results are checked in every program: their metadata are not certain
_CHECKED = frozenset({OpTags.FALLBACK, OpTags.CHECK_RESULTS})


def _decorated(trace: TraceCtx) -> bool:
    """Return whether the function needs its decorators, which set grad mode and autocast.

    The ambient state is guarded, so it is the same in each call. The decorators therefore change something
    only where autocast is on, or where no gradients are wanted although an input requires grad. Torch's
    autograd sets the grad mode for a forward and a backward; a backward may run under any autocast.
    """
    if TraceTag.BACKWARD in trace.tags or torch._C._is_any_autocast_enabled():
        return True
    if TraceTag.AUGMENTED_FORWARD in trace.tags:
        return False
    differentiates = torch.is_grad_enabled() and any_requires_grad(trace.args)
    return differentiates and not trace.grad_enabled


STAGES: tuple[Stage, ...] = (
    Stage("functionalise", _functionalise),
    Stage("transforms_pre_prologue", _pre_prologue),
    Stage("dce", _dce),
    Stage("cse", _cse),
    Stage("autograd", _autograd),
    Stage("transforms_joint", hook="transform_joint_trace", for_joint=True),
    Stage("partition", _partition),
    Stage("transforms_pre_execution", hook="transform_trace_pre_execution"),
    Stage("claim", _claim),
    Stage("fuse", _fuse),
    Stage("always", _always),
    Stage("check_sizes", _check_sizes),
    Stage("raising_first", _raising_first),
    Stage("compute_late", _compute_late),
    Stage("write_in_place", _write_in_place),
    Stage("del_last_used", _del_last_used),
    Stage("transforms_post_optimization", hook="transform_trace_post_optimization"),
    Stage("below_autograd", _below_autograd),
    Stage("codegen", _codegen),
)

#: the stages of a trace that is constructed after the pipeline has run, when it is first needed; of the
#: transforms only those that observe take part. No guard holds torch's modes where such a trace runs.
LATE_STAGES: tuple[Stage, ...] = tuple(
    stage
    for stage in STAGES[STAGES.index(next(s for s in STAGES if s.name == "claim")) :]
    if stage.name != "below_autograd"
)
