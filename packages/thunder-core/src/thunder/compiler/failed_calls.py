"""Calls of programs that raise.

Note [A program that raises]
A trace is a straight line: it has no handlers, and its writes are made after the last operator. So a program
that raises on data is undone, and Python runs it as it was written:

    def f(x, log):                           computation:  l = cholesky(x)        raises
        log.append("begin")                  undone:       generators, modes and output are as before the call
        try:                                 then:         f(x, log), by Python
            l = torch.linalg.cholesky(x)
        except RuntimeError:
            l = torch.eye(2)
        return l

It can be undone because a functional program writes to its inputs in its last statements, and the epilogue,
which writes to everything else, has not begun. A write in place before them keeps what it overwrites, which
is put back (Note [Writes in place]); after one that keeps nothing the error is passed on, and the writes
before it stay, as in eager. What Python then returns or raises is eager's own, if an error of such a class
passes a frame of the second run; else a kernel has a fault that eager has not, and the error is passed on. A
program without a handler and without an effect before the error need not run again: the error is passed on.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from types import FrameType
from typing import Any

import torch

from thunder.base import opaque_results, overwritten
from thunder.base.devices import to_torch_device
from thunder.base.errors import DataDependentControlFlow, ThunderError
from thunder.base.held_output import Held
from thunder.base.runtime_errors import callees_until_failure, failed_callee, is_foreign
from thunder.base.tags import OpenTag, OpTags
from thunder.frontend.acquire import Acquisition
from thunder.frontend.ambient_state import Modes
from thunder.frontend.decisions.made_decisions import decides_on_made
from thunder.frontend.host_draws.draw_statements import drawn_generators
from thunder.frontend.host_draws.host_generators import set_state, state_of
from thunder.frontend.opaque_calls.opaque_run import OpaqueCall
from thunder.ir.proxies import GeneratorProxy, TensorProxy
from thunder.ir.symbol import BoundSymbol, has_tags, with_parts
from thunder.ir.trace import TraceCtx
from thunder.ops import prims
from thunder.ops.data_errors import is_opaque
from thunder.ops.prims.backend_flags import flag_values, restore_flags
from thunder.ops.prims.modes import inference_depth, leave_inference_modes
from thunder.passes.mutations import writes
from thunder.passes.placed_writes.raising_calls import ProgramEffects

__all__ = [
    "FailurePlan",
    "RunningCall",
    "check_writes_are_last",
    "effects_of",
    "note_unapplied",
    "note_unapplied_writes",
    "plan_for_failures",
    "plan_of_traces",
    "run_by_python",
    "undo",
]

_UNEXPLAINED = (
    "run again by Python, the same call did not raise; what it wrote is applied. "
    "The implementation of an operator by an executor differs from torch's."
)
_NOT_RUN = (
    "writes before the error are not applied, and handlers of the program did not run: Python cannot run "
    "again what transforms or lookasides changed, or what wrote to its inputs"
)
_LASTING = (
    "what the program wrote in place before the error is written, as in eager; other effects are not applied"
)
_UNAPPLIED = "thunder did not apply what the program wrote before it raised"


class RunningCall:
    """The state that a running program may change, as it was when the call began."""

    __slots__ = ("_depth", "_flags", "_held", "_keeps", "_states")

    def __init__(self, plan: FailurePlan, inputs: Sequence[Any]) -> None:
        self._depth, self._flags = inference_depth(), flag_values(plan.flags)
        self._held = Held() if plan.prints else None
        self._keeps = plan.keeps_overwritten
        if self._keeps:
            overwritten.begin()
        if plan.decides_on_made:
            opaque_results.hold_made()
        self._states: list[tuple[Callable[[Any], object], Any]] = []
        for generator in plan.host_generators:
            self._states.append((_host_setter(generator), state_of(generator)))
        if plan.draws is None:
            return
        for device in plan.draws:
            module: Any = torch if device.type == "cpu" else torch.get_device_module(device)
            index = () if device.type == "cpu" else (device,)
            self._states.append((_setter(module, index), module.get_rng_state(*index)))
        for value in inputs:
            if isinstance(value, torch.Generator):
                self._states.append((value.set_state, value.get_state()))

    def end(self, *, undo: bool = False, writes: bool = False) -> None:
        """Print the held output; or, with ``undo``, drop it, and restore the states of generators.

        With ``writes``, put back what writes in place have overwritten.
        """
        if self._keeps:
            overwritten.end(undo=writes)
        if self._held is not None:
            self._held.release(printed=not undo)
        for restore, state in self._states if undo else ():
            restore(state)

    def leave_modes(self) -> None:
        """Leave the regions of inference mode in which the program raised, and set back its flags."""
        leave_inference_modes(self._depth)
        restore_flags(self._flags)


def _host_setter(generator: Any) -> Callable[[Any], object]:
    return lambda state: set_state(generator, state)


def _setter(module: Any, index: tuple[Any, ...]) -> Callable[[torch.Tensor], object]:
    return lambda state: module.set_rng_state(state, *index)


@dataclass(frozen=True, kw_only=True)
class FailurePlan:
    """The facts about a compiled program that decide what a call does if the program raises.

    Attributes:
        modes: the modes of the call, such as grad mode.
        repeats: whether Python can run the program (not if another process takes part in it, or if it calls
            functions that are replaced).
        sets_modes: whether the program changes the modes.
        handles: whether a handler of the program may see the error.
        notices: whether it has such a handler, or an effect before the error: a write, output, a mode.
        prints: whether it prints.
        draws: the devices whose default generators it may use, or None if it draws no random numbers.
        host_generators: the generators of Python and of NumPy from which it draws.
        is_opaque: whether it runs code that is not traced, which may have effects.
        changes_inference: whether it enters inference mode.
        flags: the flags of torch's kernels that it sets, by the names of their setters.
        writers: the functions of the generated text that write to inputs, and keep nothing.
        keeps_overwritten: whether others write to inputs, and keep what they overwrite.
        decides: whether it checks decisions on data, or sizes that it finds, and leaves where these differ.
        decides_on_made: whether it decides on values that differ from call to call, as ``uuid4()``.
    """

    modes: Modes
    repeats: bool
    sets_modes: bool
    handles: bool
    notices: bool
    prints: bool
    draws: tuple[torch.device, ...] | None
    host_generators: tuple[Any, ...]
    is_opaque: bool
    changes_inference: bool
    flags: frozenset[str]
    writers: frozenset[str]
    keeps_overwritten: bool
    decides: bool
    decides_on_made: bool

    @property
    def can_be_undone(self) -> bool:
        """Whether a call saves the state that it may have to restore."""
        draws = self.draws is not None and (self.decides or (self.repeats and self.notices))
        changes = self.keeps_overwritten or self.changes_inference or bool(self.flags)
        return self.prints or changes or draws or self.decides_on_made

    def has_written(self, error: BaseException) -> bool:
        """Return whether a write was made, or begun, that nothing can undo when ``error`` was raised."""
        return not self.writers.isdisjoint(callees_until_failure(error))

    def runs_again(self, error: BaseException) -> bool:
        """Return whether Python has to run the program after the computation has raised ``error``."""
        if not isinstance(error, Exception) or isinstance(error, ThunderError):
            return False
        callee = failed_callee(error)
        if not self.repeats or callee is None or self.has_written(error):
            return False
        return self.notices or not (self.draws is not None or self.is_opaque or is_foreign(callee))


def plan_for_failures(program: Acquisition, traces: Iterable[TraceCtx]) -> FailurePlan:
    """Return the plan of an acquired program; ``traces`` are those whose generated text runs."""
    traces = list(traces)
    if program.may_leave:
        check_writes_are_last(traces)
    calls = list(with_parts(program.computation.bound_symbols))
    symbols = {b.sym.id for b in calls}
    tags = frozenset[OpenTag]().union(*[b.all_tags for b in program.computation.bound_symbols])
    prints = not symbols.isdisjoint(_PRINTS)
    modes = OpTags.SETS_MODE in tags
    effects = program.writes or prints or modes or OpTags.IN_PLACE in tags
    draws = not tags.isdisjoint(_DRAWING)
    return FailurePlan(
        modes=Modes.now(),
        repeats=not (
            program.is_for_one_call
            or program.calls_symbols
            or program.replaced
            or any("c10d" in name for name in symbols)
        ),
        sets_modes=modes,
        handles=program.handles_errors,
        notices=program.handles_errors or effects,
        prints=prints,
        draws=_devices(program.computation.args, calls) if draws else None,
        host_generators=drawn_generators(calls) if draws else (),
        is_opaque=any(map(is_opaque, calls)),
        changes_inference=prims.enter_inference_mode.id in symbols,
        flags=frozenset(b.args[0] for b in calls if b.sym.id == prims.set_backend_flag.id),
        **_writes_of(traces),
        decides=program.may_leave,
        decides_on_made=program.may_leave and decides_on_made(program.computation.bound_symbols),
    )


def _writes_of(traces: Sequence[TraceCtx]) -> dict[str, Any]:
    calls = [b for trace in traces for b in trace.bound_symbols]
    return {
        "writers": frozenset(b.sym.name for b in calls if writes(b) and not _is_undone(b)),
        "keeps_overwritten": any(OpTags.KEEPS_OVERWRITTEN in b.tags for b in calls),
    }


def plan_of_traces(plan: FailurePlan, traces: Sequence[TraceCtx]) -> FailurePlan:
    """Return the plan of the same program with other traces that run."""
    return replace(plan, **_writes_of(traces))


def effects_of(program: Acquisition) -> ProgramEffects:
    """Return the effects of an acquired program beside writes to tensors."""
    calls = program.computation.bound_symbols
    has_others = (
        program.writes
        or program.may_leave
        or any(b.sym.id in _PRINTS or OpTags.SETS_MODE in b.tags for b in with_parts(calls))
    )
    return ProgramEffects(program.handles_errors, program.catches_errors, has_others)


def _is_undone(bsym: BoundSymbol) -> bool:
    """Return whether a write can be undone, or is seen by nobody."""
    return not bsym.tags.isdisjoint((OpTags.KEEPS_OVERWRITTEN, OpTags.WRITES_OWN_MEMORY))


def check_writes_are_last(traces: Iterable[TraceCtx]) -> None:
    """Raise DataDependentControlFlow if a program checks a decision after it has written to an input.

    Then a call with another answer could not be undone. ``traces`` are those that run, in order.
    """
    written: BoundSymbol | None = None
    for bsym in (b for trace in traces for b in trace.bound_symbols):
        if written is not None and has_tags(bsym, {OpTags.CHECKS_DECISION}):
            raise DataDependentControlFlow(
                "the program asks for data after it has written to its arguments",
                found={"write": written.line, "question": bsym.line},
                where=bsym.locations,
                hint="Ask before the write.",
            )
        if written is None and writes(bsym) and not _is_undone(bsym):
            written = bsym


#: tags of operators that may draw random numbers; a fallback for an unknown function may, too
_DRAWING = frozenset({OpTags.RANDOM_OP, OpTags.FALLBACK})
_PRINTS = frozenset({prims.python_print.id, prims.python_call.id})


def _devices(args: Iterable[Any], calls: Iterable[BoundSymbol]) -> tuple[torch.device, ...]:
    proxies = [*args, *(p for b in calls for p in b.flat_proxy_outs)]
    devices = {p.device for p in proxies if isinstance(p, TensorProxy | GeneratorProxy)}
    targets = {to_torch_device(d) for d in devices if d.type != "meta"} | {torch.device("cpu")}
    return tuple(sorted(targets, key=str))


def undo(
    plan: FailurePlan, running: RunningCall | None, *, generators: bool = True, writes: bool = True
) -> None:
    """Restore the modes of a call that raised, and what it has overwritten, unless its ``writes`` stay.

    Its output and its generators are restored too, unless they stay.
    """
    if running is not None:
        running.end(undo=generators, writes=writes)
        running.leave_modes()
    if plan.sets_modes:
        plan.modes.restore()


def run_by_python(
    fn: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    error: BaseException,
    handles: bool,
    *,
    is_traced: bool,
) -> Any:
    """Run a program that raised ``error`` by Python; return its result or raise its error.

    Raises ``error`` if nothing like it is raised now, which a handler of the program would have handled. An
    opaque callable may raise in one run only, and so may a program that is traced, of which thunder refuses
    what eager does not (``is_traced``).
    """
    is_compared = handles and not (is_traced or _is_of_opaque(error))
    try:
        # The second run need not hold the tensors of the failed one, and a debugger need not show them.
        traceback.clear_frames(error.__traceback__)
        seen = _RaisedErrors()
        try:
            with seen if is_compared else nullcontext():
                result = fn(*args, **kwargs)
        except Exception as second:
            for note in getattr(error, "__notes__", ()):
                if second is not error:
                    second.add_note(note)
            raise
        if not handles or (is_compared and not seen.has_like(error)):
            error.add_note(_UNEXPLAINED)
            raise error
        return result
    finally:
        del error


def _is_of_opaque(error: BaseException) -> bool:
    """Return whether an opaque callable has raised an error."""
    return any(frame.f_code is OpaqueCall.run.__code__ for frame, _ in traceback.walk_tb(error.__traceback__))


class _RaisedErrors:
    """The classes of the errors that pass a frame of Python while this is entered, handled or not.

    A debugger or a tool that measures coverage traces the frames already: every error may have passed then.
    """

    def __init__(self) -> None:
        self.classes: set[type[BaseException]] = set()
        self.is_complete = sys.gettrace() is None

    def __enter__(self) -> None:
        if self.is_complete:
            sys.settrace(self._enter_frame)

    def __exit__(self, *raised: object) -> None:
        if self.is_complete:
            sys.settrace(None)

    def _enter_frame(self, frame: FrameType, event: str, argument: Any) -> Callable[..., Any]:
        frame.f_trace_lines = False
        return self._note

    def _note(self, frame: FrameType, event: str, argument: Any) -> Callable[..., Any]:
        if event == "exception":
            self.classes.add(argument[0])
        return self._note

    def has_like(self, error: BaseException) -> bool:
        """Return whether an error may have passed whose class is that of ``error``, a parent, or a child."""
        classes = (*self.classes,)
        return (
            not self.is_complete
            or isinstance(error, classes)
            or any(issubclass(c, type(error)) for c in classes)
        )


def note_unapplied(error: BaseException, plan: FailurePlan) -> None:
    """Note in the error of a program that is not run again which effects are missing."""
    if plan.notices and not isinstance(error, ThunderError):
        error.add_note(_LASTING if plan.has_written(error) else _NOT_RUN)


def note_unapplied_writes(error: BaseException, written: Sequence[str]) -> None:
    """Note in the error of a program that is not run again which writes are missing."""
    if written:
        error.add_note(f"{_UNAPPLIED}: {', '.join(written)}")
