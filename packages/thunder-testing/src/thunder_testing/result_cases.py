"""Checks of the results of claimed calls, of their repetition, and of their inputs."""

from __future__ import annotations

from collections.abc import Callable

import torch

from thunder_testing.comparison import ASPECTS
from thunder_testing.conformance_failure import definition_of, error_text, tensors_in
from thunder_testing.sample_call import SampleCall, memory_of
from thunder_testing.sample_lowering import seeded
from thunder_testing.samples import other_values
from thunder_testing.subjects import Subject
from thunder_testing.tolerances import same_bits

__all__ = [
    "check_aliasing",
    "check_inputs",
    "check_metadata",
    "check_repeats",
    "check_strides",
    "check_values",
]


def check_metadata(subject: Subject) -> None:
    """Check that results have the structure, shapes, dtypes and devices of the meta function's."""
    for call in subject.calls:
        if call.tracing_error is not None:
            raise subject.failure(
                "its meta function refuses a sample call",
                call,
                found={"raised": error_text(call.tracing_error)},
                where=definition_of(subject.symbol.meta),
                hint="Correct the meta function, or leave the sample out: a program that makes the call "
                "fails as well.",
            ) from call.tracing_error
    _check("metadata", subject, subject.run_calls)


def check_strides(subject: Subject) -> None:
    """Check that results have the strides that are declared, and the reference's, on which programs rely."""
    _check("strides", subject, subject.run_calls)
    subject.calls_with_reference()


def check_aliasing(subject: Subject) -> None:
    """Check that only results of operators tagged as views share memory with arguments or each other."""
    _check("aliasing", subject, subject.run_calls)


def check_inputs(subject: Subject) -> None:
    """Check that a run does not change its arguments, nor what is beside them in their memory."""
    _check("inputs", subject, subject.run_calls)


def check_values(subject: Subject) -> None:
    """Check results against the reference in float64 of the same inputs."""
    subject.exact_calls()

    def calls() -> list[SampleCall]:
        calls = subject.calls_with_reference()
        others = [call.like(other_values(call.sample)) for call in calls[:2]]  # of the same types
        return [*calls, *(c for c in others if c.is_run and c.reference_error is None)]

    _check("values", subject, calls)


def _check(aspect: str, subject: Subject, calls: Callable[[], list[SampleCall]]) -> None:
    """Raise the first difference of the calls' first runs in one aspect."""
    for call in calls():
        for difference in ASPECTS[aspect](call, call.outcome):
            raise subject.failure(difference.what, call, found=difference.found, hint=difference.hint)


def check_repeats(subject: Subject) -> None:
    """Check that runs of one call give the same bits.

    The state of torch's generator differs between the runs, except for operators that draw from it.
    """
    for number, call in enumerate(subject.small_calls()):
        if not (call.promises_values or call.is_random):
            continue
        seeds = (42, 42, 42) if call.is_random else (42, 7, 42, 8)
        first = tensors_in(call.run(seed=seeds[0]).result)
        if number < 2:
            _check_earlier_result(subject, call, first)
            _check_addresses(subject, call)
        for seed in seeds[1 : None if number < 2 else 2]:
            again = tensors_in(call.run(seed=seed).result)
            if len(first) != len(again) or not all(map(same_bits, first, again)):
                raise subject.failure(
                    "it returns other results for the same arguments",
                    call,
                    found={"random operator": call.is_random, "first": first, "again": again},
                    hint="Draw random numbers from torch's generator and tag the operator, "
                    "tags=(thunder.core.tags.OpTags.RANDOM_OP,); keep no state between runs.",
                )


def _check_addresses(subject: Subject, call: SampleCall) -> None:
    """Check a run in whose arguments' memory an earlier run had other values."""
    run, other = call.program.run, call.like(other_values(call.sample))
    if not call.sample.tensors or not other.is_run:
        return
    expected = tensors_in(other.run(run).result)
    given = [x.data for x in call.sample.copy().tensors]  # a tensor that was never written
    with seeded():
        run(*given)
    written = other.sample.copy().tensors
    for x, y in zip(given, written, strict=True):
        memory_of(x).copy_(memory_of(y))
    for how, again in (("the same tensors", given), ("other tensors there", [x.data for x in given])):
        with seeded():
            results = tensors_in(run(*again))
        if len(results) != len(expected) or not all(map(same_bits, results, expected)):
            raise subject.failure(
                "it returns the result of other values that were at the same addresses",
                call,
                found={"second run": how, "right": expected, "result": results},
                hint="Keep no results and no prepared arguments by data_ptr(), id or version: memory is used "
                "again, and written to.",
            )


def _check_earlier_result(subject: Subject, call: SampleCall, first: list[torch.Tensor]) -> None:
    """Check that a run with other values leaves the result of an earlier run as it is."""
    before = [x.clone() for x in first]
    call.like(other_values(call.sample)).run(call.program.run)
    if not all(map(same_bits, first, before)):
        raise subject.failure(
            "a later run changes the result of an earlier one",
            call,
            found={"before": before, "afterwards": first},
            hint="Return fresh memory in each run: a program keeps its results.",
        )
