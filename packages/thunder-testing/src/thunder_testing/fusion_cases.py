"""Checks of fusion executors: small programs have the same results when they are fused."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from thunder.core.errors import Location
from thunder.extend import FUEL_LEVEL, FusionExecutor, Refusal, no_reason
from thunder_testing import failure_cases, global_state_cases, program_cases, result_cases, training_cases
from thunder_testing.comparison import ASPECTS
from thunder_testing.conformance_failure import ConformanceFailure, NothingToTest, definition_of, error_text
from thunder_testing.region_programs import RegionCall, region_calls
from thunder_testing.sample_call import SampleCall
from thunder_testing.sample_lowering import LoweredProgram
from thunder_testing.subjects import Subject

__all__ = ["FUSION_PROPERTIES", "RegionSubject"]

#: with how many other operators an operator is combined
MAX_OTHERS = 8

#: aspect → what a fusion does right in that respect
HINTS: Mapping[str, str] = {
    "metadata": "A fusion returns its outputs in the order of its bound symbol, each with the type that its "
    "proxy has.",
    "values": "A fusion reads its arguments at its place in the program: after they are computed, and not "
    "after a later write to one of them.",
    "strides": "Allocate results with eager's strides.",
    "aliasing": "Each result of a fusion has its own memory.",
    "inputs": "A fusion writes to fresh memory, and calls of other executors keep their place.",
}


class RegionSubject(Subject):
    """The programs of an operator that a fusion executor supports, as calls."""

    def __init__(
        self,
        single: Subject | None,
        others: Sequence[Subject],
        *,
        programs: Sequence[RegionSubject] = (),
        **of: Any,
    ) -> None:
        if single is not None:
            super().__init__(single.executor, single.symbol, single.settings, single.implements)
        else:
            super().__init__(**of)
        self.single, self.others, self.programs = single or self, others, programs

    def make_calls(self) -> list[SampleCall]:
        """Make the programs."""
        return list(region_calls(self.single, [s for s in self.others if s is not self.single][:MAX_OTHERS]))

    @property
    def is_eager_reference(self) -> bool:
        """True: without the executor, the program is run by torch."""
        return True

    @property
    def fused(self) -> list[SampleCall]:
        """The programs of which the executor makes regions."""
        return [c for c in self.calls if isinstance(c, RegionCall) and c.is_run and c.is_fused]

    def fuses(self, operator_id: str) -> bool:
        """Return whether a region of the programs has a call of an operator."""
        return any(isinstance(c, RegionCall) and c.has_fused(operator_id) for c in self.fused)

    def run_calls(self) -> list[SampleCall]:
        """Return the fused programs. Raises NothingToTest if there is none."""
        if not self.fused:
            raise NothingToTest(f"no program of {self.id} was fused; the case fused-{self.id} has the reason")
        return self.fused

    @property
    def where(self) -> list[Location]:
        """The definition of the function that makes fusions."""
        executor = type(self.executor)
        assert issubclass(executor, FusionExecutor), "only fusion executors have regions"
        methods = ("compile_region", "compile_regions", "fuse", "fusion_pass")
        pairs = [(getattr(executor, name), getattr(FusionExecutor, name)) for name in methods]
        return definition_of(*(own for own, inherited in pairs if own is not inherited))

    def failure(self, what: str, call: SampleCall | None = None, **parts: Any) -> ConformanceFailure:
        """Return the error for a fault of a program."""
        if call is not None and call.program_text:
            what = f"{call.program_text}: {what}"
            if call.lowering_error is None:
                trace = "\n" + call.program.trace.python(include_timing=False)
                parts["found"] = {**(parts.get("found") or {}), "fused program": trace}
        return super().failure(what, call, **parts)


# -- cases ---------------------------------------------------------------------------------------------------


def check_fused(subject: RegionSubject) -> None:
    """Check that the executor makes a region of some program with the operator."""
    if subject.fused or any(program.fuses(subject.id) for program in subject.programs):
        return
    if not any(call.is_claimed for call in subject.single.calls):
        raise NothingToTest(f"{subject.id} is not claimed; the case samples-{subject.id} has the reason")
    reasons = {str(reason) for call in subject.calls for reason in _reasons(subject, call)}
    if reasons and all(list(_reasons(subject, call)) for call in subject.calls if call.is_run):
        raise NothingToTest(
            f"{subject.id} is in no region of the programs of the tests: {'; '.join(sorted(reasons))}. Give "
            "a program in which it is: programs={'norm': (function, (x, weight))}"
        )
    raise subject.failure(
        "nothing was fused: the executor claims calls of it, and makes no region of any program with it",
        found={"programs that were compiled": ", ".join(sorted({c.program_text for c in subject.calls}))},
        hint="If it fuses certain programs alone, give one: programs={'norm': (function, (x, weight))}. Else "
        "let can_fuse refuse the call with a reason, so that another executor gets it.",
    )


def _reasons(subject: RegionSubject, call: SampleCall) -> Iterator[Refusal]:
    """Yield the reasons that `fuse` or `compile_region` gave for leaving the operator's calls alone."""
    if call.lowering_error is not None:
        return
    for placement in call.program.placements:
        for name, refusal in placement.refusals:
            given = refusal != no_reason(name, placement.symbol)
            if name == subject.executor.name and refusal.code == "not-fused" and given:
                yield refusal


