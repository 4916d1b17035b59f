"""Cases about what a claimed call computes: its type, where it lies in memory, its values, and what it
leaves alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from thunder.base.dtypes import to_torch_dtype
from thunder.base.tags import OpTags
from thunder.ir.proxies import NumberProxy, Proxy, TensorProxy
from thunder.testing.conformance_failure import definition_of, described, tensors_in
from thunder.testing.sample_call import Call, Outcome
from thunder.testing.samples import other_values
from thunder.testing.subjects import Subject
from thunder.testing.tolerances import difference, same_bits

__all__ = [
    "inputs_are_left_alone",
    "layout_of",
    "meta_is_reality",
    "metadata_faults",
    "results_are_right",
    "results_repeat",
    "shared_memory",
    "sharing_is_declared",
    "strides_are_eagers",
]

# -- metadata ------------------------------------------------------------------------------------------------


def meta_is_reality(subject: Subject) -> None:
    """Results have the structure, shapes, dtypes and devices that the meta function said."""
    for call in subject.calls:
        if call.recording_error is not None:
            raise subject.failure(
                "its meta function does not take a sample call",
                call,
                found={"raised": f"{type(call.recording_error).__name__}: {call.recording_error}"},
                where=definition_of(subject.symbol.meta),
                hint="Correct the meta function, or leave the sample out: a program that makes the call "
                "fails as well.",
            ) from call.recording_error
    for call in subject.run_calls():
        fault = _first(metadata_faults(call.recording.bsym.output, call.outcome.result))
        if fault is not None:
            place, said, real = fault
            raise subject.failure(
                f"{place} is not what its meta function says",
                call,
                found={"meta function": described(said), "result": described(real)},
                hint="Return what the meta function says, or correct the meta function. Programs are "
                "compiled for what it says.",
            )


def metadata_faults(said: Any, real: Any, place: str = "the result") -> Iterator[tuple[str, Any, Any]]:
    """Where a result differs from the proxies that stand for it: the place, the proxy, and what is there."""
    if isinstance(said, tuple | list):
        if not isinstance(real, tuple | list) or len(said) != len(real):
            yield f"the structure of {place}", said, real
        else:
            for i, (a, b) in enumerate(zip(said, real, strict=True)):
                yield from metadata_faults(a, b, f"{place}[{i}]")
    elif isinstance(said, TensorProxy):
        if not isinstance(real, torch.Tensor):
            yield place, said, real
            return
        for fact, a, b in (
            ("shape", tuple(said.shape), tuple(real.shape)),
            ("dtype", to_torch_dtype(said.dtype), real.dtype),
            ("device", said.device, real.device),
        ):
            if a != b:
                yield f"the {fact} of {place}", said, real
    elif isinstance(said, NumberProxy):
        if type(real) is not said.python_type:
            yield f"the type of {place}", said, real
    elif not isinstance(said, Proxy) and isinstance(real, torch.Tensor):
        yield place, said, real


def _first(items: Iterator[Any]) -> Any:
    return next(items, None)


def strides_are_eagers(subject: Subject) -> None:
    """Results lie in memory as the reference's do: traces record no strides, and programs rely on eager's."""
    for call in subject.judged_calls():
        assert call.eager is not None, "calls without reference are left out"
        for i, (ours, theirs) in enumerate(_pairs(call.outcome, call.eager)):
            if ours.shape == theirs.shape and layout_of(ours) != layout_of(theirs):
                raise subject.failure(
                    f"result {i} has other strides than the reference's",
                    call,
                    found={"reference": tuple(theirs.stride()), "result": tuple(ours.stride())},
                    hint="A program may ask for strides, and takes views by them: allocate the result with "
                    "eager's, mostly torch.empty_like(x) or contiguous().",
                )


def layout_of(x: torch.Tensor) -> tuple[int, ...]:
    """The strides that mean something: those of dimensions with more than one element, if there are any."""
    if x.numel() == 0 or x.layout is not torch.strided:
        return ()
    return tuple(s for n, s in zip(x.shape, x.stride(), strict=True) if n > 1)


def _pairs(ours: Outcome, theirs: Outcome) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    return zip(tensors_in(ours.result), tensors_in(theirs.result), strict=False)


# -- memory --------------------------------------------------------------------------------------------------


def sharing_is_declared(subject: Subject) -> None:
    """Results share memory with arguments, or with one another, only where they are said to be views."""
    tags = subject.symbol.tags | (
        subject.info.symbol.tags if subject.info.symbol is not None else frozenset()
    )
    may = bool(tags & {OpTags.VIEW, OpTags.MAYBE_VIEW})
    for call in subject.run_calls():
        eager = call.eager if call.reference_error is None else None
        theirs = shared_memory(eager) if eager is not None else set()
        ours = shared_memory(call.outcome)
        if ours and not may and not _excused(subject, ours, theirs):
            raise subject.failure(
                "a result shares memory, and the operator does not say that it is a view",
                call,
                found={"shared": ", ".join(sorted(ours))},
                hint="Return fresh memory, or register the operator with "
                "tags=(thunder.core.tags.OpTags.MAYBE_VIEW,): a later write to one of the two would change "
                "the other behind the program's back.",
            )
        if OpTags.VIEW in subject.symbol.tags and theirs and not ours:
            raise subject.failure(
                "a result is a copy, and the operator says that it is a view",
                call,
                found={"eager shares": ", ".join(sorted(theirs))},
                hint="Return a view of the argument: a program may write to it and expect the argument to "
                "change.",
            )


def _excused(subject: Subject, ours: set[str], theirs: set[str]) -> bool:
    """Whether eager's operator does the same, and so the row speaks for both."""
    is_own = subject.row is subject.stands_for and subject.symbol.executor is subject.executor
    return not is_own and ours <= theirs


