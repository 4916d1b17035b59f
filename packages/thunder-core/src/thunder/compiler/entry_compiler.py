"""The compile of one cache entry: acquisition, pipeline, prologue."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from time import perf_counter_ns
from typing import Any

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
from thunder.compiler.contributed_state import contributed_state
from thunder.compiler.failed_calls import effects_of
from thunder.compiler.ledger import check_requirements, explain_placements
from thunder.compiler.new_entries import dropped_facts, new_entry
from thunder.compiler.pipeline import Compiled, configured_pipeline
from thunder.compiler.plugin_contributions import (
    PluginContributions,
    lookasides_of,
    plugin_contributions,
    replacements_of,
)
from thunder.compiler.running_compile import during_compile
from thunder.compiler.sharp_edges import SharpEdges
from thunder.compiler.stages import blamed_on
from thunder.compiler.stats import Answers, CacheEntry, CompileData, CompileStats
from thunder.compiler.varying_numbers import VaryingNumbers
from thunder.compiler.varying_sizes import VaryingSizes
from thunder.executor_base.operator_executor import with_replacements
from thunder.frontend.acquire import Acquisition, acquire, acquire_stable
from thunder.frontend.decisions.computed_sizes import ComputedPlaces, OtherAnswers
from thunder.frontend.declared_devices import refuse_without_values
from thunder.frontend.facts import Fact
from thunder.frontend.guards import Trusted, ambient_fact, prologue_trace
from thunder.frontend.prologue_reading import interface_of
from thunder.frontend.ran_code import refuse_another_trace
from thunder.frontend.size_choice import LikelySizes, SizeChoice
from thunder.ir.trace import TraceCtx
from thunder.passes.placement import calls_for_numbers
from thunder.passes.transform import Transform, defines_hook
from thunder.plugins.specs import DeviceProfile
from thunder.torch.fallback.unknown_functions import without_fallback
from thunder.wrappers.overrides import Overrides

__all__ = ["EntryCompiler"]


class EntryCompiler:
    """Compiles the cache entries of a compiled function, and notes in `stats` what the last compile did."""

    def __init__(self, data: CompileData, overrides: Overrides | None, stats: CompileStats) -> None:
        self.data, self.overrides, self.stats = data, overrides, stats
        self._replacements = replacements_of((*data.lookasides, *lookasides_of(data.transforms)))
        self.varying = VaryingNumbers()
        self.sizes = VaryingSizes(everywhere=data.cache_option is CACHE_OPTIONS.SYMBOLIC_VALUES)
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
        vary.

        Raises RaisedByProgram with the exception that the program raises.
        """
        with checking(self.data.debug_options.check_traces):
            numbers = self.varying.sources if like is None else like.varying
            sizes, places = (
                self.sizes.for_compile() if like is None else (like.varying_sizes, like.computed_places.known)
            )
            known = self._known_answers(answers)
            likely = self.sizes.likely() if like is None else None
            choice = self._size_choice(sizes, places, likely) if device is None else None
            if choice is None:
                entry = self._compile(args, kwargs, device, known, numbers)
            else:
                for_call = functools.partial(self._compile, args, kwargs, device, varying=numbers)
                try:
                    entry = self._with_symbols(for_call, known, sizes, choice)
                except OtherAnswers as others:
                    self.sizes.note_places(sorted(others.places))
                    # the program asks other questions
                    return self.compile(args, kwargs, device, answers=None if answers is None else ())
            self.sizes.note_answers(entry.decisions)
            return entry

    def _with_symbols(
        self,
        compile_for_call: Callable[..., CacheEntry],
        known: Answers | None,
        sizes: frozenset[str] | None,
        choice: SizeChoice,
    ) -> CacheEntry:
        """Return the entry of a compile with symbols, or with fewer of them where it fails.

        A program may fail where sizes that only probably vary are symbols, or those that it finds, or numbers
        of its arguments, and not where those of its inputs are that have differed.
        """
        entry = self._attempt(functools.partial(compile_for_call, answers=known, free=choice), choice)
        if entry is not None and entry.is_for_one_call:  # others would read what the program has changed
            return entry
        if entry is not None and sizes is not None:
            counted = self._with_counted(compile_for_call, known, sizes, choice, entry)
            if counted is not None:
                return counted
        if entry is not None and not self._should_be_for_numbers(entry, choice):
            likely = choice.chosen_likely
            entry.varying_sizes = likely.union(sizes or ()) if likely else sizes
            entry.computed_places = choice.computed
            self.sizes.note_free(likely & entry.free_sizes)
            return entry
        # with fewer symbols, the program may ask other questions
        others: Answers | None = None if known is None else ()
        without_likely = self._size_choice(sizes, choice.computed) if choice.chosen_likely else None
        if entry is None and without_likely is not None:
            return self._with_symbols(compile_for_call, others, sizes, without_likely)
        places = choice.found_places if entry is None else frozenset[str]()
        fails_with_numbers = entry is None and not places and choice.has_numbers
        fewer = None
        if places:
            fewer = self._size_choice(sizes, ComputedPlaces(), numbers=choice.takes_numbers)
        elif fails_with_numbers:
            fewer = self._size_choice(sizes, choice.computed, numbers=False)
        if fewer is not None:
            other = self._with_symbols(compile_for_call, others, sizes, fewer)
        else:
            other = compile_for_call(answers=others)
            if choice.has_wishes:
                assert self.stats.last_static_reason is not None, "a compile with symbols has failed"
                raise choice.refused(self.stats.last_static_reason)
        if entry is None:  # a program that raises for these arguments has raised again
            self.sizes.note_failure(places, numbers=fails_with_numbers)
        return other

    def _with_counted(
        self,
        compile_for_call: Callable[..., CacheEntry],
        known: Answers | None,
        sizes: frozenset[str],
        choice: SizeChoice,
        entry: CacheEntry,
    ) -> CacheEntry | None:
        """Return an entry with the numbers as inputs whose values the program writes and another one fixes.

        None where there are none, or where the program needs their values (Note [Numbers that vary]).
        """
        counted = entry.fixed_sizes & sizes & self.varying.sources
        if not counted:
            return None
        fewer = self._size_choice(sizes - counted, choice.computed)
        others: Answers | None = None if known is None else ()
        if fewer is None:
            other = compile_for_call(answers=others)
        else:
            other = self._with_symbols(compile_for_call, others, sizes - counted, fewer)
        if not counted <= other.varying:
            return None
        self.sizes.note_counted(counted)
        return other

    def _attempt(self, compile_for_call: Callable[[], CacheEntry], choice: SizeChoice) -> CacheEntry | None:
        """Return the entry of a compile with symbols, or None if the program or a plugin needs numbers.

        A fault of thunder is raised.
        """
        try:
            return compile_for_call()
        except (RaisedByProgram, UnsupportedProgram, RequirementNotMet, PluginError) as error:
            is_final = error is choice.error or isinstance(error, StateChanged)
            if is_final or not choice.has_symbols:
                raise
            self.stats.last_static_reason = without_frames(error)
            return None

    def _should_be_for_numbers(self, entry: CacheEntry, choice: SizeChoice) -> bool:
        """Return whether an executor would run a call of an entry if sizes were numbers, and they can be."""
        if (
            self.data.cache_option is not CACHE_OPTIONS.AUTOMATIC
            or choice.has_wishes
            or not choice.has_symbols
        ):
            return False
        refused = calls_for_numbers([*entry.ledger, *(entry.backward_ledger or ())])
        if not refused or self.sizes.are_worth_refusals:
            return False
        self.sizes.note_refused()
        self.stats.last_static_reason = UnsupportedProgram(
            "an executor runs calls of the program for sizes that are numbers",
            found=refused,
        )
        return True

    def _size_choice(
        self,
        varying: frozenset[str] | None,
        places: ComputedPlaces,
        likely: LikelySizes | None = None,
        *,
        numbers: bool = True,
    ) -> SizeChoice | None:
        """Return which sizes are symbols, or None if they are numbers.

        ``varying`` are those of inputs that vary; None if no such size is a symbol without a wish for it.
        ``likely`` are chosen beside these. At ``places`` the computation finds sizes. With ``numbers`` the
        numbers of the arguments may be symbols.
        """
        mode = self.data.cache_option
        is_symbolic = mode is CACHE_OPTIONS.SYMBOLIC_VALUES and varying is not None
        if not (is_symbolic or varying or places or self._wishes or are_marked()):
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
            varying=varying or frozenset(),
            likely=likely,
            wishes=self._wishes,
            refusal=refusal,
            computed=places,
            takes_numbers=numbers and self.sizes.takes_numbers,
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
        self,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        device: DeviceProfile | None,
        answers: Answers | None,
        varying: frozenset[str],
        free: SizeChoice | None = None,
    ) -> CacheEntry:
        data, stats = self.data, self.stats
        contributions = plugin_contributions()
        started = perf_counter_ns()
        baked: list[str] = []
        acquisition = self._acquisition(args, kwargs, device, contributions, baked, free)

        def acquired_with(numbers: frozenset[str]) -> Acquisition:
            # answers are those of a program with the same inputs
            known = answers if numbers == varying or answers is None else ()
            return acquire_stable(functools.partial(acquisition, answers=known, varying=numbers))

        program = self.varying.acquired(acquired_with, varying if answers is not None else frozenset())
        acquired = perf_counter_ns()
        stats.last_interpreted_instructions, stats.last_interpreter_log = program.interpreted, program.log
        try:
            compiled = self._run_pipeline(program)
        except ThunderError:
            refuse_another_trace(program.is_for_one_call and free is not None)
            raise
        if data.require:
            check_requirements(explain_placements(compiled.ledger, compiled.backward_ledger), data.require)
        before = perf_counter_ns()
        prologues: Sequence[TraceCtx] = (program.prologue,)
        facts = program.facts
        dropped: tuple[Fact, ...] = ()
        if device is None:
            refuse_without_values(facts, {"args": args, "kwargs": kwargs})
        if compiled.prologue is not None and compiled.prologue is not program.prologue:
            refuse_another_trace(program.is_for_one_call)
            changed = compiled.prologue
            final, facts = self._written_prologue(changed, program, args, kwargs, device is not None)
            prologues = (program.prologue.structure(), *compiled.prologues, final)
            dropped = dropped_facts(program.facts, facts) if data.debug_options.check_guards else ()
        if program.sizes is not None and free is not None:
            if program.sizes.has_unchecked:
                raise UnsupportedProgram("a size that depends on data is found in a part of another call")
            program.sizes.complete()
            free.check(program.sizes)
            stats.last_static_reason = free.why_fixed(program.sizes) or stats.last_static_reason
            self.sizes.note_values(program.sizes.all_values())
            facts = (*facts, *program.size_facts())
        entry = new_entry(program, compiled, baked, contributions, prologues, facts, dropped)
        stats.stage_times = {
            "acquire": acquired - started,
            **compiled.stage_times,
            "prologue": perf_counter_ns() - before,
        }
        return entry

    def _acquisition(
        self,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        device: DeviceProfile | None,
        contributions: PluginContributions,
        baked: list[str],
        free: SizeChoice | None,
    ) -> Callable[..., Acquisition]:
        """Return `acquire` with all arguments but the answers to questions and the numbers that vary."""
        data = self.data
        return functools.partial(
            acquire,
            data.fn,
            args,
            kwargs,
            language=self._language() if device is None else with_device_profile(self._language(), device),
            sharp_edge=SharpEdges(data.sharp_edges, baked),
            disable_grad=data.disable_torch_autograd_support,
            trusted=self._trusted(),
            inputs_are_disjoint=data.compile_options["skip_inplace_alias_updates"],
            record_log=data.debug_options.record_interpreter_history,
            contributed=contributed_state(data.transforms),
            overrides=self.overrides,
            rewrites_inputs=_rewrites_inputs(data.transforms),
            device=None if device is None else Device(device.type),
            replacements=(*self._replacements, *contributions.replacements),
            opaque=data.compile_options["opaque"],
            free=free,
        )

    def _written_prologue(
        self,
        prologue: TraceCtx,
        program: Acquisition,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        assumed_device: bool,
    ) -> tuple[TraceCtx, tuple[Fact, ...]]:
        """Return the prologue that runs, written from statements that transforms changed, and its facts.

        What was acquired says which sizes are symbols, and what is known of them.
        """
        roots = {"args": args, "kwargs": kwargs}
        with torch._C.DisableTorchFunction():
            with blamed_on(self.data.transforms):
                interface = interface_of(prologue, roots, program, assumed_device=assumed_device)
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


def _rewrites_inputs(transforms: Iterable[Transform]) -> bool:
    """Return whether a transform can change how a program reads its inputs."""
    return any(defines_hook(transform, "transform_traces_pre_prologue") for transform in transforms)