def check_regions(subject: RegionSubject) -> None:
    """Check that fused programs have eager's results: structure, types, strides, aliasing, values, writes."""
    for call in subject.calls:
        error = call.tracing_error or call.lowering_error or call.running_error
        if error is not None:
            raise subject.failure(
                "it cannot be fused and run",
                call,
                found={"raised": error_text(error)},
                hint="fusion_pass keeps every call and every name that is read later, in an order in which "
                "values are computed before they are read.",
            ) from error
        for aspect, compare in ASPECTS.items():
            for difference in compare(call, call.outcome):
                raise subject.failure(difference.what, call, found=difference.found, hint=HINTS[aspect])
    if not subject.fused:
        raise NothingToTest(f"no program of {subject.id} was fused: other executors run every call")


def check_fuel(subject: RegionSubject) -> None:
    """Check that no fusion is made without fuel, and that programs still run: bisection depends on it."""
    executor = subject.executor
    assert isinstance(executor, FusionExecutor), "only fusion executors have these cases"
    for call in subject.run_calls()[:3]:
        executor.set_fuel(0)
        try:
            again = call.like(call.sample)
            is_fused = again.lowering_error is None and isinstance(again, RegionCall) and again.is_fused
            difference = next(iter(ASPECTS["values"](again, again.outcome)), None) if again.is_run else None
        finally:
            executor.set_fuel(FUEL_LEVEL.UNLIMITED)
        if is_fused or not again.is_run or difference is not None:
            raise subject.failure(
                "it is fused without fuel"
                if is_fused
                else "it does not run without fuel as it does with fuel",
                again,
                found=difference.found if difference is not None else None,
                hint="Call self.get_fuel() before each fusion, and leave the calls as they are where it "
                "returns False.",
            )


def check_fusions_repeat(subject: RegionSubject) -> None:
    """Check that a program is fused into the same text each time."""
    for call in subject.run_calls()[:4]:
        first, second = (_text(program) for program in (call.lower(), call.lower()))
        if first != second:
            raise subject.failure(
                "it is fused into another program the second time",
                call,
                found={"first": "\n" + first, "second": "\n" + second},
                hint="Number fusions from 0 in each trace, and iterate over lists, not sets.",
            )


def _text(program: LoweredProgram) -> str:
    return program.trace.python(include_timing=False)


#: property → its check, for the programs of each operator
FUSION_PROPERTIES: Mapping[str, Callable[[RegionSubject], None]] = {
    "fused": check_fused,
    "regions": check_regions,
    "fuel": check_fuel,
    "fusions-repeat": check_fusions_repeat,
    "fusion-repeats": result_cases.check_repeats,
    "fusion-state": global_state_cases.check_state,
    "fusion-releases": global_state_cases.check_releases,
    "fusion-modes": global_state_cases.check_modes,
    "fusion-threads": global_state_cases.check_threads,
    "fusion-failures": failure_cases.check_failures,
    "fusion-jit": program_cases.check_compiled_function,
    "fusion-shapes": program_cases.check_changing_shapes,
    "fusion-training": training_cases.check_training,
}
