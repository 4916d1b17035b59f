"""Cases about what is around a call: torch's modes and state, memory, other threads."""

from __future__ import annotations

import gc
import warnings
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch

from thunder.testing.conformance_failure import described, tensors_in
from thunder.testing.global_state import changed, restored
from thunder.testing.interleaving import interleaved
from thunder.testing.sample_call import Call, Outcome, lowered, record, seeded
from thunder.testing.samples import other_values
from thunder.testing.subjects import Subject
from thunder.testing.tolerances import same_bits

__all__ = ["memory_is_released", "modes_change_nothing", "state_is_left_alone", "threads_do_not_meet"]


def state_is_left_alone(subject: Subject) -> None:
    """Neither compiling a call nor running it leaves torch, Python or the process changed."""
    with restored():
        calls = subject.run_calls()[:4]  # for the first time, perhaps, and with what that leaves changed
    for call in calls:
        steps = (
            ("writing the program", partial(_program, call)),
            ("running it", partial(_run_bare, call)),
        )
        for what, step in steps:
            with torch.no_grad(), restored() as before:
                generator = torch.get_rng_state()
                step()
                found = changed(before)
                drew = not torch.equal(generator, torch.get_rng_state())
                torch.set_rng_state(generator)
            if drew and not call.is_random:
                found.append("torch's random numbers")
            if found:
                raise subject.failure(
                    f"{what} leaves {' and '.join(found)} changed",
                    call,
                    hint="Restore what you change, with a context manager or in a finally. An operator "
                    "that draws random numbers says so: tags=(thunder.core.tags.OpTags.RANDOM_OP,).",
                )


def _run_bare(call: Call) -> Any:
    return call.program.bare(*call.sample.copy().tensors)


def _program(call: Call) -> Any:
    recording = record(call.subject.symbol, call.sample)
    call.subject.executor.can_execute_or_fuse(recording.bsym)
    return lowered(recording.trace, call.subject.executor)


@contextmanager
def _deterministic() -> Iterator[None]:
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before)


#: name → the mode, under which a call is recorded, claimed and run once more
MODES: dict[str, Callable[[], Any]] = {
    "torch.no_grad()": torch.no_grad,
    "torch.enable_grad()": torch.enable_grad,
    "torch.inference_mode()": torch.inference_mode,
    'torch.autocast("cpu", torch.bfloat16)': lambda: torch.autocast("cpu", torch.bfloat16),
    "torch.use_deterministic_algorithms(True)": _deterministic,
}


def modes_change_nothing(subject: Subject) -> None:
    """Under torch's modes a call is claimed, has the same type, and gives the same values: where a mode has a
    meaning, its casts stand in the program before executors are asked.
    """
    for call in subject.run_calls()[:3]:
        plain = call.run()
        for name, mode in MODES.items():
            other, again = _again_under(mode, call, name)
            said, found = _types(call), _types(other)
            if said != found:
                raise _under(subject, call, name, {"types without": said, "types with": found})
            first, second = tensors_in(plain.result), tensors_in(again.result)
            same = len(first) == len(second) and all(map(same_bits, first, second))
            if call.promises_values and not same:
                raise _under(subject, call, name, {"without": first, "with": second})


def _again_under(mode: Callable[[], Any], call: Call, name: str) -> tuple[Call, Outcome]:
    """The call anew under a mode, and a run of it."""
    other = Call(call.subject, call.sample)
    try:
        with mode(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if other.is_claimed:
                return other, other.run()
    except Exception as error:
        raise _under(call.subject, call, name, {"raised": f"{type(error).__name__}: {error}"}) from error
    answer = other.recording_error or other.asking_error or other.answer
    raise _under(call.subject, call, name, {"answer": answer})


def _types(call: Call) -> list[str]:
    return [described(p) for p in call.recording.bsym.flat_proxy_outs]


def _under(subject: Subject, call: Call, mode: str, found: dict[str, object]) -> Exception:
    return subject.failure(
        f"it does something else under {mode}",
        call,
        found=found,
        hint="Decide by the arguments. The dtypes that autocast asks for are those that the arguments have.",
    )


def memory_is_released(subject: Subject) -> None:
    """When a run is over, nothing holds its arguments and results but those who called it."""
    for call in subject.run_calls()[:3]:
        references = _references(call)
        if any(ref() is not None for _, ref in references):
            gc.collect()  # a cycle may hold them
        held = [what for what, ref in references if ref() is not None]
        if held:
            raise subject.failure(
                "it keeps tensors of a run that is over",
                call,
                found={"kept": ", ".join(held)},
                hint="Keep no arguments and results in globals, closures, caches or on the executor: their "
                "memory is only free when the last reference is gone.",
            )


def _references(call: Call) -> list[tuple[str, weakref.ref[torch.Tensor]]]:
    """Weak references to the tensors of one run more."""
    outcome = call.run()
    tensors = [(f"argument {i}", x) for i, x in enumerate(outcome.given)]
    tensors += [(f"result {i}", x) for i, x in enumerate(tensors_in(outcome.result))]
    return [(what, weakref.ref(x)) for what, x in tensors]


def threads_do_not_meet(subject: Subject) -> None:
    """A run that another thread's run interrupts between any two lines gives what it gives alone."""
    calls = subject.exact_calls()
    call = max(calls[:4], key=lambda c: sum(x.numel() for x in c.sample.tensors))
    other = Call(subject, other_values(call.sample))
    if not other.is_run:
        other = calls[-1]
    mine, others = call.program.run, other.program.run
    alone, alone_other = tensors_in(call.run().result), tensors_in(other.run().result)
    with seeded():
        results = interleaved(
            lambda: mine(*call.sample.copy().tensors), lambda: others(*other.sample.copy().tensors)
        )
    judged = [(alone, r, call) for r in results.mine] + [(alone_other, r, other) for r in results.others]
    for expected, found, which in judged:
        if isinstance(found, Exception):
            raise _met(subject, which, {"raised": f"{type(found).__name__}: {found}"}) from found
        got = tensors_in(found)
        if len(got) != len(expected) or not all(map(same_bits, got, expected)):
            raise _met(subject, which, {"alone": expected, "interrupted": got})


def _met(subject: Subject, call: Call, found: dict[str, object]) -> Exception:
    return subject.failure(
        "two threads that run it disturb each other",
        call,
        found=found,
        hint="Keep no scratch memory and no settings in globals or on the executor: allocate them in each "
        "call, or keep them in threading.local().",
    )
