"""Cases about what an executor says: that it can be asked, that it gives reasons, and that a yes holds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any
from unittest import mock

import torch

from thunder.base import dtypes
from thunder.executor_base.executor import Executor, Refusal
from thunder.executor_base.fusion_executor import FusionExecutor
from thunder.extend import assuming_device
from thunder.ir.proxies import TensorProxy
from thunder.ir.symbol import BoundSymbol
from thunder.plugins import DeviceProfile
from thunder.testing.conformance_failure import NothingToJudge, definition_of, described
from thunder.testing.sample_call import Call, Recording, lowered, record
from thunder.testing.subjects import Subject
from thunder.testing.torch_samples import database_fault

__all__ = ["checker_can_be_asked", "claims_hold", "refusals_have_reasons", "samples_are_there"]

#: a device that no machine needs to have for questions about it
ELSEWHERE = DeviceProfile(
    name="conformance",
    type="cuda",
    capability=(9, 0),
    memory_bytes=80 << 30,
    dtypes=frozenset(dtypes.all_dtypes),
)


def samples_are_there(subject: Subject) -> None:
    """There are sample calls, and the executor claims some of them."""
    if not subject.calls:
        fault = database_fault()
        raise subject.failure(
            "there is no sample call to judge it by",
            found={"torch's samples": fault} if fault is not None else None,
            hint=f"Pass samples={{{subject.id!r}: [((x, weight), {{'eps': 1e-5}}), …]}}, or give its row "
            "samples=."
            + (" pip install 'thunder-core[testing]' brings what torch's own samples need." if fault else ""),
        )
    if any(call.is_claimed for call in subject.calls):
        return
    for call in subject.calls:
        with answering() as ask:
            if any(ask(subject.executor, r.bsym) is True for r in _elsewhere(subject, call)):
                raise NothingToJudge(f"{subject.id} is claimed on a device only that is not here")
    first = subject.calls[0]
    raise subject.failure(
        "the executor claims none of its sample calls, so nothing of it is tested",
        first,
        found={"answer": first.asking_error or first.recording_error or first.answer},
        hint="Pass samples= that the checker accepts, or leave the operator out with operators=.",
    )


# -- questions -----------------------------------------------------------------------------------------------


@contextmanager
def answering() -> Iterator[Callable[[Executor, BoundSymbol], Any]]:
    """Gives a function that asks an executor, and answers with what the checker raises."""

    def ask(executor: Executor, bsym: BoundSymbol) -> Any:
        try:
            return executor.can_execute_or_fuse(bsym)
        except Exception as error:
            return error

    with assuming_device(ELSEWHERE):
        yield ask


def questions(subject: Subject) -> Iterator[tuple[str, Recording]]:
    """Calls that an executor may meet and need not take: what a sample says, and the recorded call."""
    for call in subject.calls:
        if call.recording_error is None:
            yield call.sample.name, call.recording
    for call in subject.calls[:3]:
        for suffix, recording in _unusual(subject, call):
            yield call.sample.name + suffix, recording


def _unusual(subject: Subject, call: Call) -> Iterator[tuple[str, Recording]]:
    if call.recording_error is not None:
        return
    for dtype in (torch.float16, torch.int32, torch.bool, torch.complex64):
        recording = _recorded(subject, call.sample.mapped(partial(_to, dtype)))
        if recording is not None:
            yield f", in {dtype}", recording
    inexact = [i for i, x in enumerate(call.sample.tensors) if x.is_floating_point()]
    recording = _recorded(subject, call.sample, requiring_grad=inexact)
    if recording is not None:
        yield ", requiring grad", recording
    for recording in _elsewhere(subject, call):
        yield ", on cuda", recording


def _to(dtype: torch.dtype, x: torch.Tensor) -> torch.Tensor:
    return x.to(dtype) if x.is_floating_point() else x


def _elsewhere(subject: Subject, call: Call) -> Iterator[Recording]:
    """The call on proxies that say that they are on a CUDA device."""
    if call.recording_error is None and not any(
        isinstance(x, torch.device) for x in call.recording.bsym.flat_args
    ):
        recording = _recorded(subject, call.sample, device="cuda:0")
        if recording is not None:
            yield recording


def _recorded(subject: Subject, sample: Any, **how: Any) -> Recording | None:
    """The call on proxies; None where the operator itself refuses it, and the executor is not asked."""
    try:
        recording = record(subject.symbol, sample, **how)
    except Exception:  # whichever way its author says no
        return None
    return recording if recording.bsym.sym.id == subject.id else None


def checker_can_be_asked(subject: Subject) -> None:
    """The executor answers each question, twice the same, records nothing, and asks the machine nothing."""
    checker = subject.info.checker
    where = definition_of(checker)
    for name, recording in questions(subject):
        answers = []
        for has_cuda in (False, True, False):
            with assuming_device(ELSEWHERE), _machine(has_cuda):
                answers.append(_answer(subject, name, recording, where))
        if len({(bool(a), a.code if isinstance(a, Refusal) else "") for a in answers}) > 1:
            again = answers[0] is not answers[2] and bool(answers[0]) != bool(answers[2])
            raise subject.failure(
                "its checker does not give the same answer to the same question"
                + ("" if again else " on machines with and without a CUDA device"),
                found={"call": recording.bsym, "sample": name, "answers": answers},
                where=where,
                hint="A checker decides by its arguments, and by thunder.extend.device_profile(device) for "
                "what it must know of a device.",
            )
    _has_no_memory(subject, where)


def _has_no_memory(subject: Subject, where: Any) -> None:
    """Asked in the other order, it gives the same answers."""
    asked = [(name, r) for name, r in questions(subject)]
    with assuming_device(ELSEWHERE):
        first = [bool(_answer(subject, n, r, where)) for n, r in asked]
        second = [bool(_answer(subject, n, r, where)) for n, r in reversed(asked)][::-1]
    for (name, recording), one, other in zip(asked, first, second, strict=True):
        if one != other:
            raise subject.failure(
                "its checker answers by what it was asked before",
                found={"call": recording.bsym, "sample": name, "answers": (one, other)},
                where=where,
                hint="A checker decides by its arguments alone.",
            )


@contextmanager
def _machine(has_cuda: bool) -> Iterator[None]:
    """A machine that has, or lacks, a CUDA device, as far as torch.cuda is asked for it."""
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


def _answer(subject: Subject, name: str, recording: Recording, where: Any) -> Any:
    before = len(recording.trace.bound_symbols)
    try:
        answer = subject.executor.can_execute_or_fuse(recording.bsym)
    except Exception as error:
        cause = error.__cause__ or error
        raise subject.failure(
            "its checker cannot be asked",
            found={"call": recording.bsym, "sample": name, "raised": f"{type(cause).__name__}: {cause}"},
            where=where,
            hint="A checker answers for every call of the operator, in every dtype and on every device, "
            "with True or a thunder.extend.Refusal. It sees proxies: their shape, dtype and device, and no "
            "values.",
        ) from error
    if len(recording.trace.bound_symbols) != before:
        raise subject.failure(
            "its can_execute records calls into the program",
            found={"call": recording.bsym, "sample": name},
            where=where,
            hint="An executor that answers for itself reads the call, and computes nothing with it.",
        )
    return answer


def refusals_have_reasons(subject: Subject) -> None:
    """Each refusal of the executor's own has a code and a message that people can use."""
    where = definition_of(subject.info.checker)
    for name, recording in questions(subject):
        with answering() as ask:
            answer = ask(subject.executor, recording.bsym)
        if answer is True or isinstance(answer, Exception):
            continue  # what it raises is another case's business
        fault = _fault_of(answer)
        if fault is not None:
            raise subject.failure(
                f"it declines a call {fault}",
                found={"call": recording.bsym, "sample": name, "answer": repr(answer)},
                where=where,
                hint='Return thunder.extend.Refusal("dtype", "norm kernels exist for float32 and bfloat16, '
                'and this is float64", found=x.dtype): a short code for programs, a sentence for the user '
                "who asks why not.",
            )


