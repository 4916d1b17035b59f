"""The option `memory_budget` of `thunder.jit`: a training step within a number of bytes.

Value by value it is decided whether what the backward reads is saved, computed again, or in the memory of the
CPU meanwhile. The least costly of these plans is chosen whose peak is within the budget; see
`thunder_transforms.backward_search` for the search, and `thunder.examine.memory_calculation` for the peak.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import thunder
from thunder.core.errors import InvalidArgument
from thunder.core.symbol import BoundSymbol
from thunder.core.trace import TraceCtx
from thunder.core.vjp_utils import JointProgram, RegionMode, get_saved_for_backward_tensors
from thunder.examine.memory_calculation import MemoryEstimate, estimate_memory
from thunder_transforms.backward_search import Search
from thunder_transforms.byte_counts import bytes_of
from thunder_transforms.cpu_offloading import CPUOffloading
from thunder_transforms.step_model import BackwardPlan, StepModel, step_model

__all__ = [
    "MemoryBudgetTooSmall",
    "MemoryPlan",
    "add_stages",
    "fit_memory",
]

#: how often a plan is made for fewer bytes because its program needs more than the model
_TRIALS = 4
#: how many plans are compiled for a budget beside the default
_COMPILED = 2
#: the numbers of bytes that are tried, between the least and that of keeping all
_PARTS = (0.05, 0.1, 0.2, 0.35, 0.5, 0.75)

Fate = Literal["keep", "recompute", "offload"]


class MemoryBudgetTooSmall(InvalidArgument):
    """The error for a budget that no plan meets; `facts["least"]` is the number of bytes that one needs."""


def add_stages(pipeline: Any, options: Mapping[str, Any]) -> None:
    """Add the stages of the option to the pipeline of a compile, if it is set."""
    budget = options.get("memory_budget")
    if budget is not None:
        stages = _Stages(bytes_of(budget))
        pipeline.insert_before("partition", "memory_budget", stages.set_planner)
        pipeline.insert_after("transforms_post_optimization", "memory_budget_offloading", stages.offload)
        pipeline.insert_before("codegen", "memory_budget_check", stages.check)


@dataclass
class _Stages:
    """The stages of one compile, and the plan that it has."""

    budget: int
    offloaded: frozenset[str] = frozenset()
    #: the least peak of a plan, if none that is within the budget was found
    least: int | None = None
    #: the plan; it keeps the code of its regions, which the compile uses
    chosen: _Candidate | None = None

    def set_planner(self, trace: TraceCtx, context: Any) -> TraceCtx:
        """Let the planner choose what the forward saves: trace → the same trace."""

        def plan(program: JointProgram) -> Sequence[BoundSymbol] | None:
            planner = _Planner(program, self.budget, lambda: step_model(program, trace, context.executors))
            chosen = planner.chosen()
            self.offloaded, self.least = chosen.plan.offloaded if chosen.plan else frozenset(), planner.least
            self.chosen, context.regions = chosen, chosen.regions
            return chosen.order

        context.plan_backward = plan
        return trace

    def offload(self, trace: TraceCtx, context: Any) -> TraceCtx:
        """Return a forward, or a backward, with copies of the planned values to the CPU, or back."""
        if not self.offloaded:
            return trace
        return _offloading(self.offloaded).transform_trace_post_optimization(trace, context=context)

    def check(self, trace: TraceCtx, context: Any) -> TraceCtx:
        """Raise MemoryBudgetTooSmall if the program needs more bytes than the budget: trace → the same."""
        branches = context.branches
        if context.branch is not branches[-1]:
            return trace
        backward = branches[1].traces[-1] if len(branches) > 1 else None
        peak = estimate_memory(branches[0].traces[-1], backward).peak
        if peak > self.budget:
            raise _too_small(self.budget, peak if self.least is None else self.least)
        return trace


def _too_small(budget: int, least: int) -> MemoryBudgetTooSmall:
    return MemoryBudgetTooSmall(
        f"memory_budget={budget} bytes: the step needs more",
        found={"least": f"{least} bytes"},
        hint="Weights, arguments, results, gradients and the largest operation need memory in any case.",
        facts={"least": least},
    )


@dataclass(frozen=True)
class _Candidate:
    """A plan and the peak of its program in bytes; without a plan, that of the option rematerialization.

    Attributes:
        regions: what fusion executors do with the regions of the program.
        traces: its forward and backward. While they exist, so does the code of their regions.
    """

    plan: BackwardPlan | None
    regions: RegionMode
    traces: tuple[TraceCtx, TraceCtx]
    peak: int

    @property
    def order(self) -> list[BoundSymbol] | None:
        """The calls of the backward in their order; None leaves it to core."""
        return None if self.plan is None else [call.bsym for call in self.plan.order]


def _peak(candidate: _Candidate) -> int:
    return candidate.peak


class _Planner:
    """Finds the plan for a budget.

    The model has no fusions, so that a program with regions may need more or less than the model says. Plans
    are compared by sketches, in which no region is compiled. The chosen one is compiled, and if its code
    exceeds the budget, it is made again for fewer bytes. Without regions a program needs what the model says,
    so that every budget is met that is not below the least of the model.
    """

    def __init__(self, program: JointProgram, budget: int, model: Callable[[], StepModel]) -> None:
        self.program, self.budget = program, budget
        self._model = model
        self.least: int | None = None

    def chosen(self) -> _Candidate:
        """Return the cheapest plan within the budget, or the one that needs least."""
        lower_bound = self._lower_bound(None)
        if lower_bound.peak <= self.budget:
            default = self._compiled(None)
            if default.peak <= self.budget:
                return default
        model, target = self._model(), self.budget - lower_bound.inputs
        search = Search(model)
        found = self._fitting(search, target, "sketched") or self._small(search, model, self.budget)
        return found or self._fitting(search, target, "left") or self._least(search, model)

    def _fitting(self, search: Search, target: int, regions: RegionMode) -> _Candidate | None:
        """Return a plan within the budget, or None if none was found; a sketch that fits is compiled."""
        compiled = 0
        for _ in range(_TRIALS):
            plan = search.cheapest(target)
            if plan is None:
                return None
            candidate = self._estimated(plan, regions)
            if candidate.peak <= self.budget and regions == "sketched":
                candidate = self._compiled(plan)
                compiled += 1
            if candidate.peak <= self.budget:
                return candidate
            if compiled == _COMPILED:
                return None
            target -= candidate.peak - self.budget
        return None

    def _small(self, search: Search, model: StepModel, most: int) -> _Candidate | None:
        """Return a plan with regions that needs at most so many bytes, among those with small sketches.

        They do not depend on the budget.
        """
        least = search.least()
        low, high = model.peak(least), model.peak(search.keeping())
        plans = (None, least, *(search.cheapest(low + int(part * (high - low))) for part in _PARTS))
        sketches = sorted((self._estimated(plan, "sketched") for plan in plans), key=_peak)
        plans = tuple(dict.fromkeys(sketch.plan for sketch in sketches))[:_COMPILED]
        possible = [plan for plan in plans if self._lower_bound(plan).peak <= most]
        smallest = min(map(self._compiled, possible), key=_peak, default=None)
        return smallest if smallest is not None and smallest.peak <= most else None

    def _least(self, search: Search, model: StepModel) -> _Candidate:
        """Return the plan that needs least. Its number of bytes is a budget that fits."""
        unfused = self._estimated(search.least(), "left")
        smallest = self._small(search, model, unfused.peak) or unfused
        if smallest.peak > self.budget:
            self.least = smallest.peak
        return smallest

    def _lower_bound(self, plan: BackwardPlan | None) -> MemoryEstimate:
        """Return the memory of a plan whose regions store no value but their outputs."""
        return estimate_memory(*self._traces(plan, "sketched"), sketches_store=False)

    def _compiled(self, plan: BackwardPlan | None) -> _Candidate:
        return self._estimated(plan, "compiled")

    def _estimated(self, plan: BackwardPlan | None, regions: RegionMode) -> _Candidate:
        traces = self._traces(plan, regions)
        return _Candidate(plan, regions, traces, estimate_memory(*traces).peak)

    def _traces(self, plan: BackwardPlan | None, regions: RegionMode) -> tuple[TraceCtx, TraceCtx]:
        """Return the forward and the backward of a plan, with copies to the CPU and back."""
        order = None if plan is None else [call.bsym for call in plan.order]
        forward, backward = self.program.traces(order, regions)
        if plan is not None and plan.offloaded:
            transform, context = _offloading(plan.offloaded), _States()
            forward = transform.transform_trace_post_optimization(forward, context=context)
            backward = transform.transform_trace_post_optimization(backward, context=context)
        return forward, backward


class _States:
    """The states of transforms in a trial."""

    def __init__(self) -> None:
        self._states: dict[type[Any], Any] = {}

    def state(self, kind: type[Any]) -> Any:
        """Return the one object of a class."""
        return self._states.setdefault(kind, kind())


def _offloading(names: frozenset[str]) -> CPUOffloading:
    """Return the transform that copies the values of these names to the CPU, and back when they are read."""
    return CPUOffloading(
        lambda tensors, trace: [t for t in tensors if t.name in names],
        devices=("cuda", "xpu", "mps", "hpu"),
        ahead=False,
    )


# -- plans


@dataclass(frozen=True)
class MemoryPlan:
    """A plan that says what becomes of the values of a training step within a number of bytes.

    Attributes:
        peak: the estimate of the most bytes that are allocated at once: weights, arguments and gradients too.
        saved: the estimate of the bytes between forward and backward, without weights and arguments.
        values: what becomes of each value that the backward reads, by its name in the traces.
    """

    peak: int
    saved: int
    values: Mapping[str, Fate] = field(repr=False)

    def __str__(self) -> str:
        counts = {f: list(self.values.values()).count(f) for f in ("keep", "recompute", "offload")}
        texts = ", ".join(f"{n} {fate}" for fate, n in counts.items() if n)
        return f"peak {self.peak} bytes ({texts})"


def fit_memory(
    fn: Callable[..., Any], /, *args: Any, max_bytes: int | str, device: str | None = None, **options: Any
) -> MemoryPlan:
    """Return what `thunder.jit(fn, memory_budget=max_bytes)` does with the values of `fn`, which is not run.

    `fn` computes the loss from `args`. `device` and `options` are those of `thunder.plan`. Raises
    MemoryBudgetTooSmall, with the least number of bytes, if no plan needs so little, and InvalidArgument for
    a program without a backward.
    """
    plan = thunder.plan(fn, *args, device=device, memory_budget=bytes_of(max_bytes), **options)
    if not plan.backward_traces:
        raise InvalidArgument("the program has no backward: nothing is kept for one")
    return MemoryPlan(plan.memory.peak, plan.memory.saved, _fates(plan))


def _fates(plan: Any) -> dict[str, Fate]:
    """Return what becomes of each value that the backward reads or computes again."""
    forward, backward = plan.traces[-1], plan.backward_traces[-1]
    computed = {p.name for bsym in forward.bound_symbols for p in bsym.flat_proxy_outs}
    sources = {
        bsym.output.name: bsym.args[0].name
        for bsym in forward.bound_symbols
        if bsym.sym.name == "offload_to_cpu"
    }
    fates: dict[str, Fate] = {
        f"{sources.get(p.name, p.name)}": "offload" if p.name in sources else "keep"
        for p in get_saved_for_backward_tensors(forward)
        if p.name in computed
    }
    for bsym in backward.bound_symbols:
        for p in bsym.flat_proxy_outs:
            name = p.name.removeprefix("bw_")
            if name != p.name and name not in fates:
                fates[name] = "recompute"
    return fates
