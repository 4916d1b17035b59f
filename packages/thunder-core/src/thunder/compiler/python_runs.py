"""The calls of a compiled function that Python runs, as the program was written."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch

from thunder.base import opaque_results
from thunder.base.errors import (
    DataDependentControlFlow,
    NotInitialized,
    RaisedByProgram,
    RecompileWarning,
    UnsupportedProgram,
)
from thunder.base.runtime_errors import note_statement
from thunder.compiler.compile_plan import Answers
from thunder.compiler.failed_calls import (
    FailurePlan,
    RunningCall,
    note_unapplied,
    note_unapplied_writes,
    run_by_python,
    undo,
)
from thunder.compiler.recompile_reasons import answers_text
from thunder.compiler.stats import CacheEntry, CompileData, CompileStats, RecompileReason
from thunder.frontend.active_modes import modes_released
from thunder.frontend.ambient_state import tracing_tool
from thunder.wrappers.overrides import Overrides
from thunder.wrappers.traced_source import warn_of_source

__all__ = ["PythonRun", "PythonRuns", "disagreement", "other_sizes"]


@dataclass(frozen=True, kw_only=True)
class PythonRun:
    """Why Python runs a call that no entry serves."""

    #: the error where the compiled program computes something else than the function by itself
    otherwise: Exception | None = None
    #: the error of the program, which Python raises again
    raised: RaisedByProgram | None = None
    #: called once Python has run the call without an error
    succeeded: Callable[[], None] = lambda: None


class PythonRuns:
    """The runs of a program by Python: after errors, for other answers than those of entries, for tracers."""

    def __init__(self, data: CompileData, overrides: Overrides | None, stats: CompileStats) -> None:
        self.data, self.overrides, self.stats = data, overrides, stats
        self._warned_of_answers = False
        self._initialized: set[tuple[str, int | None]] = set()  # what calls that Python ran have initialized

    def is_possible(self) -> bool:
        """Return whether the compiled program computes what the function computes by itself.

        That is not so once the call has advanced an iterator of the caller, which would be advanced again, or
        has made values on which it decides, which Python would make anew.
        """
        overridden = self.overrides is not None and bool(self.overrides.tensors)
        has_other_values = opaque_results.is_advanced() or opaque_results.has_made()
        return not (overridden or self.data.transforms or has_other_values)

    def _call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run a call by Python."""
        self.stats.runs_by_python += 1
        modes = torch.no_grad() if self.data.disable_torch_autograd_support else nullcontext()
        with modes, modes_released():
            return self.data.fn(*args, **kwargs)

    def run(self, run: PythonRun, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run a call by Python, or raise what is to be raised where the compiled program computes another."""
        try:
            if run.raised is not None:
                return self._after_raise(run.raised, args, kwargs)
            if run.otherwise is not None and not self.is_possible():
                raise run.otherwise
            result = self._call(args, kwargs)
            run.succeeded()
            return result
        finally:
            del run

    def for_tracer(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run a call by Python while torch traces it, so that torch traces the program as it was written.

        Raises UnsupportedProgram where transforms or overriding tensors change what the program computes.
        """
        tool = tracing_tool()
        if tool is not None and self.is_possible():
            warn_of_source(tool)
        refusal = UnsupportedProgram(
            "torch traces a call of a module with transforms or overriding tensors",
            hint="Trace the module that was compiled, compiled._orig_mod.",
        )
        return self.run(PythonRun(otherwise=refusal), args, kwargs)

    def after_failure(
        self,
        plan: FailurePlan,
        running: RunningCall | None,
        failure: BaseException,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        """Run the program by Python, or raise the error if it need not or cannot run again."""
        try:
            note_statement(failure)
            runs_again = self.is_possible() and plan.runs_again(failure)
            undo(plan, running, generators=runs_again, writes=not plan.has_written(failure))
            if plan.notices:
                _refuse_once_advanced(failure)
            if not (runs_again and isinstance(failure, Exception)):
                note_unapplied(failure, plan)
                raise failure
            return self._again(args, kwargs, failure, plan.handles, is_traced=False)
        finally:
            del failure

    def _again(
        self,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        failure: BaseException,
        handles: bool,
        *,
        is_traced: bool,
    ) -> Any:
        """Run a program again that has raised, while it ran or while it was traced."""
        self.stats.runs_by_python += 1
        modes = torch.no_grad() if self.data.disable_torch_autograd_support else nullcontext()
        try:
            with modes, modes_released():
                return run_by_python(self.data.fn, args, kwargs, failure, handles, is_traced=is_traced)
        finally:
            del failure

    def initializing(self, outcome: NotInitialized) -> PythonRun:
        """Return the run of a call that initializes state. Raises ``outcome`` if a run has done so before."""
        state = (outcome.asked, outcome.key)
        if state in self._initialized:
            raise outcome
        if self.is_possible():
            self._initialized.add(state)
        limit = self.data.compile_options["recompile_limit"]
        if limit is not None and len(self._initialized) == limit + 1:
            text = f"Python ran {limit + 1} calls that initialize state. Last: {outcome.asked}."
            warnings.warn(f"{text} {outcome.hint}", RecompileWarning, stacklevel=5)
        return PythonRun(otherwise=outcome)

    def _after_raise(self, raised: RaisedByProgram, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run a program that raised while it was traced by Python if it had effects; else raise."""
        failure = raised.error
        try:
            if raised.runs_again and self.is_possible():
                return self._again(args, kwargs, failure, raised.handles, is_traced=True)
            if raised.written:
                _refuse_once_advanced(failure)
            note_unapplied_writes(failure, raised.written)
            raise failure
        finally:
            del failure, raised

    def at_limit(self, reason: RecompileReason) -> PythonRun:
        """Return the run of a call for which the program would be compiled too often, and warn once."""
        if not self._warned_of_answers:
            self._warned_of_answers = True
            warnings.warn(answers_text(self.data, str(reason)), RecompileWarning, stacklevel=5)
        return PythonRun()


def disagreement(entry: CacheEntry, answers: Answers) -> PythonRun:
    """Return the run of a call for which two entries compute different answers; Python decides."""
    decision = entry.decisions[len(answers) - 1]
    return PythonRun(
        otherwise=DataDependentControlFlow(
            f"two compiled programs compute different answers to a question: {decision}",
            hint="Executors round differently: ask about values that are not close to the limit.",
        )
    )


def other_sizes(reason: RecompileReason) -> PythonRun:
    """Return the run of a call whose program computes other sizes than its early run."""
    return PythonRun(
        otherwise=DataDependentControlFlow(
            "a compiled program computes another size than the program for which it was compiled",
            found={"size": str(reason)},
            hint="Executors round differently: compare values that are not close to the limit.",
        )
    )


def _refuse_once_advanced(failure: BaseException) -> None:
    """Refuse an error of a program with effects that cannot run again, since it has advanced an iterator."""
    if opaque_results.is_advanced():
        raise UnsupportedProgram(
            "the program raises after it has advanced an iterator of the caller, and its writes are not made",
            found={"error": repr(failure)},
            hint="Advance the iterator outside of the compiled function.",
        ) from failure
