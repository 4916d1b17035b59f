"""Checks of the results of claimed calls: metadata, strides, aliasing, values; and of their inputs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from thunder.base.dtypes import to_torch_dtype
from thunder.base.tags import OpTags
from thunder.ir.proxies import NumberProxy, Proxy, TensorProxy
from thunder.testing.conformance_failure import definition_of, described, tensors_in
from thunder.testing.sample_call import Outcome, SampleCall
from thunder.testing.samples import other_values
from thunder.testing.subjects import Subject
from thunder.testing.tolerances import difference, same_bits

__all__ = [
    "check_aliasing",
    "check_inputs",
    "check_metadata",
    "check_repeats",
    "check_strides",
    "check_values",
    "layout_of",
    "metadata_faults",
    "shared_memory",
]

# -- metadata ------------------------------------------------------------------------------------------------


def check_metadata(subject: Subject) -> None:
    """Check that results have the structure, shapes, dtypes and devices of the meta function's."""
    for call in subject.calls:
        if call.tracing_error is not None:
            raise subject.failure(
                "its meta function refuses a sample call",
                call,
                found={"raised": f"{type(call.tracing_error).__name__}: {call.tracing_error}"},
                where=definition_of(subject.symbol.meta),
                hint="Correct the meta function, or leave the sample out: a program that makes the call "
                "fails as well.",
            ) from call.tracing_error
    for call in subject.run_calls():
        fault = _first(metadata_faults(call.traced.bsym.output, call.outcome.result))
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
    """Yield where a result differs from its proxies: the place, the proxy, and the result there."""
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


def check_strides(subject: Subject) -> None:
    """Check that results have the reference's strides: traces have no strides, programs rely on eager's."""
    for call in subject.calls_with_reference():
        assert call.eager is not None, "calls without reference are left out"
        for i, (ours, theirs) in enumerate(_pairs(call.outcome, call.eager)):
            if ours.shape == theirs.shape and layout_of(ours) != layout_of(theirs):
                raise subject.failure(
                    f"result {i} has other strides than the reference's",
                    call,
                    found={"reference": tuple(theirs.stride()), "result": tuple(ours.stride())},
                    hint="A program may read strides, and views depend on them: allocate the result with "
                    "eager's, mostly torch.empty_like(x) or contiguous().",
                )


def layout_of(x: torch.Tensor) -> tuple[int, ...]:
    """Return the strides of the dimensions with more than one element; empty for an empty tensor."""
    if x.numel() == 0 or x.layout is not torch.strided:
        return ()
    return tuple(s for n, s in zip(x.shape, x.stride(), strict=True) if n > 1)


def _pairs(ours: Outcome, theirs: Outcome) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    return zip(tensors_in(ours.result), tensors_in(theirs.result), strict=False)


# -- memory --------------------------------------------------------------------------------------------------


def check_aliasing(subject: Subject) -> None:
    """Check that only results of operators tagged as views share memory with arguments or each other."""
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
                "a result shares memory, and the operator is not tagged as a view",
                call,
                found={"shared": ", ".join(sorted(ours))},
                hint="Return fresh memory, or register the operator with "
                "tags=(thunder.core.tags.OpTags.MAYBE_VIEW,): a later write to one of the two would change "
                "the other, which the compiler would not know.",
            )
        if OpTags.VIEW in subject.symbol.tags and theirs and not ours:
            raise subject.failure(
                "a result is a copy, and the operator is tagged as a view",
                call,
                found={"eager shares": ", ".join(sorted(theirs))},
                hint="Return a view of the argument: a program may write to it and expect the argument to "
                "change.",
            )


def _excused(subject: Subject, ours: set[str], theirs: set[str]) -> bool:
    """Return whether eager's operator shares the same memory, so that the row's tags describe both."""
    is_own = subject.row is subject.implements and subject.symbol.executor is subject.executor
    return not is_own and ours <= theirs


def shared_memory(outcome: Outcome) -> set[str]:
    """Return which tensors share memory: `result 0 and argument 1`, `result 0 and result 1`."""
    results = [x for x in tensors_in(outcome.result) if x.numel()]
    first_user = {_memory(x): f"argument {i}" for i, x in enumerate(outcome.given) if x.numel()}
    pairs: set[str] = set()
    for i, x in enumerate(results):
        if _memory(x) in first_user:
            pairs.add(f"result {i} and {first_user[_memory(x)]}")
        first_user.setdefault(_memory(x), f"result {i}")
    return pairs


def _memory(x: torch.Tensor) -> int:
    return x.untyped_storage().data_ptr()


def check_inputs(subject: Subject) -> None:
    """Check that a run does not change its arguments."""
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
    """Return the positions of tensors whose values or shape a run changed."""
    return [
        i for i, (x, y) in enumerate(zip(outcome.given, outcome.before, strict=True)) if not same_bits(x, y)
    ]


# -- values --------------------------------------------------------------------------------------------------


def check_values(subject: Subject) -> None:
    """Check results against the reference in float64, within a tolerance and a multiple of eager's error."""
    subject.exact_calls()
    calls = [call for call in subject.calls_with_reference() if call.promises_values]
    others = [SampleCall(subject, other_values(call.sample)) for call in calls[:2]]  # of the same types
    for call in (*calls, *(c for c in others if c.is_run)):
        assert call.eager is not None, "calls without reference are left out"
        exact = tensors_in((call.exact or call.eager).result)
        ours, eager = tensors_in(call.outcome.result), tensors_in(call.eager.result)
        if not len(ours) == len(eager) == len(exact):
            raise subject.failure(
                "it returns another number of tensors than the reference",
                call,
                found={"reference": len(eager), "result": len(ours)},
                hint="Return what the operator returns.",
            )
        for i, (x, y, z) in enumerate(zip(ours, eager, exact, strict=True)):
            _check_value(subject, call, i, x, y, z)


def _check_value(
    subject: Subject, call: SampleCall, i: int, ours: torch.Tensor, eager: torch.Tensor, exact: torch.Tensor
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
            "tolerances={dtype: (relative, absolute)} if this precision is intended.",
        )


def check_repeats(subject: Subject) -> None:
    """Check that runs of one call give the same bits.

    The state of torch's generator differs between the runs, except for operators that draw from it.
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
                    "it returns other results for the same arguments",
                    call,
                    found={"random operator": call.is_random, "first": first, "again": again},
                    hint="Draw random numbers from torch's generator and tag the operator, "
                    "tags=(thunder.core.tags.OpTags.RANDOM_OP,); keep no state between runs.",
                )
