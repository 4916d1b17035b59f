"""The check that a call which runs out of memory fails as in eager, and leaves nothing behind."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from thunder_testing.comparison import compare_inputs, value_difference
from thunder_testing.conformance_failure import NothingToTest, error_text, tensors_in
from thunder_testing.global_state import changed, restored
from thunder_testing.sample_call import Outcome, SampleCall
from thunder_testing.sample_lowering import seeded
from thunder_testing.subjects import Subject
from thunder_testing.tolerances import same_bits

__all__ = ["check_failures"]

#: at how many of the operators of torch that a call runs it fails, once at each
MAX_FAILURES = 8

MESSAGE = "out of memory: tried to allocate 1.00 GiB (an error that the test raises)"


class _OutOfMemory(TorchDispatchMode):
    """Raises torch's error of memory in place of one call of an operator of torch; counts the calls."""

    def __init__(self, fails_at: int | None) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.count, self.fails_at = 0, fails_at

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        number, self.count = self.count, self.count + 1
        if number == self.fails_at:
            raise torch.OutOfMemoryError(MESSAGE)
        return func(*args, **(kwargs or {}))


def check_failures(subject: Subject) -> None:
    """Check a call in which torch runs out of memory, at each operator of torch that the call runs.

    It raises that error, or has the right result by other means; it leaves arguments and global state
    unchanged, holds no tensors, and the next call has the same result as before.
    """
    calls = [call for call in subject.small_calls() if call.promises_values][:2]
    tested = 0
    for call in calls:
        first = [x.clone() for x in tensors_in(call.run(call.program.bare).result)]
        with torch.no_grad(), _OutOfMemory(None) as counter:
            call.run(call.program.bare)
        for number in range(min(_of_kernel(call, counter.count), MAX_FAILURES)):
            tested += 1
            _check_failure(subject, call, number)
        again = tensors_in(call.run(call.program.bare).result)
        if len(first) != len(again) or not all(map(same_bits, first, again)):
            raise subject.failure(
                "it returns another result after a call that ran out of memory",
                call,
                found={"before": first, "afterwards": again},
                hint="Change what is kept from call to call when the result is complete, or restore it in a "
                "finally.",
            )
    if not tested:
        raise NothingToTest(f"{subject.id} calls no operator of torch that could run out of memory")


def _of_kernel(call: SampleCall, count: int) -> int:
    """Return how many operators the call itself runs: copying its arguments runs some too."""
    return count - _copies(call)


def _copies(call: SampleCall) -> int:
    with torch.no_grad(), _OutOfMemory(None) as counter, seeded():
        given = call.sample.copy().tensors
        Outcome.of(lambda: None, given)
    return int(counter.count)


def _check_failure(subject: Subject, call: SampleCall, number: int) -> None:
    given = call.sample.copy().tensors
    error: BaseException | None = None
    result: Any = None
    with torch.no_grad(), restored() as before:

        def run() -> Any:
            with _OutOfMemory(number):
                return call.program.bare(*given)

        try:
            with seeded():
                outcome = Outcome.of(run, given)
            result = outcome.result
        except Exception as raised:
            error = raised
        names = changed(before)
    place: dict[str, object] = {
        "failed": f"operator {number} of torch that the call runs raised torch.OutOfMemoryError"
    }
    if names:
        raise subject.failure(
            f"a call that runs out of memory leaves {' and '.join(names)} changed",
            call,
            found=place,
            hint="Restore what you change, with a context manager or in a finally.",
        )
    if error is None:
        difference = value_difference(call, result) if call.eager is not None else None
        if difference is not None:
            raise subject.failure(
                "a call that runs out of memory returns a wrong result",
                call,
                found={**place, **difference.found},
                hint="Let the exception pass, or compute the result by other means.",
            )
        return
    if not isinstance(error, torch.OutOfMemoryError):
        raise subject.failure(
            "a call that runs out of memory raises another error",
            call,
            found={**place, "raised": error_text(error)},
            hint="Let the exception pass: programs catch torch.OutOfMemoryError to take a smaller batch.",
        ) from error
    _check_unchanged(subject, call, given, place)
    _check_released(subject, call, error, given, place)


def _check_unchanged(
    subject: Subject, call: SampleCall, given: list[torch.Tensor], place: dict[str, object]
) -> None:
    originals = call.sample.copy().tensors
    outcome = Outcome.of(lambda: None, originals)
    failed = Outcome(given, outcome.before, None, [x._version for x in given])
    for difference in compare_inputs(call, failed):
        raise subject.failure(
            "a call that runs out of memory leaves an argument changed",
            call,
            found={**place, **difference.found},
            hint="Write to fresh memory.",
        )


def _forget_frames(error: BaseException | None) -> None:
    """Release the frames of an error, and of those that were handled when it was raised."""
    while error is not None:
        error.__traceback__ = None
        _forget_frames(error.__cause__)
        error = error.__context__


def _check_released(
    subject: Subject,
    call: SampleCall,
    error: BaseException,
    given: list[torch.Tensor],
    place: dict[str, object],
) -> None:
    references = [(i, weakref.ref(x)) for i, x in enumerate(given)]
    _forget_frames(error)
    given.clear()
    if any(ref() is not None for _, ref in references):
        gc.collect()
    held = [f"argument {i}" for i, ref in references if ref() is not None]
    if held:
        raise subject.failure(
            "it keeps tensors after a call that ran out of memory",
            call,
            found={**place, "kept": ", ".join(held)},
            hint="Keep no arguments and results in globals, closures, caches or on the executor: clear what "
            "is kept for the time of a call in a finally.",
        )
