"""The pipeline of one compile: the stages of core, with those that plugins and transforms add.

Stages are collected first and ordered then, see Note [Places of stages].
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from thunder.base.errors import InvalidArgument, PluginError
from thunder.base.extension_origin import module_of, origin_of
from thunder.compiler.compiled_program import Compiled, compiled_program
from thunder.compiler.context import Context
from thunder.compiler.running_stages import run_inserted, run_step
from thunder.compiler.stage_conditions import StageCondition, as_tuple
from thunder.compiler.stage_order import Placed, StageOrder, refuse_unknown
from thunder.compiler.stages import STAGES, Stage, StageFn
from thunder.compiler.stats import RecompileReason
from thunder.executor_base.executor import Executor
from thunder.ir.trace import TraceCtx
from thunder.passes.placed_writes.raising_calls import ProgramEffects
from thunder.passes.transform import Transform, calling_hook
from thunder.plugins.contributions import configure_pipeline, isolated, transform_names
from thunder.plugins.manager import get_manager
from thunder.plugins.specs import ExecutorSpec, IfPresent

__all__ = ["STAGES", "Compiled", "Context", "Pipeline", "Stage", "configured_pipeline"]

Names = str | IfPresent | Sequence[str | IfPresent]


@dataclass(frozen=True)
class _Added:
    """A stage of a plugin or a transform; `plugin` is the plugin's name, None for a transform."""

    placed: Placed
    stage: Stage
    condition: StageCondition
    plugin: str | None = None


class Pipeline:
    """Named stages: those of core in their order, and others that are placed among them."""

    def __init__(self, stages: Iterable[Stage] = STAGES) -> None:
        self._builtin = tuple(stages)
        self._added: dict[str, _Added] = {}

    def names(self) -> list[str]:
        """Return the names of the stages in their order; stages that are added later may come between."""
        names = [stage.name for stage in self._builtin]
        placed = [added.placed for added in self._added.values()]
        return StageOrder(names, [p for p in placed if p.is_placed_by({*names, *self._added})]).ordered()

    def add(
        self,
        name: str,
        fn: StageFn,
        *,
        before: Names = (),
        after: Names = (),
        executors: Any = (),
        transforms: Any = (),
    ) -> None:
        """Add a stage before and after others, by their names.

        `fn(trace, context)` returns a trace, and may edit the one that it receives. Its result is among the
        traces of the compile, constructed by `name` unless its provenance says otherwise; a stage that
        changes nothing adds none. After the partition a stage runs for the forward, and then for the
        backward.

        Args:
            before, after: names of stages, also of those that other plugins add. `IfPresent(name)` need not
                exist. With `after` the stage runs as early as possible, with `before` alone as late as
                possible.
            executors, transforms: the stage exists in compiles with one of these executors (objects or
                names) or transforms (classes or names); in every one if both are empty.

        Raises InvalidArgument for a name that is taken, and without a name in `before` or `after`.
        """
        first = self._added.get(name)
        if first is not None or name in [stage.name for stage in self._builtin]:
            provider = "core" if first is None else first.placed.provider
            raise InvalidArgument(
                f"the pipeline has a stage {name!r} already",
                found={"from": provider},
                hint="Choose another name, such as '<package>.<stage>'.",
            )
        befores, afters = as_tuple(before), as_tuple(after)
        if not (befores or afters) or not all(isinstance(n, str | IfPresent) for n in (*befores, *afters)):
            raise InvalidArgument(
                f"the stage {name!r} has no place among the others",
                found={"before": before, "after": after},
                hint="Name a stage in before= or after=: pipeline.names() has them all.",
            )
        optional = frozenset(n.name for n in (*befores, *afters) if isinstance(n, IfPresent))
        placed = Placed(name=name, before=_texts(befores), after=_texts(afters), optional=optional)
        stage = Stage(name, partial(run_inserted, name, fn), is_builtin=False, origin=partial(origin_of, fn))
        self._added[name] = _Added(placed, stage, StageCondition.of(name, executors, transforms))

    def insert_before(self, stage: str, name: str, fn: StageFn, **conditions: Any) -> None:
        """Add the stage `name` before another: `add(name, fn, before=stage)`."""
        self.add(name, fn, before=stage, **conditions)

    def insert_after(self, stage: str, name: str, fn: StageFn, **conditions: Any) -> None:
        """Add the stage `name` after another: `add(name, fn, after=stage)`."""
        self.add(name, fn, after=stage, **conditions)

    def attribute(self, provider: str, plugin: str | None = None) -> None:
        """Attribute the stages that were added since the last call to a plugin or a transform."""
        for name, added in self._added.items():
            if added.placed.provider == Placed.provider:
                placed = replace(added.placed, provider=provider)
                self._added[name] = replace(added, placed=placed, plugin=plugin)

    def remove_plugin(self, plugin: str) -> None:
        """Remove the stages of a plugin."""
        self._added = {name: added for name, added in self._added.items() if added.plugin != plugin}

    def stages(self) -> list[Stage]:
        """Return all stages in their order.

        Raises InvalidArgument for a stage that is placed by one that does not exist, and PluginError for a
        cycle.
        """
        builtin = [stage.name for stage in self._builtin]
        if not self._added:
            return list(self._builtin)
        names = [*builtin, *self._added]
        for added in self._added.values():
            refuse_unknown(added.placed, names)
        order = StageOrder(builtin, [added.placed for added in self._added.values()]).ordered()
        by_name = {stage.name: stage for stage in (*self._builtin, *(a.stage for a in self._added.values()))}
        return [by_name[name] for name in order]

    @property
    def has_added(self) -> bool:
        """Whether a plugin or a transform has added a stage."""
        return bool(self._added)

    def check(self, executors: Iterable[str], transforms: Iterable[str]) -> None:
        """Raise the error of the first wrong stage; `executors` and `transforms` are the existing names.

        That of a plugin is a PluginError, with the plugin's name.
        """
        names = [*(stage.name for stage in self._builtin), *self._added]
        for added in self._added.values():
            try:
                refuse_unknown(added.placed, names)
                added.condition.refuse_unknown(added.placed.name, executors, transforms)
            except InvalidArgument as error:
                if added.plugin is None:
                    raise error.blame(added.placed.provider) from None
                raise get_manager().fault(
                    added.plugin, error.asked, "thunder_pipeline", error.hint
                ) from error

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
        grad_requests: frozenset[str] = frozenset(),
        reasons: Sequence[RecompileReason] = (),
        forms_for: Callable[[int], Mapping[str, Any]] | None = None,
        effects: ProgramEffects | None = None,
    ) -> Compiled:
        """Run all stages on a program. `executors` ends with the fallback executors.

        With `check` each new trace is verified. `grad_requests` are the names of inputs that require grad
        because the program sets it. `reasons` are those of a recompile. `forms_for` returns the forms of
        overriding tensors that the transform at a position knows. `effects` are those of the program;
        without them it may have any. Raises PluginError for a
        stage that does not return a trace.
        """
        context = Context(
            tuple(executors),
            tuple(transforms),
            options or {},
            check,
            prologue=prologue,
            epilogue=epilogue,
            grad_requests=grad_requests,
            reasons=tuple(reasons),
            forms_for=forms_for,
            effects=effects or ProgramEffects(),
        )
        context.append(trace, "acquire")
        for stage in self.stages():
            added = self._added.get(stage.name)
            if added is not None and not added.condition.holds(executors, transforms):
                continue
            start = time.perf_counter_ns()
            for step in stage.steps(context):
                run_step(step, context)
            context.stage_times[stage.name] = time.perf_counter_ns() - start
        return compiled_program(context)


