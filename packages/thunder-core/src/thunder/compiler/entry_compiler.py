"""The compile of one cache entry: acquisition, pipeline, prologue."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from time import perf_counter_ns
from typing import Any, NamedTuple

import torch

from thunder.base.default_generators import default_generators_kept
from thunder.base.devices import Device
from thunder.base.errors import (
    OperatorError,
    PluginError,
    RaisedByProgram,
    RequirementNotMet,
    StateChanged,
    ThunderError,
    UnsupportedProgram,
    without_frames,
)
from thunder.base.langctx import LanguageContext
from thunder.base.options import CACHE_OPTIONS
from thunder.base.plugin_calls import checking
from thunder.base.size_wishes import are_marked, option_wishes
from thunder.compiler.assumed_device import with_device_profile
from thunder.compiler.compile_plan import Answers, CompilePlan, CompileStep, Fewer
from thunder.compiler.contributed_state import contributed_state
from thunder.compiler.declared_devices import refuse_without_values
from thunder.compiler.failed_calls import effects_of
from thunder.compiler.kept_programs import keep_entry, kept_entry, revised_entry
from thunder.compiler.ledger import check_requirements, explain_placements
from thunder.compiler.new_entries import dropped_facts, new_entry
from thunder.compiler.pipeline import Compiled, configured_pipeline
from thunder.compiler.plugin_contributions import (
    PluginContributions,
    contributions_since,
    lookasides_of,
    plugin_contributions,
    replacements_of,
)
from thunder.compiler.running_compile import during_compile
from thunder.compiler.sharp_edges import SharpEdges
from thunder.compiler.stages import blamed_on
from thunder.compiler.stats import CacheEntry, CompileData, CompileStats
from thunder.compiler.varying_inputs import VaryingInputs
from thunder.executor_base.operator_executor import with_replacements
from thunder.frontend.acquire import Acquisition, acquire_stable, size_facts
from thunder.frontend.decisions.computed_sizes import ComputedPlaces, OtherAnswers
from thunder.frontend.facts import Fact
from thunder.frontend.guards import Trusted, ambient_fact, prologue_trace
from thunder.frontend.prologue_statements import interface_of
from thunder.frontend.ran_code import refuse_another_trace
from thunder.frontend.size_choice import SizeChoice
from thunder.frontend.trace_request import TraceRequest
from thunder.ir.size_facts import SizeFacts
from thunder.ir.trace import TraceCtx
from thunder.passes.placement import calls_for_numbers
from thunder.passes.transform import Transform, defines_hook
from thunder.plugins.specs import DeviceProfile
from thunder.torch.fallback.unknown_functions import without_fallback
from thunder.wrappers.overrides import Overrides

__all__ = ["EntryCompiler"]


#: what a program raises that may be compiled with fewer inputs; a fault of thunder is none of these
_FAILURES = (RaisedByProgram, UnsupportedProgram, RequirementNotMet, PluginError)


class _Call(NamedTuple):
    """A call that is compiled for, and the device on which its tensors are assumed to be."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    device: DeviceProfile | None


