"""The check of training: a compiled function whose arguments require grad, and its backward."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from thunder import jit
from thunder.core.errors import MissingGradient
from thunder_testing.conformance_failure import NothingToTest, error_text, tensors_in
from thunder_testing.gradient_cases import (
    GradientCase,
    compare_gradients,
    expected_gradients,
    floating_tensors,
    is_finite,
)
from thunder_testing.sample_lowering import seeded
from thunder_testing.subjects import Subject

__all__ = ["check_training"]

#: how many calls are differentiated
MAX_CALLS = 3


def check_training(subject: Subject) -> None:
    """Check gradients of a compiled function against torch's, of all and of single arguments.

    The forward and the backward are compiled with the executor; arguments that require no grad stay as they
    are.
    """
    subject.calls_with_reference()
    checked = 0
    for call in subject.small_calls():
        floating = floating_tensors(call)
        if not floating or not call.promises_values or not is_finite(call):
            continue
        cases = [GradientCase(call, floating)]
        if checked == 0 and len(floating) > 1:
            cases += [GradientCase(call, (i,)) for i in floating]
        if any([_check_case(subject, case) for case in cases]):
            checked += 1
        if checked == MAX_CALLS:
            break
    if not checked:
        raise NothingToTest(f"no sample of {subject.id} can be differentiated in a compiled function")


def _check_case(subject: Subject, case: GradientCase) -> bool:
    """Check one case; return False if torch or thunder has no gradient of it."""
    expected = expected_gradients(case)
    if expected is None:
        return False
    compiled = jit(case.call.function(), executors=[subject.executor])
    inputs = case.call.sample.copy().tensors
    for i in case.requiring_grad:
        inputs[i].requires_grad_()
    try:
        with seeded(), torch.enable_grad():
            results = [x for x in tensors_in(compiled(*inputs)) if x.requires_grad]
    except MissingGradient:
        return False
    except Exception as error:
        if _fails_without(case.call.function(), case):
            return False
        raise _failure(case, "a compiled function whose arguments require grad fails", error) from error
    results = [x for x in {id(x): x for x in results}.values() if not any(x is y for y in inputs)]
    if len(results) != len(expected.cotangents):
        raise case.failure(
            "other results of a compiled function require grad than those of the reference",
            {"reference": len(expected.cotangents), "compiled": len(results)},
            "The meta function marks a result without gradient: TensorProxy(…, requires_grad=False).",
        )
    wanted = [inputs[i] for i in case.requiring_grad]
    try:
        gradients = torch.autograd.grad(results, wanted, list(expected.cotangents), allow_unused=True)
    except MissingGradient:
        return False
    except Exception as error:
        raise _failure(case, "the backward of a compiled function fails", error) from error
    compare_gradients(case, dict(zip(case.requiring_grad, gradients, strict=True)), expected)
    return True


def _fails_without(function: Callable[..., Any], case: GradientCase) -> bool:
    if case.subject.symbol.executor is case.subject.executor:
        return False
    inputs = case.call.sample.copy().tensors
    for i in case.requiring_grad:
        inputs[i].requires_grad_()
    try:
        jit(function)(*inputs)
    except Exception:  # an error that is not the executor's
        return True
    return False


def _failure(case: GradientCase, what: str, error: Exception) -> Exception:
    return case.failure(
        what,
        {"raised": error_text(error)},
        "A kernel gets tensors in every layout; a cotangent may be expanded, with strides of 0.",
    )