def _texts(names: Iterable[str | IfPresent]) -> tuple[str, ...]:
    return tuple(name.name if isinstance(name, IfPresent) else name for name in names)


def _with_plugins(options: Mapping[str, Any]) -> Pipeline:
    pipeline, manager = Pipeline(), get_manager()
    for plugin in configure_pipeline(manager, pipeline, options):
        pipeline.attribute(f"plugin {plugin!r} ({manager.source_of(plugin)})", plugin)
    return pipeline


def configured_pipeline(
    transforms: Sequence[Transform], options: Mapping[str, Any], executors: Sequence[Executor] = ()
) -> Pipeline:
    """Return the stages of core with those that plugins and transforms add in this compile.

    Raises InvalidArgument for a wrong stage of a transform, PluginError for one of a plugin or a cycle.
    """
    manager = get_manager()
    pipeline = isolated(manager, lambda: _with_plugins(options))
    for transform in transforms:
        with calling_hook(transform, "configure_pipeline", passing=(InvalidArgument,)):
            transform.configure_pipeline(pipeline, options)
        pipeline.attribute(f"transform {type(transform).__name__} ({module_of(type(transform))})")
    if pipeline.has_added:
        _check_stages(pipeline, transforms, executors)
    return pipeline


def _check_stages(pipeline: Pipeline, transforms: Sequence[Transform], executors: Sequence[Executor]) -> None:
    """Check all stages; an installed plugin with a wrong one is disabled, and its stages are removed."""
    manager = get_manager()
    named: list[ExecutorSpec | Executor] = [*manager.executor_specs(), *executors]
    executor_names = [name for executor in named for name in (executor.name, *executor.aliases)]
    classes = [cls.__name__ for transform in transforms for cls in type(transform).__mro__]
    while True:
        try:
            return pipeline.check(executor_names, [*transform_names(manager), *classes])
        except PluginError as error:
            manager.isolate(error)
            pipeline.remove_plugin(str(error.facts["plugin"]))
