"""The check of a whole compile: a compiled function that makes a call, compared with eager."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

from thunder.compiler.inspection import explain
from thunder.compiler.jit import jit
from thunder.executor_base.fusion_executor import FusionExecutor
from thunder.testing.conformance_failure import NothingToTest, described, tensors_in
from thunder.testing.sample_call import SampleCall, seeded
from thunder.testing.subjects import Subject
from thunder.testing.tolerances import difference

__all__ = ["check_compiled_function"]


def check_compiled_function(subject: Subject) -> None:
    """Check `thunder.jit(f, executors=[the executor])` against the reference, with and without gradients.

    The ledger must name the executor, and under autocast the types must be those without the executor.
    """
    calls = [call for call in subject.calls_with_reference() if call.sample.tensors]
    if not calls:
        raise NothingToTest(f"{subject.id} has no sample with tensors")
    call = calls[0]
    function = _function(subject, call)
    if _fails_without(function, call):
        raise NothingToTest(f"{subject.id} cannot be compiled from a function without the executor either")
    for mode in (torch.enable_grad, torch.no_grad):
        compiled, result = _compiled(subject, call, function, mode)
        _check_ledger(subject, call, compiled)
        _check_value(subject, call, result)
    _, lower = _compiled(subject, call, function, _autocast)
    with _autocast(), seeded():
        expected = jit(function)(*call.sample.copy().tensors)
    _check_types(subject, call, lower, expected)


def _autocast() -> Any:
    return torch.autocast("cpu", torch.bfloat16)


def _compiled(
    subject: Subject, call: SampleCall, function: Callable[..., Any], mode: Callable[[], Any]
) -> tuple[Any, Any]:
    """Return the compiled function and its result under a mode."""
    compiled = jit(function, executors=[subject.executor])
    try:
        with mode(), seeded():
            return compiled, compiled(*call.sample.copy().tensors)
    except Exception as error:
        raise subject.failure(
            "a compiled function that calls it fails",
            call,
            found={"raised": f"{type(error).__name__}: {error}"},
            hint="The executor gets the call as the function makes it, with the casts of autocast.",
        ) from error


def _function(subject: Subject, call: SampleCall) -> Callable[..., Any]:
    """Return a function of the sample's tensors that makes the call; other arguments are constants."""
    sample, kwargs = call.sample, dict(call.sample.kwargs)
    places = [i for i, a in enumerate(sample.args) if isinstance(a, torch.Tensor)]
    if len(places) != len(sample.tensors):  # tensors in lists, in keywords, or repeated
        raise NothingToTest(f"the arguments of {subject.id} are not tensors one by one")
    constant = [None if i in places else a for i, a in enumerate(sample.args)]
    callee = subject.row.torch[0] if subject.row is not None and subject.row.torch else subject.symbol

    def function(*tensors: torch.Tensor) -> Any:
        args = list(constant)
        for place, x in zip(places, tensors):  # noqa: B905  # of equal length
            args[place] = x
        return callee(*args, **kwargs)

    return function


def _fails_without(function: Callable[..., Any], call: SampleCall) -> bool:
    if call.subject.symbol.executor is call.subject.executor:
        return False
    try:
        jit(function)(*call.sample.copy().tensors)
    except Exception:  # an error that is not the executor's
        return True
    return False


# -- the verdict ---------------------------------------------------------------------------------------------


def _check_ledger(subject: Subject, call: SampleCall, compiled: Any) -> None:
    if isinstance(subject.executor, FusionExecutor):
        return  # it may not fuse a single call
    ledger = explain(compiled)
    if not any(row.claimed_by == subject.executor.name for row in ledger.rows):
        raise subject.failure(
            "the ledger of a compiled function does not name the executor",
            call,
            found={"ledger": "\n" + str(ledger)},
            hint="The executor claims the call of the sample: thunder.explain(f) has the reason here.",
        )


def _pairs(subject: Subject, call: SampleCall, ours: Any, theirs: Any) -> Iterator[Any]:
    results, expected = tensors_in(ours), tensors_in(theirs)
    if len(results) != len(expected):
        raise subject.failure(
            "a compiled function that calls it returns another number of tensors",
            call,
            found={"reference": len(expected), "result": len(results)},
            hint="Return what the operator returns.",
        )
    return iter(zip(results, expected, strict=True))


def _check_value(subject: Subject, call: SampleCall, result: Any) -> None:
    assert call.eager is not None, "the call was chosen for its reference"
    if not call.promises_values:
        return
    exact = tensors_in((call.exact or call.eager).result)
    for (x, y), z in zip(_pairs(subject, call, result, call.eager.result), exact, strict=True):
        fault = difference(x, y, z, *subject.settings.tolerance(y.dtype))
        if fault is not None:
            raise subject.failure(
                "a compiled function that calls it returns other values",
                call,
                found={"against the reference": fault},
                hint="thunder.last_traces(f)[-1] shows the executors of each call.",
            )


def _check_types(subject: Subject, call: SampleCall, result: Any, expected: Any) -> None:
    for x, y in _pairs(subject, call, result, expected):
        if (x.shape, x.dtype) != (y.shape, y.dtype):
            raise subject.failure(
                "a compiled function that calls it returns another type under autocast than without it",
                call,
                found={"without the executor": described(y), "with it": described(x)},
                hint="The arguments already have the dtypes to which autocast casts.",
            )
