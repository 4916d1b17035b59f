"""Checks that a call neither changes nor depends on global state: modes, memory, other threads."""

from __future__ import annotations

import gc
import warnings
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch

from thunder.core.pytree import tree_iter
from thunder_testing.conformance_failure import NothingToTest, described, error_text, tensors_in
from thunder_testing.global_state import changed, restored
from thunder_testing.interleaving import interleaved
from thunder_testing.memory_growth import bytes_per_run
from thunder_testing.sample_call import Outcome, SampleCall
from thunder_testing.sample_lowering import seeded
from thunder_testing.samples import other_values
from thunder_testing.subjects import Subject
from thunder_testing.tolerances import same_bits

__all__ = ["check_modes", "check_releases", "check_state", "check_threads"]


def check_state(subject: Subject) -> None:
    """Check that neither compiling nor running a call changes the state of torch, Python or the process."""
    with restored():
        calls = subject.small_calls()[:4]  # the first compile and run may change state once
    for call in calls:
        steps = (
            ("writing the program", call.compile_again),
            ("running it", partial(_run_bare, call)),
        )
        for what, step in steps:
            with torch.no_grad(), restored() as before:
                generator = torch.get_rng_state()
                step()
                names = changed(before)
                drew = not torch.equal(generator, torch.get_rng_state())
                torch.set_rng_state(generator)
            if drew and not call.is_random:
                names.append("torch's random numbers")
            if names:
                raise subject.failure(
                    f"{what} leaves {' and '.join(names)} changed",
                    call,
                    hint="Restore what you change, with a context manager or in a finally. An operator "
                    "that draws random numbers is tagged: tags=(thunder.core.tags.OpTags.RANDOM_OP,).",
                )


def _run_bare(call: SampleCall) -> Any:
    return call.program.bare(*call.sample.copy().tensors)


@contextmanager
def _deterministic() -> Iterator[None]:
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before)


#: name → the mode, under which a call is traced, claimed and run again
MODES: dict[str, Callable[[], Any]] = {
    "torch.no_grad()": torch.no_grad,
    "torch.enable_grad()": torch.enable_grad,
    "torch.inference_mode()": torch.inference_mode,
    'torch.autocast("cpu", torch.bfloat16)': lambda: torch.autocast("cpu", torch.bfloat16),
    "torch.use_deterministic_algorithms(True)": _deterministic,
}


def check_modes(subject: Subject) -> None:
    """Check that under torch's modes a call is claimed, and has results of the same types and values.

    The casts of autocast are in the program before executors claim calls.
    """
    for call in subject.small_calls()[:3]:
        plain = call.run()
        for name, mode in MODES.items():
            other, again = _rerun_under(mode, call, name)
            types, types_under = _types(call), _types(other)
            if types != types_under:
                raise _under(subject, call, name, {"types without": types, "types with": types_under})
            first, second = tensors_in(plain.result), tensors_in(again.result)
            same = len(first) == len(second) and all(map(same_bits, first, second))
            if call.promises_values and not same:
                raise _under(subject, call, name, {"without": first, "with": second})


def _rerun_under(mode: Callable[[], Any], call: SampleCall, name: str) -> tuple[SampleCall, Outcome]:
    """Trace, claim and run the call under a mode."""
    other = call.like(call.sample)
    try:
        with mode(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if other.is_claimed:
                return other, other.run()
    except Exception as error:
        raise _under(call.subject, call, name, {"raised": error_text(error)}) from error
    answer = other.tracing_error or other.checker_error or other.answer
    raise _under(call.subject, call, name, {"answer": answer})


def _types(call: SampleCall) -> list[str]:
    return [described(p) for p in tree_iter(call.traced.trace.output)]


def _under(subject: Subject, call: SampleCall, mode: str, found: dict[str, object]) -> Exception:
    return subject.failure(
        f"its results differ under {mode}",
        call,
        found=found,
        hint="Decide by the arguments: they already have the dtypes to which autocast casts.",
    )


def check_releases(subject: Subject) -> None:
    """Check that after a run only its caller holds references to the arguments and results."""
    for call in subject.small_calls()[:3]:
        references = _references(call)
        if any(ref() is not None for _, ref in references):
            gc.collect()  # a cycle may hold them
        held = [what for what, ref in references if ref() is not None]
        if held:
            raise subject.failure(
                "it keeps tensors after a run",
                call,
                found={"kept": ", ".join(held)},
                hint="Keep no arguments and results in globals, closures, caches or on the executor: their "
                "memory is freed with the last reference.",
            )
    for call in subject.small_calls()[:1]:
        _check_growth(subject, call)


def _check_growth(subject: Subject, call: SampleCall) -> None:
    """Check that repeated runs of a call do not need more and more memory."""
    program = call.program.bare
    with torch.no_grad(), seeded():
        growth = bytes_per_run(lambda: call.sample.copy().tensors, lambda given: program(*given))
    if growth:
        raise subject.failure(
            "its memory grows with each run",
            call,
            found={"bytes of Python's memory that each run leaves behind": growth},
            hint="Keep nothing that a later run does not replace: bound a cache, and let no key be an "
            "address or an id.",
        )


def _references(call: SampleCall) -> list[tuple[str, weakref.ref[torch.Tensor]]]:
    """Return weak references to the tensors of another run."""
    outcome = call.run()
    tensors = [(f"argument {i}", x) for i, x in enumerate(outcome.given)]
    tensors += [(f"result {i}", x) for i, x in enumerate(tensors_in(outcome.result))]
    return [(what, weakref.ref(x)) for what, x in tensors]


def check_threads(subject: Subject) -> None:
    """Check that a run has the same results if another thread's run interrupts it between any two lines."""
    calls = [call for call in subject.small_calls() if call.promises_values]
    if not calls:
        raise NothingToTest(f"the results of {subject.id} are random or uninitialised")
    call = max(calls[:4], key=lambda c: sum(x.numel() for x in c.sample.tensors))
    other = call.like(other_values(call.sample))
    run = call.program.run  # one program: what it keeps from call to call is that of both threads
    alone, alone_other = _cloned(call.run()), _cloned(other.run(run))
    with seeded():
        results = interleaved(
            lambda: run(*call.sample.copy().tensors), lambda: run(*other.sample.copy().tensors)
        )
    judged = [(alone, r, call) for r in results.mine] + [(alone_other, r, other) for r in results.others]
    for expected, result, which in judged:
        if isinstance(result, Exception):
            raise _disturbed(subject, which, {"raised": error_text(result)}) from result
        tensors = tensors_in(result)
        if len(tensors) != len(expected) or not all(map(same_bits, tensors, expected)):
            raise _disturbed(subject, which, {"alone": expected, "interrupted": tensors})


def _cloned(outcome: Outcome) -> list[torch.Tensor]:
    """Return copies of a result, which a later run may overwrite."""
    return [x.clone() for x in tensors_in(outcome.result)]


def _disturbed(subject: Subject, call: SampleCall, found: dict[str, object]) -> Exception:
    return subject.failure(
        "two threads that run it disturb each other",
        call,
        found=found,
        hint="Keep no scratch memory and no settings in globals or on the executor: allocate them in each "
        "call, or keep them in threading.local().",
    )
