"""The case that goes all the way: a compiled function that makes a call, compared with eager's."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

from thunder.compiler.inspection import explain
from thunder.compiler.jit import jit
from thunder.executor_base.fusion_executor import FusionExecutor
from thunder.testing.conformance_failure import NothingToJudge, described, tensors_in
from thunder.testing.sample_call import Call, seeded
from thunder.testing.subjects import Subject
from thunder.testing.tolerances import difference

__all__ = ["compiled_functions_work"]


def compiled_functions_work(subject: Subject) -> None:
    """`thunder.jit(f, executors=[the executor])` gives what the reference gives, with and without gradients;
    under autocast it has the types that it has without the executor; and the ledger names the executor.
    """
    calls = [call for call in subject.judged_calls() if call.sample.tensors]
    if not calls:
        raise NothingToJudge(f"{subject.id} has no sample with tensors")
    call = calls[0]
    function = _function(subject, call)
    if _fails_without(function, call):
        raise NothingToJudge(f"{subject.id} cannot be compiled from a function without the executor either")
    for mode in (torch.enable_grad, torch.no_grad):
        compiled, result = _compiled(subject, call, function, mode)
        _is_in_the_ledger(subject, call, compiled)
        _is_right(subject, call, result)
    _, lower = _compiled(subject, call, function, _autocast)
    with _autocast(), seeded():
        expected = jit(function)(*call.sample.copy().tensors)
    _has_the_types(subject, call, lower, expected)


def _autocast() -> Any:
    return torch.autocast("cpu", torch.bfloat16)


def _compiled(
    subject: Subject, call: Call, function: Callable[..., Any], mode: Callable[[], Any]
) -> tuple[Any, Any]:
    """The compiled function, and what it returns under a mode."""
    compiled = jit(function, executors=[subject.executor])
    try:
        with mode(), seeded():
            return compiled, compiled(*call.sample.copy().tensors)
    except Exception as error:
        raise subject.failure(
            "a compiled function that calls it fails",
            call,
            found={"raised": f"{type(error).__name__}: {error}"},
            hint="The executor is asked for the call as the function makes it, with the casts of autocast.",
        ) from error


def _function(subject: Subject, call: Call) -> Callable[..., Any]:
    """A function of the sample's tensors that makes the call; everything else is constant."""
    sample, kwargs = call.sample, dict(call.sample.kwargs)
    places = [i for i, a in enumerate(sample.args) if isinstance(a, torch.Tensor)]
    if len(places) != len(sample.tensors):  # tensors in lists, in keywords, or repeated
        raise NothingToJudge(f"the arguments of {subject.id} are not tensors one by one")
    constant = [None if i in places else a for i, a in enumerate(sample.args)]
    callee = subject.row.torch[0] if subject.row is not None and subject.row.torch else subject.symbol

    def function(*given: torch.Tensor) -> Any:
        args = list(constant)
        for place, x in zip(places, given):  # noqa: B905  # there are as many
            args[place] = x
        return callee(*args, **kwargs)

    return function


def _fails_without(function: Callable[..., Any], call: Call) -> bool:
    if call.subject.symbol.executor is call.subject.executor:
        return False
    try:
        jit(function)(*call.sample.copy().tensors)
    except Exception:  # whatever it is, it is not the executor's
        return True
    return False


# -- the verdict ---------------------------------------------------------------------------------------------


def _is_in_the_ledger(subject: Subject, call: Call, compiled: Any) -> None:
    if isinstance(subject.executor, FusionExecutor):
        return  # it may leave a single call to others
    ledger = explain(compiled)
    if not any(row.claimed_by == subject.executor.name for row in ledger.rows):
        raise subject.failure(
            "the ledger of a compiled function does not name the executor",
            call,
            found={"ledger": "\n" + str(ledger)},
            hint="It claims the call of the sample: thunder.explain(f) says what became of this one.",
        )


def _pairs(subject: Subject, call: Call, ours: Any, theirs: Any) -> Iterator[Any]:
    found, expected = tensors_in(ours), tensors_in(theirs)
    if len(found) != len(expected):
        raise subject.failure(
            "a compiled function that calls it gives another number of tensors",
            call,
            found={"reference": len(expected), "result": len(found)},
            hint="Return what the operator returns.",
        )
    return iter(zip(found, expected, strict=True))


def _is_right(subject: Subject, call: Call, result: Any) -> None:
    assert call.eager is not None, "the call was chosen for its reference"
    if not call.promises_values:
        return
    exact = tensors_in((call.exact or call.eager).result)
    for (x, y), z in zip(_pairs(subject, call, result, call.eager.result), exact, strict=True):
        fault = difference(x, y, z, *subject.settings.tolerance(y.dtype))
        if fault is not None:
            raise subject.failure(
                "a compiled function that calls it gives other values",
                call,
                found={"against the reference": fault},
                hint="thunder.last_traces(f)[-1] shows who computes what.",
            )


def _has_the_types(subject: Subject, call: Call, result: Any, expected: Any) -> None:
    for x, y in _pairs(subject, call, result, expected):
        if (x.shape, x.dtype) != (y.shape, y.dtype):
            raise subject.failure(
                "a compiled function that calls it under autocast gives another type than without it",
                call,
                found={"without the executor": described(y), "with it": described(x)},
                hint="The dtypes that autocast asks for are those that the arguments have.",
            )