def shared_memory(outcome: Outcome) -> set[str]:
    """What shares memory: `result 0 and argument 1`, `result 0 and result 1`."""
    results = [x for x in tensors_in(outcome.result) if x.numel()]
    given = {_memory(x): f"argument {i}" for i, x in enumerate(outcome.given) if x.numel()}
    found: set[str] = set()
    for i, x in enumerate(results):
        if _memory(x) in given:
            found.add(f"result {i} and {given[_memory(x)]}")
        given.setdefault(_memory(x), f"result {i}")
    return found


def _memory(x: torch.Tensor) -> int:
    return x.untyped_storage().data_ptr()


def inputs_are_left_alone(subject: Subject) -> None:
    """Arguments hold after a run what they held before."""
    for call in subject.run_calls():
        changed = changed_inputs(call.outcome)
        if changed:
            raise subject.failure(
                "it changes its arguments",
                call,
                found={"changed": ", ".join(f"tensor {i} of the call" for i in changed)},
                hint="Write to fresh memory. Programs are functional when executors get them, and may read "
                "an argument again afterwards.",
            )


def changed_inputs(outcome: Outcome) -> list[int]:
    """The positions of tensors that a run has changed, in values or in shape."""
    return [
        i for i, (x, y) in enumerate(zip(outcome.given, outcome.before, strict=True)) if not same_bits(x, y)
    ]


# -- values --------------------------------------------------------------------------------------------------


def results_are_right(subject: Subject) -> None:
    """Results are the reference's in float64, within a tolerance and a multiple of what eager is off."""
    subject.exact_calls()
    calls = [call for call in subject.judged_calls() if call.promises_values]
    others = [Call(subject, other_values(call.sample)) for call in calls[:2]]  # of the same types
    for call in (*calls, *(c for c in others if c.is_run)):
        assert call.eager is not None, "calls without reference are left out"
        exact = tensors_in((call.exact or call.eager).result)
        ours, eager = tensors_in(call.outcome.result), tensors_in(call.eager.result)
        if not len(ours) == len(eager) == len(exact):
            raise subject.failure(
                "it gives another number of tensors than the reference",
                call,
                found={"reference": len(eager), "result": len(ours)},
                hint="Return what the operator returns.",
            )
        for i, (x, y, z) in enumerate(zip(ours, eager, exact, strict=True)):
            _is_right(subject, call, i, x, y, z)


def _is_right(
    subject: Subject, call: Call, i: int, ours: torch.Tensor, eager: torch.Tensor, exact: torch.Tensor
) -> None:
    rtol, atol = subject.settings.tolerance(ours.dtype if ours.dtype != eager.dtype else eager.dtype)
    fault = difference(ours, eager, exact, rtol, atol)
    if fault is not None:
        raise subject.failure(
            f"result {i} is wrong",
            call,
            found={
                "against the reference in float64": fault,
                "tolerances": f"relative {rtol}, absolute {atol}",
            },
            hint="Correct the implementation, let the checker refuse the call, or pass "
            "tolerances={dtype: (relative, absolute)} if this is as near as it is meant to come.",
        )


def results_repeat(subject: Subject) -> None:
    """Runs of one call give the same bits, whatever the state of the random generator, or, for operators that
    draw from it, whenever that state is the same.
    """
    for number, call in enumerate(subject.run_calls()):
        if not (call.promises_values or call.is_random):
            continue
        seeds = (42, 42, 42) if call.is_random else (42, 7, 42, 8)
        first = tensors_in(call.run(seed=seeds[0]).result)
        for seed in seeds[1 : None if number < 2 else 2]:
            again = tensors_in(call.run(seed=seed).result)
            if len(first) != len(again) or not all(map(same_bits, first, again)):
                raise subject.failure(
                    "it gives other results for the same arguments",
                    call,
                    found={"random operator": call.is_random, "first": first, "again": again},
                    hint="Draw random numbers from torch's generator and say so, "
                    "tags=(thunder.core.tags.OpTags.RANDOM_OP,); keep no state between runs.",
                )
