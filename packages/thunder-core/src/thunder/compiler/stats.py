"""The settings, cache entries and statistics of a compiled object."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from types import CodeType
from typing import Any

from thunder.base.equal_values import same_leaf
from thunder.base.langctx import LanguageContext
from thunder.base.options import CACHE_OPTIONS, SHARP_EDGES_OPTIONS, CompileOptions, DebugOptions
from thunder.compiler.compile_plan import Answers, CompilePlan, CompileStep
from thunder.compiler.failed_calls import FailurePlan
from thunder.compiler.plugin_contributions import PluginContributions
from thunder.executor_base.executor import Executor
from thunder.frontend.decisions.decision import Decision
from thunder.frontend.facts import Fact
from thunder.frontend.traced_replacements import ReplacedFunction
from thunder.ir.trace import TraceCtx
from thunder.passes.below_autograd import BelowAutograd
from thunder.passes.notes import Note
from thunder.passes.placed_writes.raising_calls import ProgramEffects
from thunder.passes.write_in_place import InputWrite
from thunder.plugins.specs import Lookaside


@dataclass(frozen=True, kw_only=True)
class CompileData:
    """The settings that ``thunder.jit`` was called with."""

    fn: Callable[..., Any]
    is_module: bool
    langctx: LanguageContext
    executors_list: tuple[Executor, ...]
    cache_option: CACHE_OPTIONS
    sharp_edges: SHARP_EDGES_OPTIONS
    disable_torch_autograd_support: bool
    compile_options: CompileOptions
    debug_options: DebugOptions
    transforms: tuple[Any, ...]
    require: dict[str, str]
    lookasides: tuple[Lookaside, ...] = ()


@dataclass(frozen=True, kw_only=True)
class ProgramOrigin:
    """What was acquired beside traces and facts: the code that was read, and what the stages were told."""

    code: tuple[CodeType, ...]
    effects: ProgramEffects
    grad_requests: frozenset[str]


@dataclass(kw_only=True, eq=False)
class CacheEntry:
    """One compiled program and the guards under which it may run."""

    prologue_fn: Callable[..., Any]
    prologue_traces: list[TraceCtx]
    computation_fn: Callable[..., Any]
    computation_traces: list[TraceCtx]
    backward_fn: Callable[..., Any] | None = None
    backward_traces: list[TraceCtx] = field(default_factory=list)
    epilogue_fn: Callable[..., Any] | None
    epilogue_traces: list[TraceCtx]
    ledger: Any
    guards: tuple[Fact, ...]
    #: the facts whose checks a transform dropped, under DebugOptions(check_guards=True)
    dropped: tuple[Fact, ...] = ()
    backward_ledger: Any = ()
    #: what stages and transforms noted about the program
    notes: tuple[Note, ...] = ()
    #: what became of the writes to inputs
    input_writes: tuple[InputWrite, ...] = ()
    #: which calls of the computation run below torch's autograd
    below_autograd: BelowAutograd | None = None
    baked: tuple[str, ...] = ()
    last_use: int = 0
    #: how many calls it has served
    uses: int = 0
    #: decides what a call does if the computation raises
    failures: FailurePlan
    #: whether a call saves the state that it may have to restore
    can_be_undone: bool = False
    #: the entry is not kept, Note [State that a program changes while it is read]
    is_for_one_call: bool = False
    #: the entry is used while the plugins contribute the same
    contributions: PluginContributions = field(default_factory=PluginContributions)
    replaced: tuple[ReplacedFunction, ...] = ()
    #: the questions about data that the program asks, with the answers that the entry is for
    decisions: tuple[Decision, ...] = ()
    #: which sizes and numbers are inputs
    plan: CompilePlan
    #: the plans that were tried for it, the last of which is its own
    steps: tuple[CompileStep, ...] = ()
    #: what the program writes of Python's objects, by the sources
    written: frozenset[str] = frozenset()
    #: the sizes that may differ from call to call, by their sources
    free_sizes: frozenset[str] = frozenset()
    #: those that the program has fixed, though they were chosen
    fixed_sizes: frozenset[str] = frozenset()
    #: from which a store of programs makes the entry again
    origin: ProgramOrigin | None = None
    #: answers to the first questions for which the program has raised
    raising: set[Answers] = field(default_factory=set)

    @property
    def answers(self) -> Answers:
        """The answers that the entry is for, in the order of the questions."""
        return tuple(d.answer for d in self.decisions)

    def is_for(self, answers: Answers) -> bool:
        """Return whether these are the first answers that the entry is for."""
        own = self.decisions
        return len(answers) <= len(own) and all(map(same_leaf, answers, self.answers))


@dataclass(frozen=True)
class RecompileReason:
    """The first fact of an entry that a call did not meet: the expected and the found value.

    ``now_free`` are the sizes that are numbers of the entry, and that the recompile has made inputs.
    """

    entry: CacheEntry = field(repr=False)
    fact: str
    expected: Any
    found: Any
    source: str
    now_free: tuple[str, ...] = ()

    def __str__(self) -> str:
        free = f"; symbolic from now on: {', '.join(self.now_free)}" if self.now_free else ""
        return f"{self.fact}: expected {self.expected!r}, found {self.found!r}{free}"


@dataclass(eq=False)
class CompileStats:
    """Counters, entries (newest last) and times of the last call and compile (ns)."""

    calls: int = 0
    cache_hits: int = 0
    cache_misses: int = 0
    runs_by_python: int = 0  # runs of programs that raised
    interpreter_cache: list[CacheEntry] = field(default_factory=list)
    last_entry: CacheEntry | None = None
    last_recompile_reasons: list[RecompileReason] = field(default_factory=list)
    #: the plans of the last compile, the last of which it has followed (Note [How a compile is tried again])
    last_compile_steps: list[CompileStep] = field(default_factory=list)
    #: why the last compile with symbols needs the values of some, or has been for the sizes of its call alone
    last_static_reason: Exception | None = None
    last_interpreted_instructions: int = 0
    last_interpreter_log: list[Any] = field(default_factory=list)
    stage_times: dict[str, int] = field(default_factory=dict)
    call_times: tuple[int, int, int] = (0, 0, 0)  # start, after the prologue, after the computation

    last_traces = property(lambda s: list(s.last_entry.computation_traces) if s.last_entry else [])
    last_prologue_traces = property(lambda s: list(s.last_entry.prologue_traces) if s.last_entry else [])
    last_epilogue_traces = property(lambda s: list(s.last_entry.epilogue_traces) if s.last_entry else [])
    last_backward_traces = property(lambda s: list(s.last_entry.backward_traces) if s.last_entry else [])
    last_computation = property(lambda s: s.last_entry.computation_fn if s.last_entry else None)
    last_prologue = property(lambda s: s.last_entry.prologue_fn if s.last_entry else None)

    def last_trace_construction_time(self) -> int:
        """Return the time from the call to the acquired trace, of the last compile."""
        return self.stage_times.get("acquire", 0)

    def last_prologue_transformation_time(self) -> int:
        """Return the time to generate the guard function, of the last compile."""
        return self.stage_times.get("prologue", 0)

    def last_prologue_execution_time(self) -> int:
        """Return the time of the guards of the entry that ran, of the last call."""
        return max(self.call_times[1] - self.call_times[0], 0)

    last_cache_lookup_time = last_prologue_execution_time

    def last_computation_execution_time(self) -> int:
        """Return the time of the computation, of the last call."""
        return max(self.call_times[2] - self.call_times[1], 0)

    def __repr__(self) -> str:
        stages = ", ".join(f"{name} {ns / 1e6:.1f} ms" for name, ns in self.stage_times.items())
        return (
            f"CompileStats(calls={self.calls}, cache_hits={self.cache_hits}, "
            f"cache_misses={self.cache_misses}, entries={len(self.interpreter_cache)}, "
            f"last compile: {stages or 'none'})"
        )
