"""The outcome of a run, compared with its meta function and its reference: one function for each aspect."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from thunder.core.dtypes import to_torch_dtype
from thunder.core.proxies import NumberProxy, Proxy, TensorProxy
from thunder.core.pytree import tree_iter
from thunder.core.tags import OpTags
from thunder_testing.conformance_failure import described, tensors_in
from thunder_testing.sample_call import Outcome, SampleCall, memory_of, version_of
from thunder_testing.tolerances import LOW_PRECISION, Reference, same_bits

__all__ = ["ASPECTS", "Difference", "differences", "layout_of", "value_difference", "written_arguments"]


@dataclass(frozen=True)
class Difference:
    """A difference of a run from what the operator promises: what it is, the values, and a hint."""

    what: str
    hint: str
    found: dict[str, object] = field(default_factory=dict)


def differences(call: SampleCall, outcome: Outcome) -> Iterator[Difference]:
    """Yield the differences of a run in every aspect."""
    for compare in ASPECTS.values():
        yield from compare(call, outcome)


# -- metadata ------------------------------------------------------------------------------------------------


def compare_metadata(call: SampleCall, outcome: Outcome) -> Iterator[Difference]:
    """Yield where structure, shapes, dtypes and devices are not those of the meta function."""
    for place, said, real in _metadata_faults(call.traced.trace.output, outcome.result):
        yield Difference(
            f"{place} is not what its meta function says",
            "Return what the meta function says, or correct the meta function. Programs are compiled for "
            "what it says.",
            {"meta function": described(said), "result": described(real)},
        )


def _metadata_faults(said: Any, real: Any, place: str = "the result") -> Iterator[tuple[str, Any, Any]]:
    """Yield where a result differs from its proxies: the place, the proxy, and the result there."""
    if isinstance(said, tuple | list):
        if not isinstance(real, tuple | list) or len(said) != len(real):
            yield f"the structure of {place}", said, real
        else:
            for i, (a, b) in enumerate(zip(said, real, strict=True)):
                yield from _metadata_faults(a, b, f"{place}[{i}]")
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


# -- layout --------------------------------------------------------------------------------------------------


def compare_strides(call: SampleCall, outcome: Outcome) -> Iterator[Difference]:
    """Yield where strides are not those that the meta function declares, or not the reference's."""
    said = [p for p in tree_iter(call.traced.trace.output) if isinstance(p, TensorProxy)]
    for i, (proxy, ours) in enumerate(zip(said, tensors_in(outcome.result), strict=False)):
        declared = _declared_layout(proxy)
        if declared is not None and tuple(proxy.shape) == ours.shape and declared != layout_of(ours):
            yield Difference(
                f"result {i} has other strides than its meta function declares",
                "Declare the strides that the result has, or none: TensorProxy(like=x) has eager's, "
                "which views and compilers of regions then derive.",
                {"meta function": tuple(proxy.strides or ()), "result": tuple(ours.stride())},
            )
    if call.reference_error is not None or call.eager is None:
        return
    pairs = zip(tensors_in(outcome.result), tensors_in(call.eager.result), strict=False)
    for i, (ours, theirs) in enumerate(pairs):
        if ours.shape == theirs.shape and layout_of(ours) != layout_of(theirs):
            yield Difference(
                f"result {i} has other strides than the reference's",
                "A program may read strides, and views depend on them: allocate the result with eager's, "
                "mostly torch.empty_like(x) or contiguous().",
                {"reference": tuple(theirs.stride()), "result": tuple(ours.stride())},
            )


def _declared_layout(p: TensorProxy) -> tuple[int, ...] | None:
    """Return the declared strides of the dimensions with more than one element; None if there are none."""
    if p.strides is None:
        return None
    if 0 in p.shape:
        return ()
    return tuple(int(s) for n, s in zip(p.shape, p.strides, strict=True) if n > 1)


def layout_of(x: torch.Tensor) -> tuple[int, ...]:
    """Return the strides of the dimensions with more than one element; empty for an empty tensor."""
    if x.numel() == 0 or x.layout is not torch.strided:
        return ()
    return tuple(s for n, s in zip(x.shape, x.stride(), strict=True) if n > 1)


# -- memory --------------------------------------------------------------------------------------------------


