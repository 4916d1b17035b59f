"""Checks of an executor's checkers: they decide, they give reasons, and what they claim runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any
from unittest import mock

import torch

from thunder.core import dtypes
from thunder.core.proxies import TensorProxy
from thunder.core.symbol import BoundSymbol
from thunder.extend import Executor, FusionExecutor, Refusal, assuming_device
from thunder.plugins import DeviceProfile
from thunder_testing.conformance_failure import NothingToTest, definition_of, described, error_text
from thunder_testing.row_samples import NOT_OPERATORS
from thunder_testing.sample_call import SampleCall
from thunder_testing.sample_lowering import TracedCall, lowered, trace_call
from thunder_testing.subjects import Subject
from thunder_testing.torch_samples import database_fault

__all__ = ["check_checker", "check_claims", "check_refusals", "check_samples"]

#: the profile of the CUDA device for which checkers are called; it need not be present
ASSUMED_DEVICE = DeviceProfile(
    name="conformance",
    type="cuda",
    capability=(9, 0),
    memory_bytes=80 << 30,
    dtypes=frozenset(dtypes.all_dtypes),
)


def check_samples(subject: Subject) -> None:
    """Check that there are sample calls, and that the executor claims some of them."""
    if subject.id in NOT_OPERATORS:
        raise NothingToTest(f"{subject.id} is not tested: {NOT_OPERATORS[subject.id]}")
    if subject.returns_arguments:
        raise NothingToTest(f"a call of {subject.id} returns an argument, and no executor gets it")
    if not subject.calls:
        fault = database_fault()
        raise subject.failure(
            "it is not tested, since there are no sample calls: give samples=",
            found={"torch's samples": fault} if fault is not None else None,
            hint=f"Pass samples={{{subject.id!r}: [((x, weight), {{'eps': 1e-5}}), …]}}, or give its row "
            "samples=."
            + (" pip install --upgrade thunder-testing installs what torch's samples need." if fault else ""),
        )
    if any(call.is_claimed for call in subject.calls):
        return
    for call in subject.calls:
        with verdicts() as verdict:
            if any(verdict(subject.executor, r.bsym) is True for r in _on_cuda(subject, call)):
                raise NothingToTest(f"{subject.id} is claimed only on a device that is not present")
    first = subject.calls[0]
    raise subject.failure(
        "the executor claims none of its sample calls, so the operator is not tested",
        first,
        found={"answer": first.checker_error or first.tracing_error or first.answer},
        hint="Pass samples= that the checker accepts, or leave the operator out with operators=.",
    )


# -- calls for checkers --------------------------------------------------------------------------------------


@contextmanager
def verdicts() -> Iterator[Callable[[Executor, BoundSymbol], Any]]:
    """Provide a function that returns an executor's answer to a call, or the exception of its checker."""

    def verdict(executor: Executor, bsym: BoundSymbol) -> Any:
        try:
            return executor.can_execute_or_fuse(bsym)
        except Exception as error:
            return error

    with assuming_device(ASSUMED_DEVICE):
        yield verdict


def calls_to_check(subject: Subject) -> Iterator[tuple[str, TracedCall]]:
    """Yield calls that an executor may get and need not claim: the sample's name, and the traced call."""
    for call in subject.calls:
        if call.tracing_error is None:
            yield call.sample.title, call.traced
    for call in subject.calls[:3]:
        for suffix, traced in _unusual(subject, call):
            yield call.sample.title + suffix, traced


def _unusual(subject: Subject, call: SampleCall) -> Iterator[tuple[str, TracedCall]]:
    if call.tracing_error is not None:
        return
    for dtype in (torch.float16, torch.int32, torch.bool, torch.complex64):
        traced = _traced(subject, call.sample.mapped(partial(_to, dtype)))
        if traced is not None:
            yield f", in {dtype}", traced
    inexact = [i for i, x in enumerate(call.sample.tensors) if x.is_floating_point()]
    traced = _traced(subject, call.sample, requiring_grad=inexact)
    if traced is not None:
        yield ", requiring grad", traced
    for traced in _on_cuda(subject, call):
        yield ", on cuda", traced


def _to(dtype: torch.dtype, x: torch.Tensor) -> torch.Tensor:
    return x.to(dtype) if x.is_floating_point() else x


