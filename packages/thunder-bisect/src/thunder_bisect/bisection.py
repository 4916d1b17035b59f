"""`bisect`: the statement, stage or gradient rule that makes a program wrong."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import torch

import thunder
from thunder.core.errors import InvalidArgument
from thunder.core.trace import TraceCtx
from thunder.extend import FusionExecutor, resolve_executors
from thunder_bisect.calls import reference_calls
from thunder_bisect.findings import (
    gradient_finding,
    stage_finding,
    statement_finding,
    statement_text,
)
from thunder_bisect.gradient_checks import gradient_faults
from thunder_bisect.judgement import Expected
from thunder_bisect.program_runs import ProgramCall, differences
from thunder_bisect.ranks import ranks_of, unequal_weights
from thunder_bisect.report import Finding, Report, joined, written
from thunder_bisect.shadows import Shadows
from thunder_bisect.smallest_sets import Replacing, smallest
from thunder_bisect.stage_checks import Evaluated, StageFault, stage_fault
from thunder_bisect.statement_checks import StatementChecks, StatementFault
from thunder_bisect.trace_versions import bisect_versions

__all__ = ["bisect"]

#: a rank, or None for all, and the place of a statement in the program of that rank
_PlaceOfRank: TypeAlias = tuple[int | None, tuple[str, str, tuple[str, ...]]]

_OWN_DRAWS = "it draws other numbers than torch, so that results of the whole are not compared"


def bisect(
    fn: Callable[..., Any],
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    reference: Any = "eager",
    executors: Any = None,
    transforms: Sequence[Any] = (),
    tolerance: float = 1.0,
    backward: bool | None = None,
    seed: int = 0,
    folder: str | Path | None = None,
    **options: Any,
) -> Report:
    """Find where a compiled program differs from eager by more than rounding explains.

    The program runs several times from the same state: as it was written, compiled, and compiled with
    statements replaced. Each statement that other executors than torch run is compared with torch on the
    statement's own inputs, in forward and backward, with the exact values in float64 as the judge: one that
    is nearer to them than eager is right. If the statements do not explain a difference, the traces after
    each stage are compared with each other, and the gradient of each call with torch's autograd.

    A module that `thunder.distributed` distributes is bisected by all processes together: each of them calls
    this function with its own arguments, and returns the same report. Eager is one process, with whole
    parameters (Note [Bisections of several processes]).

    Args:
        fn: a function, a module, or an object that `thunder.jit` or `thunder.compile` returned, whose
            settings are used. Or a trace, which is compared with another version of it.
        args: the arguments of one call. They are not written to.
        kwargs: its keyword arguments.
        reference: ``"eager"``, or executors, whose results then take the place of eager's. Of a trace, the
            other version.
        executors: as `thunder.jit` takes them.
        transforms: as `thunder.jit` takes them; they are copied for each compile.
        tolerance: how many times what rounding explains is accepted.
        backward: whether gradients are compared; by default if a result requires grad.
        seed: of the generators of random numbers, in each run.
        folder: where reproducers are written, `bisect_0.py` and so on.
        options: more options of `thunder.jit`.

    Raises InvalidArgument for a tolerance that is not positive and for executors as the reference of several
    processes; what the program raises in eager, and of several processes what it raises in this one.
    """
    if not tolerance > 0:
        raise InvalidArgument(f"tolerance={tolerance!r} is not positive")
    if isinstance(fn, TraceCtx):
        return bisect_versions(fn, reference, args, tolerance, seed=seed, folder=folder)
    if thunder.compile_data(fn) is None and ranks_of(transforms).size > 1:
        fn = thunder.jit(fn, executors=executors, transforms=transforms, **options)
        executors, transforms, options = None, (), {}
    ranks = ranks_of(thunder.list_transforms(fn) if thunder.compile_data(fn) is not None else ())
    if ranks.size > 1 and reference != "eager":
        raise InvalidArgument(
            f"a program of {ranks.size} processes is compared with eager, and reference= is {reference!r}"
        )
    call = ProgramCall(
        fn=fn,
        args=args,
        kwargs=kwargs or {},
        executors=executors,
        transforms=transforms,
        options=options,
        backward=backward,
        seed=seed,
        ranks=ranks,
    )
    with ranks.running_apart():
        report = joined(ranks.gathered(_own_report(call, reference, tolerance)))
    is_first = ranks.rank == 0
    return replace(
        report,
        findings=[written(f, folder, i, by_this_process=is_first) for i, f in enumerate(report.findings)],
    )


def _own_report(call: ProgramCall, reference: Any, tolerance: float) -> Report:
    """Return what is found in this process."""
    ranks = call.ranks
    different_weights = unequal_weights(call.fn, ranks)
    expected = call.expected(reference)
    compiled, checks, wrong = _observed(call, expected, tolerance)
    if ranks.any(checks.own_draws):
        wrong = {}
    is_wrong = ranks.any(wrong)
    search = _Search(call, expected, compiled, checks, tolerance)
    findings = [*different_weights, *search.statements(is_wrong)]
    if is_wrong and not ranks.any(any(f.decisive for f in findings)):
        for step in (search.stages, search.gradients, partial(search.stages, strict=True)):
            findings += (found := step())
            if ranks.any(found):
                break
    unjudged = dict.fromkeys(f"{statement_text(bsym)}: {why}" for bsym, why in checks.unjudged)
    unjudged |= dict.fromkeys(f"{statement_text(bsym)}: {_OWN_DRAWS}" for bsym in checks.own_draws)
    return Report(differences=wrong, findings=findings, compared=checks.judged, unjudged=tuple(unjudged))


def _observed(
    call: ProgramCall, expected: Mapping[str, Expected], tolerance: float
) -> tuple[Any, StatementChecks, dict[str, str]]:
    """Run the compiled program with its statements compared; return it, what was found, and the differences.

    If it raises, it is run again with the statements found so far computed by torch, to compare those after
    them.
    """
    first = checks = StatementChecks(tolerance)
    wrong: dict[str, str] = {}
    compiled: list[Any] = []
    while True:

        def compile(program: Any, checks: StatementChecks = checks) -> Any:
            replacing = [Replacing(first.places())] if compiled else []
            compiled.append(call.compiled(program, checks, *replacing))
            return compiled[-1]

        try:
            found = call.run(compile)
        except Exception as error:  # eager has run: it is an error of the compiled program
            if checks.error is not None or not compiled:
                raise
            if call.ranks.size > 1:  # the others wait in a collective
                for fault in checks.faults:
                    error.add_note(f"before it, {statement_text(fault.bsym)}: {fault.what}")
                raise
            text = f"raises {type(error).__name__}: {str(error).partition(chr(10))[0]}"
            wrong = wrong or {"the program": text}
        else:
            return compiled[0], first, wrong or differences(expected, found, tolerance)
        finally:
            new = first is checks or not first.places() >= checks.places()
            first.add(checks)
        if not new or not checks.faults:
            return compiled[0], first, wrong
        checks = StatementChecks(tolerance)


class _Search:
    """The steps of one bisection, from the statements that run to the rules of gradients."""

    def __init__(
        self,
        call: ProgramCall,
        expected: Mapping[str, Expected],
        compiled: Any,
        checks: StatementChecks,
        tolerance: float,
    ) -> None:
        self.call, self.expected, self.compiled = call, expected, compiled
        self.checks, self.tolerance = checks, tolerance
        self._evaluated: list[Evaluated] = []

    def statements(self, is_wrong: bool) -> list[Finding]:
        """Return the statements that are wrong on their own inputs.

        Those of the smallest set are decisive.
        """
        faults, ranks = self.checks.faults, self.call.ranks
        places = [self._place(fault) for fault in faults]
        everywhere = list(dict.fromkeys(place for own in ranks.gathered(places) for place in own))
        enough = smallest(everywhere, self._is_right_without) if is_wrong and everywhere else []
        findings: list[Finding] = []
        shown: set[tuple[Any, ...]] = set()
        for fault, place in zip(faults, places, strict=True):
            decisive = None if enough is None else place in enough
            calls = (fault.bsym.sym.executor, *(call.sym.id for call in reference_calls(fault.bsym)))
            is_first = calls not in shown
            shown.add(calls)
            alone = is_first and not ranks.communicates(fault.bsym)
            findings.append(
                statement_finding(fault, self.compiled, self.tolerance, decisive=decisive, alone=alone)
            )
        return findings

    def _place(self, fault: StatementFault) -> _PlaceOfRank:
        """Return what identifies a statement among those of all processes.

        One that communicates is replaced in all of them.
        """
        ranks = self.call.ranks
        return None if ranks.communicates(fault.bsym) else ranks.rank, fault.place

    def _is_right_without(self, places: Sequence[_PlaceOfRank]) -> bool:
        """Return whether the program is right where torch computes some statements."""
        ranks = self.call.ranks
        replacing = Replacing([place for rank, place in places if rank in (None, ranks.rank)])
        if ranks.size > 1:
            found = self.call.run(lambda program: self.call.compiled(program, replacing))
            return not ranks.any(differences(self.expected, found, self.tolerance))
        try:
            found = self.call.run(lambda program: self.call.compiled(program, replacing))
        except Exception:  # it raises, or cannot be compiled, without them too
            return False
        return not differences(self.expected, found, self.tolerance)

    def stages(self, *, strict: bool = False) -> list[Finding]:
        """Return the first stage that changes what the forward or the backward computes.

        If `strict`, also one that only computes it less exactly.
        """
        inputs = self.checks.values
        with torch.random.fork_rng(devices=()), Shadows() as shadows:
            ranks = self.call.ranks
            forward = ranks.traces_of_process(self.compiled, thunder.last_traces(self.compiled)[:-1])
            fault, self._evaluated = stage_fault(
                forward, inputs, shadows, self.tolerance, strict=strict, ranks=ranks
            )
            branch = "forward"
            backward = thunder.last_backward_traces(self.compiled)[:-1]
            if backward and not ranks.any(fault is not None):
                known = {k: x for e in self._evaluated for k, x in e.values.items()} | dict(inputs)
                joint = [e.trace for e in self._evaluated if len(e.trace.args) > len(forward[0].args)][-1:]
                fault, _ = stage_fault(
                    [*joint, *backward], known, shadows, self.tolerance, strict=strict, ranks=ranks
                )
                branch = "backward"
            return [] if fault is None else [self._of_stage(fault, branch, inputs)]

    def _of_stage(self, fault: StageFault, branch: str, inputs: Mapping[str, Any]) -> Finding:
        finding = stage_finding(fault, branch, inputs, self._evaluated)
        together = any(b is not None and self.call.ranks.communicates(b) for b in fault.makers)
        return replace(finding, reproducer=None) if together else finding

    def gradients(self) -> list[Finding]:
        """Return the first calls whose gradient rule is wrong."""
        executors = [ex for ex in self._executors() if not isinstance(ex, FusionExecutor)]
        for state in self._evaluated[:1]:
            faults = gradient_faults(state.trace, state.values, executors, self.tolerance, self.call.ranks)
            return [gradient_finding(fault, executors) for fault in faults]
        return []

    def _executors(self) -> Sequence[Any]:
        used = self.call.used_executors
        return resolve_executors(used) if used is not None else thunder.get_default_executors()