class EntryCompiler:
    """Compiles the cache entries of a compiled function, and notes in `stats` what the last compile did."""

    def __init__(self, data: CompileData, overrides: Overrides | None, stats: CompileStats) -> None:
        self.data, self.overrides, self.stats = data, overrides, stats
        self._replacements = replacements_of((*data.lookasides, *lookasides_of(data.transforms)))
        self.varying = VaryingInputs(everywhere=data.cache_option is CACHE_OPTIONS.SYMBOLIC_VALUES)
        self._wishes = option_wishes(data.compile_options["dynamic_sizes"])

    @during_compile
    def compile(
        self,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        device: DeviceProfile | None = None,
        *,
        answers: Answers | None = None,
        like: CacheEntry | None = None,
    ) -> CacheEntry:
        """Compile for a call; with ``device``, as if all tensors were there.

        ``answers`` are those to the first questions that the program asks about data; the program is run for
        the others (Note [Decisions on data]). With None nothing is run, and questions are refused. With
        ``like`` the numbers and sizes that are inputs of that entry are inputs, else those that are known to
        vary. What fails is tried with fewer inputs (Note [How a compile is tried again]).

        Raises RaisedByProgram with the exception that the program raises.
        """
        call, plan = _Call(args, kwargs, device), self._first_plan(answers, like)
        lessons, refusal = list[Callable[[], None]](), None
        self.stats.last_compile_steps = steps = list[CompileStep]()
        with checking(self.data.debug_options.check_traces):
            while True:
                started = perf_counter_ns()
                result = self._try(plan, call)
                why = result.why if isinstance(result, Fewer) else None
                steps.append(CompileStep(plan, why, perf_counter_ns() - started))
                if not isinstance(result, Fewer):
                    break
                plan, refusal = result.plan, result.refusal or refusal
                lessons += () if result.lesson is None else (result.lesson,)
        if refusal is not None:
            raise refusal
        for note in lessons:
            note()
        self.varying.note_answers(result.decisions)
        result.steps = tuple(steps)
        return result

    def _try(self, plan: CompilePlan, call: _Call) -> CacheEntry | Fewer:
        """Return the entry of a plan, or the plan with fewer inputs that is to be tried in its place."""
        choice = self._size_choice(plan) if call.device is None else None
        try:
            result, keep = self._compile(plan, call, choice)
        except OtherAnswers as others:  # the program asks other questions
            self.varying.note_places(sorted(others.places))
            return Fewer(self._first_plan(None if plan.answers is None else (), None), others)
        except _FAILURES as error:
            fewer = self._fewer(plan, choice, error)
            if fewer is None:
                raise
            return fewer
        # others than a program for one call would read what it has changed
        if choice is not None and keep is not None and not result.is_for_one_call:
            why = self._refusal_of_executors(result, choice)
            if why is not None:
                return Fewer(plan.for_numbers(), why)
            self.varying.note_free(choice.chosen_likely & result.free_sizes)
        if keep is not None:
            keep()
        return result

    def _fewer(self, plan: CompilePlan, choice: SizeChoice | None, error: Exception) -> Fewer | None:
        """Return the plan to try after an error, or None where the error does not come from inputs.

        Sizes that only probably vary are inputs no more, then those that the program finds, numbers, and last
        all sizes.
        """
        if isinstance(error, StateChanged) or (choice is not None and error is choice.error):
            return None
        varying = self.varying
        if choice is None or not choice.has_symbols:
            return None
        why = self.stats.last_static_reason = without_frames(error)
        if choice.chosen_likely:
            return Fewer(plan.fewer(likely=None), why)
        if choice.found_places:
            lesson = functools.partial(varying.note_failure, choice.found_places)
            return Fewer(plan.fewer(places=ComputedPlaces()), why, lesson)
        if choice.has_numbers:
            lesson = functools.partial(varying.note_failure, numbers=True)
            return Fewer(plan.fewer(takes_numbers=False), why, lesson)
        refusal = choice.refused(why) if choice.has_wishes else None
        return Fewer(plan.for_numbers(), why, varying.note_failure, refusal)

    def _refusal_of_executors(self, entry: CacheEntry, choice: SizeChoice) -> UnsupportedProgram | None:
        """Return which calls an executor would run if sizes were numbers, and they can be; None if none."""
        is_free = self.data.cache_option is CACHE_OPTIONS.AUTOMATIC and not choice.has_wishes
        if not is_free or not choice.has_symbols or self.varying.are_worth_refusals:
            return None
        refused = calls_for_numbers([*entry.ledger, *(entry.backward_ledger or ())])
        if not refused:
            return None
        self.varying.note_refused()
        why = self.stats.last_static_reason = UnsupportedProgram(
            "an executor runs calls of the program for sizes that are numbers", found=refused
        )
        return why

    def _first_plan(self, answers: Answers | None, like: CacheEntry | None) -> CompilePlan:
        known = self._known_answers(answers)
        if like is None:
            return self.varying.plan(known)
        return replace(like.plan, places=like.plan.places.known, answers=known)

    def _size_choice(self, plan: CompilePlan) -> SizeChoice | None:
        """Return which sizes are symbols by a plan and by wishes, or None if they are numbers."""
        mode = self.data.cache_option
        is_symbolic = mode is CACHE_OPTIONS.SYMBOLIC_VALUES and plan.sizes is not None
        has_symbols = is_symbolic or plan.sizes or plan.places or self._wishes or are_marked()
        if plan.is_for_numbers or not has_symbols:
            return None
        refusal = None
        if mode is CACHE_OPTIONS.SAME_INPUT:
            refusal = 'cache="same input" compiles for one call'
        elif changing := [t for t in self.data.transforms if _rewrites_inputs((t,)) and not t.keeps_sizes]:
            refusal = f"{type(changing[0]).__name__} changes how the program reads its inputs"
            self.stats.last_static_reason = UnsupportedProgram(
                f"sizes are numbers, because {refusal}",
                hint="A transform that computes with any sizes says so: keeps_sizes = True.",
            )
        return SizeChoice(
            self.data.fn,
            everything=is_symbolic,
            varying=plan.sizes or frozenset(),
            likely=plan.likely,
            wishes=self._wishes,
            refusal=refusal,
            computed=plan.places,
            takes_numbers=plan.takes_numbers,
        )

    def _known_answers(self, answers: Answers | None) -> Answers | None:
        """Return the answers, or None where questions about data are refused.

        They are by the option, and where transforms replace inputs, on which the program cannot be run.
        """
        if self.data.compile_options["data_dependent"] == "refuse":
            return None
        replaced = self.overrides is not None and bool(self.overrides.tensors)
        return None if replaced and _rewrites_inputs(self.data.transforms) else answers

    def _compile(
        self, plan: CompilePlan, call: _Call, choice: SizeChoice | None
    ) -> tuple[CacheEntry, Callable[[], None] | None]:
        """Compile by a plan: acquisition, pipeline, prologue.

        With the entry comes what lets the stores keep it; None for one that a store had.
        """
        data, stats = self.data, self.stats
        contributions = plugin_contributions()
        started = perf_counter_ns()
        baked: list[str] = []
        request = self._request(plan, call, choice, contributions, baked)
        kept = kept_entry(request, data) if call.device is None else None
        if kept is not None and (not plan.answers or kept.plan.has_inputs_of(plan)):
            kept.contributions = contributions
            kept.plan = replace(plan, sizes=kept.plan.sizes, places=kept.plan.places, likely=None)
            stats.stage_times = {"kept": perf_counter_ns() - started}
            return kept, None
        program = acquire_stable(request)
        acquired, loaded = perf_counter_ns(), frozenset(sys.modules)
        stats.last_interpreted_instructions, stats.last_interpreter_log = program.interpreted, program.log
        try:
            compiled = self._run_pipeline(program)
        except ThunderError:
            refuse_another_trace(program.is_for_one_call and choice is not None)
            raise
        if data.require:
            check_requirements(explain_placements(compiled.ledger, compiled.backward_ledger), data.require)
        before = perf_counter_ns()
        prologues: Sequence[TraceCtx] = (program.prologue,)
        facts = program.facts
        dropped: tuple[Fact, ...] = ()
        if call.device is None:
            refuse_without_values(facts, {"args": call.args, "kwargs": call.kwargs})
        if compiled.prologue is not None and compiled.prologue is not program.prologue:
            refuse_another_trace(program.is_for_one_call)
            final, facts = self._written_prologue(compiled.prologue, program, call)
            prologues = (program.prologue.structure(), *compiled.prologues, final)
            dropped = dropped_facts(program.facts, facts) if data.debug_options.check_guards else ()
        if program.sizes is not None and choice is not None:
            self._complete_sizes(program.sizes, choice)
            facts = (*facts, *size_facts(program.sizes, program.inputs))
        inputs = _inputs(plan, choice)
        contributions = contributions_since(contributions, loaded)
        entry = new_entry(program, compiled, baked, contributions, prologues, facts, dropped, inputs)
        stats.stage_times = {
            "acquire": acquired - started,
            **compiled.stage_times,
            "prologue": perf_counter_ns() - before,
        }
        if call.device is None:
            entry = revised_entry(entry, request, data)
        keep = functools.partial(keep_entry, entry, request, data) if call.device is None else _keep_nowhere
        return entry, keep

    def _complete_sizes(self, sizes: SizeFacts, choice: SizeChoice) -> None:
        """State what is left of the facts about sizes, and note which sizes they fix."""
        if sizes.has_unchecked:
            raise UnsupportedProgram("a size that depends on data is found in a part of another call")
        sizes.complete()
        choice.check(sizes)
        self.stats.last_static_reason = choice.why_fixed(sizes) or self.stats.last_static_reason
        self.varying.note_values(sizes.all_values())

    def request(self, plan: CompilePlan) -> TraceRequest:
        """Return the request for a trace by a plan, without a call: what the settings say."""
        return self._request(plan, _Call((), {}, None), None, plugin_contributions(), [])

    def _request(
        self,
        plan: CompilePlan,
        call: _Call,
        choice: SizeChoice | None,
        contributions: PluginContributions,
        baked: list[str],
    ) -> TraceRequest:
        data, language, device = self.data, self._language(), call.device
        return TraceRequest(
            fn=data.fn,
            args=call.args,
            kwargs=call.kwargs,
            language=language if device is None else with_device_profile(language, device),
            sharp_edge=SharpEdges(data.sharp_edges, baked),
            disable_grad=data.disable_torch_autograd_support,
            trusted=self._trusted(),
            inputs_are_disjoint=data.compile_options["skip_inplace_alias_updates"],
            record_log=data.debug_options.record_interpreter_history,
            contributed=contributed_state(data.transforms, data.compile_options),
            overrides=self.overrides,
            rewrites_inputs=_rewrites_inputs(data.transforms),
            device=None if device is None else Device(device.type),
            replacements=(*self._replacements, *contributions.replacements),
            opaque=data.compile_options["opaque"],
            answers=plan.answers,
            sizes=choice,
        )

    def _written_prologue(
        self,
        prologue: TraceCtx,
        program: Acquisition,
        call: _Call,
    ) -> tuple[TraceCtx, tuple[Fact, ...]]:
        """Return the prologue that runs, written from statements that transforms changed, and its facts.

        What was acquired says which sizes are symbols, and what is known of them.
        """
        roots = {"args": call.args, "kwargs": call.kwargs}
        with torch._C.DisableTorchFunction():
            with blamed_on(self.data.transforms):
                interface = interface_of(prologue, roots, program, assumed_device=call.device is not None)
            return prologue_trace(interface, roots, self._trusted()), (ambient_fact(), *interface.facts)

    def _run_pipeline(self, program: Acquisition) -> Compiled:
        data = self.data
        try:
            with default_generators_kept():
                return configured_pipeline(data.transforms, data.compile_options, data.executors_list).run(
                    program.computation,
                    data.executors_list,
                    data.transforms,
                    data.compile_options,
                    check=data.debug_options.check_traces,
                    prologue=program.prologue,
                    epilogue=program.epilogue,
                    grad_requests=program.grad_requests,
                    reasons=self.stats.last_recompile_reasons,
                    forms_for=None if self.overrides is None else self.overrides.forms_for,
                    effects=effects_of(program),
                )
        except OperatorError as error:  # torch refuses a call, and only the whole program shows it
            handles = program.handles_errors and not program.calls_symbols
            raise RaisedByProgram(error, (), runs_again=handles, handles=handles) from None

    def _language(self) -> LanguageContext:
        """Return the language in which the program's calls of torch functions are interpreted."""
        data = self.data
        language = with_replacements(data.langctx, data.executors_list)
        return (
            language if data.compile_options["operator_fallback"] == "eager" else without_fallback(language)
        )

    def _trusted(self) -> Trusted:
        if self.data.cache_option is CACHE_OPTIONS.SAME_INPUT:
            return "everything"
        return "structure" if self.data.compile_options["frozen"] else "nothing"


def _keep_nowhere() -> None:
    """Keep an entry in no store."""


def _inputs(plan: CompilePlan, choice: SizeChoice | None) -> CompilePlan:
    """Return the plan of a compile, with the sizes and numbers that have become inputs."""
    if choice is None:
        return replace(plan, sizes=None, places=ComputedPlaces(), likely=None)
    sizes = choice.chosen_likely.union(plan.sizes or ()) if choice.chosen_likely else plan.sizes
    return replace(plan, sizes=sizes, places=choice.computed, likely=None)


def _rewrites_inputs(transforms: Iterable[Transform]) -> bool:
    """Return whether a transform can change how a program reads its inputs."""
    return any(defines_hook(transform, "transform_traces_pre_prologue") for transform in transforms)