def _fault_of(answer: Any) -> str | None:
    if not isinstance(answer, Refusal):
        return f"with {answer!r}, which gives no reason"
    if answer.code == "checker" and answer.message.endswith(" returned False"):
        return "with a bare False, which gives no reason"
    if not isinstance(answer.code, str) or not answer.code.strip() or " " in answer.code.strip():
        return "with a reason whose code is not one short word"
    if not isinstance(answer.message, str) or len(answer.message.split()) < 2:
        return "with a reason whose message is no sentence"
    return None


# -- claims --------------------------------------------------------------------------------------------------


def claims_hold(subject: Subject) -> None:
    """What the executor claims it can make a program of, and the program runs."""
    for call in subject.calls:
        if not call.is_claimed:
            continue
        if call.lowering_error is not None:
            raise subject.failure(
                "it claims a call, and no program can be made of it",
                call,
                found={"raised": _text(call.lowering_error)},
                hint="Let the checker refuse what the implementation cannot do. An execution transform "
                "returns what the operator returns: the same structure, shapes, dtypes and devices.",
            ) from call.lowering_error
        _is_placed(subject, call)
        if call.running_error is not None:
            raise subject.failure(
                "it claims a call, and fails when the call runs",
                call,
                found={"raised": _text(call.running_error), "program": "\n" + call.program.trace.python()},
                hint="Let the checker refuse what the implementation cannot do, with the reason.",
            ) from call.running_error
    for call in subject.calls[:3]:
        _claims_hold_elsewhere(subject, call)


def _is_placed(subject: Subject, call: Call) -> None:
    """The executor that said yes has the call in the program."""
    if isinstance(subject.executor, FusionExecutor):
        return  # it may take a call into no region
    placed = {p.claimed_by for p in call.program.placements}
    if subject.executor.name not in placed:
        raise subject.failure(
            "it claims a call, and has nothing that runs it",
            call,
            found={"has it": ", ".join(sorted(str(p) for p in placed))},
            hint="can_execute answers True only where implmap has an operator or an execution transform "
            "for the call.",
        )


def _claims_hold_elsewhere(subject: Subject, call: Call) -> None:
    """Programs for a device that is not here can be made, and their values are on that device."""
    for recording in _elsewhere(subject, call):
        inputs = recording.bsym.flat_proxy_args
        wrong = [
            p
            for p in recording.bsym.flat_proxy_outs
            if isinstance(p, TensorProxy) and p.device.type != "cuda"
        ]
        if inputs and wrong and subject.executor is subject.symbol.executor:
            raise subject.failure(
                "its meta function puts results on another device than the arguments are on",
                call,
                found={"arguments": described(tuple(inputs)), "results": described(tuple(wrong))},
                where=definition_of(subject.symbol.meta),
                hint="Take the device from an argument: TensorProxy(like=x), or device=x.device.",
            )
        with assuming_device(ELSEWHERE), answering() as ask:
            transform = subject.executor.get_execution_transform(recording.bsym)
            if transform is None or ask(subject.executor, recording.bsym) is not True:
                continue
            try:
                lowered(recording.trace, subject.executor)
            except Exception as error:
                raise subject.failure(
                    "it claims a call on another device, and no program can be made of it",
                    call,
                    found={"call": recording.bsym, "raised": _text(error)},
                    hint="An execution transform makes its tensors on the device of the arguments.",
                ) from error


def _text(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"