def _on_cuda(subject: Subject, call: SampleCall) -> Iterator[TracedCall]:
    """Yield the call on proxies whose device is a CUDA device."""
    if call.tracing_error is None and not any(
        isinstance(x, torch.device) for x in call.traced.bsym.flat_args
    ):
        traced = _traced(subject, call.sample, device="cuda:0")
        if traced is not None:
            yield traced


def _traced(subject: Subject, sample: Any, **how: Any) -> TracedCall | None:
    """Return the call on proxies, or None if the operator itself refuses it, before any executor."""
    try:
        traced = trace_call(subject.symbol, sample, **how)
    except Exception:  # a meta function may refuse with any exception
        return None
    return traced if traced.bsym.sym.id == subject.id else None


def check_checker(subject: Subject) -> None:
    """Check that a checker decides every call, always alike, and depends only on the call."""
    checker = subject.info.checker
    where = definition_of(checker)
    calls = list(calls_to_check(subject))
    by_machine = []
    for has_cuda in (False, True, False):
        with assuming_device(ASSUMED_DEVICE), _machine(has_cuda):
            by_machine.append([_answer(subject, name, traced, where) for name, traced in calls])
    for (name, traced), *answers in zip(calls, *by_machine, strict=True):
        if len({(bool(a), a.code if isinstance(a, Refusal) else "") for a in answers}) > 1:
            again = answers[0] is not answers[2] and bool(answers[0]) != bool(answers[2])
            raise subject.failure(
                "its checker does not give the same answer for the same call"
                + ("" if again else " on machines with and without a CUDA device"),
                found={"call": traced.bsym, "sample": name, "answers": answers},
                where=where,
                hint="A checker decides by its arguments, and by thunder.extend.device_profile(device) for "
                "the properties of a device.",
            )
    _check_order_independence(subject, calls, where)


def _check_order_independence(subject: Subject, calls: list[tuple[str, TracedCall]], where: Any) -> None:
    """Check that a checker gives the same answers if it gets the calls in the reverse order."""
    with assuming_device(ASSUMED_DEVICE):
        first = [bool(_answer(subject, n, r, where)) for n, r in calls]
        second = [bool(_answer(subject, n, r, where)) for n, r in reversed(calls)][::-1]
    for (name, traced), one, other in zip(calls, first, second, strict=True):
        if one != other:
            raise subject.failure(
                "its checker's answer depends on earlier calls of it",
                found={"call": traced.bsym, "sample": name, "answers": (one, other)},
                where=where,
                hint="A checker decides by its arguments alone.",
            )


@contextmanager
def _machine(has_cuda: bool) -> Iterator[None]:
    """Let the queries of torch.cuda report a CUDA device, or none."""
    answers: dict[str, Any] = {
        "is_available": has_cuda,
        "device_count": int(has_cuda),
        "get_device_capability": (9, 0) if has_cuda else (0, 0),
        "current_device": 0,
        "is_bf16_supported": has_cuda,
        "get_device_name": "conformance" if has_cuda else "",
    }
    with ExitStack() as patches:
        for name, answer in answers.items():
            patches.enter_context(mock.patch.object(torch.cuda, name, return_value=answer))
        yield


def _answer(subject: Subject, name: str, traced: TracedCall, where: Any) -> Any:
    before = len(traced.trace.bound_symbols)
    try:
        answer = subject.executor.can_execute_or_fuse(traced.bsym)
    except Exception as error:
        cause = error.__cause__ or error
        raise subject.failure(
            "its checker raises",
            found={"call": traced.bsym, "sample": name, "raised": error_text(cause)},
            where=where,
            hint="A checker decides every call of the operator, in every dtype and on every device, and "
            "returns True or a thunder.extend.Refusal. It gets proxies, which have shape, dtype and device, "
            "and no values.",
        ) from error
    if len(traced.trace.bound_symbols) != before:
        raise subject.failure(
            "its can_execute records calls into the program",
            found={"call": traced.bsym, "sample": name},
            where=where,
            hint="can_execute reads the call, and calls no operator.",
        )
    return answer


