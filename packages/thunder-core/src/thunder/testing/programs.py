"""The case that goes all the way: a compiled function that makes a call, eagerly compared, with its
gradient.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from thunder.compiler.inspection import explain
from thunder.compiler.jit import jit
from thunder.testing.calls import Call, seeded
from thunder.testing.closeness import difference
from thunder.testing.failures import NothingToJudge, tensors_in
from thunder.testing.subjects import Subject

__all__ = ["compiled_functions_work"]


def compiled_functions_work(subject: Subject) -> None:
    """`thunder.jit(f, executors=[the executor])` gives what the reference gives, also under `torch.no_grad`
    and `torch.autocast`, and the ledger says that the executor has the call.
    """
    calls = [call for call in subject.run_calls() if call.eager is not None and call.sample.tensors]
    if not calls:
        raise NothingToJudge(f"{subject.id} has no sample with tensors and a reference")
    call = calls[0]
    function = _function(subject, call)
    if _fails_without(function, call):
        raise NothingToJudge(f"{subject.id} cannot be compiled from a function without the executor either")
    for mode in (torch.enable_grad, torch.no_grad, lambda: torch.autocast("cpu", torch.bfloat16)):
        compiled = jit(function, executors=[subject.executor])
        sample = call.sample.copy()
        try:
            with mode(), seeded():
                result = compiled(*sample.tensors)
        except Exception as error:
            raise subject.failure(
                "a compiled function that calls it fails",
                call,
                found={"raised": f"{type(error).__name__}: {error}"},
                hint="python -m thunder doctor says whether the installation is sound; the message above, "
                "what is not.",
            ) from error
        if mode in (torch.enable_grad, torch.no_grad):
            _is_right(subject, call, compiled, result)


def _function(subject: Subject, call: Call) -> Callable[..., Any]:
    """A function of the sample's tensors that makes the call; everything else is constant."""
    symbol, sample = subject.symbol, call.sample
    places = {id(x): i for i, x in enumerate(sample.tensors)}
    args = [places.get(id(a), a) if isinstance(a, torch.Tensor) else a for a in sample.args]
    kwargs = dict(sample.kwargs)
    tensors = [i for i, a in enumerate(sample.args) if isinstance(a, torch.Tensor)]
    if len(tensors) != len(sample.tensors):  # tensors in lists, in keywords, or repeated
        raise NothingToJudge(f"the arguments of {subject.id} are not tensors one by one")
    callee = subject.row.torch[0] if subject.row is not None and subject.row.torch else symbol

    def function(*given: torch.Tensor) -> Any:
        full = list(args)
        for place, x in zip(tensors, given):  # noqa: B905  # a program that thunder reads
            full[place] = x
        return callee(*full, **kwargs)

    return function


def _fails_without(function: Callable[..., Any], call: Call) -> bool:
    if call.subject.symbol.executor is call.subject.executor:
        return False
    try:
        jit(function)(*call.sample.copy().tensors)
    except Exception:  # whatever it is, it is not the executor's
        return True
    return False


def _is_right(subject: Subject, call: Call, compiled: Any, result: Any) -> None:
    assert call.eager is not None, "the call was chosen for its reference"
    name = subject.executor.name
    rows = explain(compiled).rows
    fused = any(b.claimed_by is not None for b in rows)
    if subject.symbol.executor is subject.executor and not any(row.claimed_by == name for row in rows):
        raise subject.failure(
            "the ledger of a compiled function does not name the executor",
            call,
            found={"ledger": "\n" + str(explain(compiled))},
            hint="Did another executor take over the operator's id?",
        )
    assert fused or not rows, "each call has somebody who runs it"
    if not call.promises_values:
        return
    exact = tensors_in((call.exact or call.eager).result)
    if len(tensors_in(result)) != len(exact):
        raise subject.failure(
            "a compiled function that calls it gives another number of tensors",
            call,
            found={"reference": len(exact), "result": len(tensors_in(result))},
            hint="Return what the operator returns.",
        )
    for x, y, z in zip(tensors_in(result), tensors_in(call.eager.result), exact, strict=True):
        fault = difference(x, y, z, *subject.settings.tolerance(y.dtype))
        if fault is not None:
            raise subject.failure(
                "a compiled function that calls it gives other values",
                call,
                found={"against the reference": fault},
                hint="Compare thunder.last_traces(f)[-1] with the call: another executor may have a part of "
                "it.",
            )
