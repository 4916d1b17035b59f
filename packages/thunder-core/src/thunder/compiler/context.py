"""The state that the stages of one compile share."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass, field
from typing import Any, TypeVar

from thunder.autograd.joint_program import BackwardPlanner
from thunder.autograd.lowering import Differentiated
from thunder.autograd.tape import Tape
from thunder.base.errors import InvalidArgument, TraceError
from thunder.base.extension_origin import origin_of
from thunder.base.plugin_calls import as_plugin_error, shown
from thunder.compiler.running_compile import running_compile
from thunder.compiler.stats import CompileData, RecompileReason
from thunder.executor_base.executor import Executor
from thunder.executor_base.preferences import Preferences
from thunder.executor_base.region_modes import RegionMode
from thunder.ir.proxies import TensorProxy
from thunder.ir.symbol import BoundSymbol
from thunder.ir.trace import TraceCtx
from thunder.ir.verify import check_plugin_trace, check_trace
from thunder.ops.operator import is_of_package
from thunder.passes.below_autograd import BelowAutograd
from thunder.passes.notes import Note
from thunder.passes.placed_writes.raising_calls import ProgramEffects
from thunder.passes.placement import Placement
from thunder.passes.transform import Transform
from thunder.passes.write_in_place import InputWrite

__all__ = ["AutogradState", "Branch", "Context"]

S = TypeVar("S")


@dataclass
class Branch:
    """The forward or the backward on its way through the stages, with its results."""

    #: the first trace of the branch, then one for each stage that changed it
    traces: list[TraceCtx] = field(default_factory=list)
    placements: list[Placement] = field(default_factory=list)
    #: which calls run below torch's autograd; None for a program with few calls
    below_autograd: BelowAutograd | None = None
    #: the trace in which they were put into blocks
    in_blocks: TraceCtx | None = None
    fn: Callable[..., Any] | None = None


@dataclass
class AutogradState:
    """Results of the autograd stage and of the partition, for later stages."""

    tape: Tape
    outputs: tuple[TensorProxy, ...]
    #: the names of inputs that the deferred writes overwrite
    written: frozenset[str]
    #: the writes and views that run after torch's autograd node, if there are any
    deferred: TraceCtx | None
    program: Differentiated | None = None


@dataclass
class Context:
    """The inputs of one compile and the results of its stages.

    ``branch`` is the branch that a stage works on, and ``traces`` are its traces: it is ``forward``, which
    is all there is without gradients, or ``backward``.
    """

    executors: tuple[Executor, ...]
    transforms: tuple[Transform, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)
    #: whether each new trace is verified, and each result compared with its proxy when it is computed
    check: bool = False
    #: the calls of verified traces whose meta functions return what the trace has
    checked: set[BoundSymbol] = field(default_factory=set)
    prologue: TraceCtx | None = None
    epilogue: TraceCtx | None = None
    #: the prologue after each transform that may change it
    prologues: list[TraceCtx] = field(default_factory=list)
    forward: Branch = field(default_factory=Branch)
    backward: Branch | None = None
    autograd: AutogradState | None = None
    #: whether a transform computes in the backward what the gradient rules alone do not
    backward_is_changed: bool = False
    #: plans what the forward saves and the order of the backward, in place of the option `rematerialization`;
    #: a stage before the partition may set it
    plan_backward: BackwardPlanner | None = None
    #: what fusion executors do with the regions of the program; a planner or a stage before `fuse` may set it
    regions: RegionMode = "compiled"
    #: which executors are preferred; a stage may set it, and later ones ask it
    preferences: Preferences | None = None
    #: the calls that were replaced before executors were consulted
    replaced_calls: list[Placement] = field(default_factory=list)
    #: what stages and transforms noted about the program
    notes: list[Note] = field(default_factory=list)
    #: the names of inputs that require grad because the program sets it
    grad_requests: frozenset[str] = frozenset()
    #: why the program is compiled again; empty for a first compile
    reasons: tuple[RecompileReason, ...] = ()
    #: position of a transform → the forms of overriding tensors that later ones have changed
    forms_for: Callable[[int], Mapping[str, Any]] | None = None
    #: the effects of the program, and what became of its writes to inputs
    effects: ProgramEffects = field(default_factory=ProgramEffects)
    writes: list[InputWrite] = field(default_factory=list)
    #: a forward, and the names of its saved values whose memory a backward may write
    own_saved: tuple[TraceCtx, Set[str]] | None = None
    #: stage → ns
    stage_times: dict[str, int] = field(default_factory=dict)
    #: the settings of the compile, for traces that are lowered after it
    compile: CompileData | None = field(default_factory=running_compile)

    def __post_init__(self) -> None:
        self.branch = self.forward
        self._states: dict[type[Any], Any] = {}

    def state(self, kind: type[S]) -> S:
        """Return this compile's one object of a class, which is created without arguments at the first use.

        Stages and hooks of transforms keep here what they have to remember from one to another.
        """
        state = self._states.get(kind)
        if state is None:
            state = self._states[kind] = kind()
        return state

    def note(self, note: Note) -> None:
        """Add a note about the program, for `thunder.explain`; raise InvalidArgument for another object."""
        if not isinstance(note, Note):
            raise InvalidArgument(
                f"a note about a program is a thunder.core.transform_common.Note, and not {shown(note)}"
            )
        self.notes.append(note)

    traces = property(lambda self: self.branch.traces, doc="The traces of the current branch.")

    @property
    def branches(self) -> tuple[Branch, ...]:
        """The forward, and the backward if there is one."""
        return (self.forward,) if self.backward is None else (self.forward, self.backward)

    @property
    def is_backward(self) -> bool:
        """Whether the current branch is the backward, or the joint trace, which contains it."""
        return self.autograd is not None and self.branch is (self.backward or self.forward)

    def append(self, trace: TraceCtx, stage: str, origin: Callable[[], str] | None = None) -> None:
        """Append a new trace to the current branch; verify it if the option is set.

        `origin` returns the origin of the plugin or transform that returned the trace.
        """
        if self.traces and self.traces[-1] is trace:
            return
        if self.check and origin is None:
            _check_builtin(trace, stage, self.checked)
        elif self.check and origin is not None:
            check_plugin_trace(trace, stage, origin, check_meta=True)
        self.traces.append(trace)

    @property
    def hook_arguments(self) -> dict[str, Any]:
        """The keyword arguments of every trace hook."""
        return {"executors_list": self.executors, "options": self.options, "context": self}


def _check_builtin(trace: TraceCtx, stage: str, checked: set[BoundSymbol]) -> None:
    """Check the trace of a stage of core; a wrong meta function of a package is a fault of the package."""
    try:
        check_trace(trace, stage=stage, checked=checked)
    except TraceError as error:
        symbol = error.facts.get("symbol")
        if not is_of_package(symbol):
            raise
        owner = symbol.executor
        origin = owner.origin if isinstance(owner, Executor) else origin_of(symbol.meta)
        raise as_plugin_error(error, origin) from error.__cause__