def compare_aliasing(call: SampleCall, outcome: Outcome) -> Iterator[Difference]:
    """Yield where results share memory, and the operator is not tagged as a view; and the reverse."""
    theirs = _shared_memory(call.eager) if call.reference_error is None and call.eager is not None else set()
    ours = _shared_memory(outcome)
    if ours and not call.may_alias(ours, theirs):
        yield Difference(
            "a result shares memory, and the operator is not tagged as a view",
            "Return fresh memory, or register the operator with tags=(thunder.core.tags.OpTags.MAYBE_VIEW,): "
            "a later write to one of the two would change the other, which the compiler would not know.",
            {"shared": ", ".join(sorted(ours))},
        )
    if OpTags.VIEW in call.subject.symbol.tags and theirs and not ours and not call.program_text:
        yield Difference(
            "a result is a copy, and the operator is tagged as a view",
            "Return a view of the argument: a program may write to it and expect the argument to change.",
            {"eager shares": ", ".join(sorted(theirs))},
        )


def _shared_memory(outcome: Outcome) -> set[str]:
    """Return which tensors share memory: `result 0 and argument 1`, `result 0 and result 1`."""
    results = [x for x in tensors_in(outcome.result) if x.numel()]
    first_user = {_pointer(x): f"argument {i}" for i, x in enumerate(outcome.given) if x.numel()}
    pairs: set[str] = set()
    for i, x in enumerate(results):
        if _pointer(x) in first_user:
            pairs.add(f"result {i} and {first_user[_pointer(x)]}")
        first_user.setdefault(_pointer(x), f"result {i}")
    return pairs


def _pointer(x: torch.Tensor) -> int:
    return x.untyped_storage().data_ptr()


def compare_inputs(call: SampleCall, outcome: Outcome) -> Iterator[Difference]:
    """Yield where arguments are changed that eager leaves as they are, and where writes are lost."""
    eager = call.eager if call.reference_error is None else None
    is_functional = bool(call.subject.written)  # it writes to copies, whatever the function does
    written = written_arguments(eager) if eager is not None and not is_functional else set()
    changed = {i for i in written_arguments(outcome) if i not in written}
    if changed:
        yield Difference(
            "it changes its arguments",
            "Write to fresh memory. Programs are functional when executors get them, and may read an "
            "argument again afterwards.",
            {"changed": ", ".join(f"tensor {i} of the call" for i in sorted(changed))},
        )
    if eager is None or not call.promises_values:
        return
    exact = call.exact or eager
    for i in sorted(written):
        reference = Reference(exact=exact.given[i], eager=eager.given[i])
        fault = call.subject.settings.judge.fault(outcome.given[i], reference)
        if fault is not None:
            yield Difference(
                f"tensor {i} of the call has other values after the run",
                "A write to an argument takes place at its place in the program.",
                {"against the reference": fault},
            )


def written_arguments(outcome: Outcome) -> set[int]:
    """Return the positions of tensors that a run wrote to, by values and by torch's counter of writes."""
    return {
        i
        for i, (x, before, version) in enumerate(
            zip(outcome.given, outcome.before, outcome.versions, strict=True)
        )
        if version_of(x) != version or not same_bits(memory_of(x), before)
    }


# -- values --------------------------------------------------------------------------------------------------


def compare_values(call: SampleCall, outcome: Outcome) -> Iterator[Difference]:
    """Yield where values differ from the reference's by more than the bound."""
    if call.eager is None or not call.promises_values:
        return
    difference = value_difference(call, outcome.result)
    if difference is not None:
        yield difference


LET_REFUSE = "Correct the implementation, let the checker refuse the call"


def value_difference(call: SampleCall, result: Any) -> Difference | None:
    """Return how the values of a result differ from the reference's by more than the bound, or None."""
    references, ours, judge = call.references(), tensors_in(result), call.subject.settings.judge
    if len(ours) != len(references):
        return Difference(
            "it returns another number of tensors than the reference",
            "Return what the operator returns.",
            {"reference": len(references), "result": len(ours)},
        )
    for i, (x, reference) in enumerate(zip(ours, references, strict=True)):
        fault = judge.fault(x, reference)
        if fault is not None:
            how = "Compute in float32 and round once, to nearest" if x.dtype in LOW_PRECISION else LET_REFUSE
            return Difference(
                f"result {i} is wrong",
                f"{how}, or pass tolerances={{dtype: (relative, absolute)}} if this precision is intended.",
                {"against the reference in float64": fault, "bound": judge.bound(x.dtype)},
            )
    return None


#: aspect → function of a call and a run of it
ASPECTS: Mapping[str, Callable[[SampleCall, Outcome], Iterator[Difference]]] = {
    "metadata": compare_metadata,
    "values": compare_values,
    "strides": compare_strides,
    "aliasing": compare_aliasing,
    "inputs": compare_inputs,
}
