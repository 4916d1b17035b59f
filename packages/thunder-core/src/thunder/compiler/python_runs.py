"""The calls of a compiled function that Python runs, as the program was written."""

from __future__ import annotations

import warnings
from contextlib import nullcontext
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
from thunder.compiler.failed_calls import (
    FailurePlan,
    RunningCall,
    note_unapplied,
    note_unapplied_writes,
    run_by_python,
    undo,
)
from thunder.compiler.recompile_reasons import answers_text
from thunder.compiler.stats import Answers, CacheEntry, CompileData, CompileStats, RecompileReason
from thunder.frontend.active_modes import modes_released
from thunder.frontend.ambient_state import tracing_tool
from thunder.wrappers.overrides import Overrides
from thunder.wrappers.traced_source import warn_of_source

__all__ = ["PythonRuns"]


class PythonRuns:
    """The runs of a program by Python: after errors, for other answers than those of entries, for tracers."""

    def __init__(self, data: CompileData, overrides: Overrides | None, stats: CompileStats) -> None:
        self.data, self.overrides, self.stats = data, overrides, stats
        self._warned_of_answers = False
        self._initialized: set[tuple[str, int | None]] = set()  # what calls that Python ran have initialized

    def is_possible(self) -> bool:
        """Return whether the compiled program computes what the function computes by itself.

        That is not so once the call has advanced an iterator of the caller, which would be advanced again.
        """
        overridden = self.overrides is not None and bool(self.overrides.tensors)
        return not (overridden or self.data.transforms or opaque_results.is_advanced())

    def call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run a call by Python."""
        self.stats.runs_by_python += 1
        modes = torch.no_grad() if self.data.disable_torch_autograd_support else nullcontext()
        with modes, modes_released():
            return self.data.fn(*args, **kwargs)

    def with_answers(
        self, entry: CacheEntry, answers: Answers, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Run a call that has other answers to questions about data than an entry by Python."""
        result = self.call(args, kwargs)
        entry.raising.discard(answers)  # a fact that the program reads for these answers may have changed
        return result

    def for_tracer(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run a call by Python while torch traces it, so that torch traces the program as it was written.

        Raises UnsupportedProgram where transforms or overriding tensors change what the program computes.
        """
        if self.is_possible():
            tool = tracing_tool()
            if tool is not None:
                warn_of_source(tool)
            return self.call(args, kwargs)
        raise UnsupportedProgram(
            "torch traces a call of a module with transforms or overriding tensors",
            hint="Trace the module that was compiled, compiled._orig_mod.",
        )

    def after_disagreement(
        self, entry: CacheEntry, answers: Answers, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Run a call for which two entries compute different answers by Python, which decides."""
        if self.is_possible():
            return self.with_answers(entry, answers, args, kwargs)
        decision = entry.decisions[len(answers) - 1]
        raise DataDependentControlFlow(
            f"two compiled programs compute different answers to a question: {decision}",
            hint="Executors round differently: ask about values that are not close to the limit.",
        )

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
            return self._again(args, kwargs, failure, plan.handles)
        finally:
            del failure

    def _again(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], failure: BaseException, handles: bool
    ) -> Any:
        """Run a program again that has raised."""
        self.stats.runs_by_python += 1
        modes = torch.no_grad() if self.data.disable_torch_autograd_support else nullcontext()
        try:
            with modes, modes_released():
                return run_by_python(self.data.fn, args, kwargs, failure, handles)
        finally:
            del failure

    def without_entry(
        self, outcome: RaisedByProgram | NotInitialized, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Run a call that raised, or found state without a shape, by Python if it may; else raise."""
        try:
            if isinstance(outcome, RaisedByProgram):
                return self._after_raise(outcome, args, kwargs)
            state = (outcome.asked, outcome.key)
            if not self.is_possible() or state in self._initialized:
                raise outcome
            self._initialized.add(state)
            limit = self.data.compile_options["recompile_limit"]
            if limit is not None and len(self._initialized) == limit + 1:
                text = f"Python ran {limit + 1} calls that initialize state. Last: {outcome.asked}."
                warnings.warn(f"{text} {outcome.hint}", RecompileWarning, stacklevel=4)
            return self.call(args, kwargs)
        finally:
            del outcome

    def _after_raise(self, raised: RaisedByProgram, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run a program that raised while it was traced by Python if it had effects; else raise."""
        failure = raised.error
        try:
            if raised.runs_again and self.is_possible():
                return self._again(args, kwargs, failure, raised.handles)
            if raised.written:
                _refuse_once_advanced(failure)
            note_unapplied_writes(failure, raised.written)
            raise failure
        finally:
            del failure, raised

    def after_other_sizes(
        self, reason: RecompileReason, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Run a call by Python whose program computes other sizes than its early run."""
        if self.is_possible():
            return self.call(args, kwargs)
        raise DataDependentControlFlow(
            "a compiled program computes another size than the program for which it was compiled",
            found={"size": str(reason)},
            hint="Executors round differently: compare values that are not close to the limit.",
        )

    def warn_of_answers(self, question: str) -> None:
        """Warn once that Python runs calls with other answers."""
        if not self._warned_of_answers:
            self._warned_of_answers = True
            warnings.warn(answers_text(self.data, question), RecompileWarning, stacklevel=5)


def _refuse_once_advanced(failure: BaseException) -> None:
    """Refuse an error of a program with effects that cannot run again, since it has advanced an iterator."""
    if opaque_results.is_advanced():
        raise UnsupportedProgram(
            "the program raises after it has advanced an iterator of the caller, and its writes are not made",
            found={"error": repr(failure)},
            hint="Advance the iterator outside of the compiled function.",
        ) from failure