def check_refusals(subject: Subject) -> None:
    """Check that each refusal has a code and a message."""
    where = definition_of(subject.info.checker)
    for name, traced in calls_to_check(subject):
        with verdicts() as verdict:
            answer = verdict(subject.executor, traced.bsym)
        if answer is True or isinstance(answer, Exception):
            continue  # check_checker reports exceptions
        fault = _fault_of(answer)
        if fault is not None:
            raise subject.failure(
                f"it refuses a call {fault}",
                found={"call": traced.bsym, "sample": name, "answer": repr(answer)},
                where=where,
                hint='Return thunder.extend.Refusal("dtype", "norm kernels exist for float32 and bfloat16, '
                'and this is float64", found=x.dtype): a short code for programs, a sentence for users.',
            )


def _fault_of(answer: Any) -> str | None:
    if not isinstance(answer, Refusal):
        return f"with {answer!r}, which has no reason"
    if answer.code == "checker" and answer.message.endswith(" returned False"):
        return "with a bare False, which has no reason"
    if not isinstance(answer.code, str) or not answer.code.strip() or " " in answer.code.strip():
        return "with a reason whose code is not one short word"
    if not isinstance(answer.message, str) or len(answer.message.split()) < 2:
        return "with a reason whose message is not a sentence"
    return None


# -- claims --------------------------------------------------------------------------------------------------


def check_claims(subject: Subject) -> None:
    """Check that each claimed call becomes a program, and that the program runs."""
    for call in subject.calls:
        if not call.is_claimed:
            continue
        if call.lowering_error is not None:
            raise subject.failure(
                "it claims a call that cannot be compiled",
                call,
                found={"raised": error_text(call.lowering_error)},
                hint="Let the checker refuse what the implementation cannot do. An execution transform "
                "returns what the operator returns: the same structure, shapes, dtypes and devices.",
            ) from call.lowering_error
        _check_placement(subject, call)
        if call.running_error is not None:
            raise subject.failure(
                "it claims a call that fails when it runs",
                call,
                found={
                    "raised": error_text(call.running_error),
                    "program": "\n" + call.program.trace.python(),
                },
                hint="Let the checker refuse what the implementation cannot do, with the reason.",
            ) from call.running_error
    for call in subject.calls[:3]:
        _check_claims_on_cuda(subject, call)


def _check_placement(subject: Subject, call: SampleCall) -> None:
    """Check that the executor that claims the call runs it in the program."""
    if isinstance(subject.executor, FusionExecutor):
        return  # it may fuse a call or leave it
    placements, executor = call.program.placements, subject.executor.name
    placed = {p.claimed_by for p in placements}
    if executor not in placed:
        refusals = [str(refusal) for p in placements for name, refusal in p.refusals if name == executor]
        raise subject.failure(
            "it claims a call that it does not run",
            call,
            found={
                "run by": ", ".join(sorted(str(p) for p in placed)),
                "refused": "; ".join(refusals) or None,
            },
            hint="can_execute returns True only if implmap has an operator or an execution transform for "
            "the call, and a view of the argument is what it returns where the operator does.",
        )


def _check_claims_on_cuda(subject: Subject, call: SampleCall) -> None:
    """Check that a claimed call compiles for a CUDA device, and that its results are on that device."""
    for traced in _on_cuda(subject, call):
        inputs = traced.bsym.flat_proxy_args
        wrong = [
            p for p in traced.bsym.flat_proxy_outs if isinstance(p, TensorProxy) and p.device.type != "cuda"
        ]
        if inputs and wrong and subject.executor is subject.symbol.executor:
            raise subject.failure(
                "its meta function puts results on another device than its arguments",
                call,
                found={"arguments": described(tuple(inputs)), "results": described(tuple(wrong))},
                where=definition_of(subject.symbol.meta),
                hint="Take the device from an argument: TensorProxy(like=x), or device=x.device.",
            )
        with assuming_device(ASSUMED_DEVICE), verdicts() as verdict:
            transform = subject.executor.get_execution_transform(traced.bsym)
            if transform is None or verdict(subject.executor, traced.bsym) is not True:
                continue
            try:
                lowered(traced.trace, subject.executor)
            except Exception as error:
                raise subject.failure(
                    "it claims a call on another device that cannot be compiled",
                    call,
                    found={"call": traced.bsym, "raised": error_text(error)},
                    hint="An execution transform makes its tensors on the device of the arguments.",
                ) from error
