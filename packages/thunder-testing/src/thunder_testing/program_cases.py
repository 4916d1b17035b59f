"""The check of a whole compile: a compiled function that makes a call, compared with eager."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch

from thunder import explain, jit
from thunder.extend import FusionExecutor
from thunder_testing.comparison import value_difference
from thunder_testing.conformance_failure import (
    ConformanceFailure,
    NothingToTest,
    described,
    error_text,
    tensors_in,
)
from thunder_testing.reproduction import call_text, function_of
from thunder_testing.sample_call import SampleCall
from thunder_testing.sample_lowering import seeded
from thunder_testing.samples import Sample
from thunder_testing.subjects import Subject, replaced_functions
from thunder_testing.tolerances import Reference

__all__ = ["check_changing_shapes", "check_compiled_function"]


#: how many calls are compiled, and how many shapes one compiled function gets: 16 compiles give a warning
MAX_CALLS, MAX_SHAPES = 6, 14
#: the two kinds of compiled functions, as errors name them
_ONCE = "a compiled function that calls it"
_WITH_OTHER_SHAPES = "a compiled function that was called with other shapes"


def check_compiled_function(subject: Subject) -> None:
    """Check `thunder.jit(f, executors=[the executor])` against the reference, with and without grad mode.

    The ledger must name the executor, and under autocast types and values must be those without the executor.
    """
    calls = _compilable(subject)
    for number, call in enumerate(calls[:MAX_CALLS]):
        function = call.function()
        for mode in (torch.enable_grad, torch.no_grad) if number == 0 else (torch.no_grad,):
            compiled, result = _compiled(subject, call, function, mode)
            _check_ledger(subject, call, compiled)
            _check_value(subject, call, result)
    for call in calls[:2]:
        function = call.function()
        _, lower = _compiled(subject, call, function, _autocast)
        with _autocast(), seeded():
            expected = jit(function)(*call.sample.copy().tensors)
        _check_autocast(subject, call, lower, expected)
    for function in replaced_functions(subject):
        for call in calls[:2]:
            _check_replaced(subject, ReplacedCall(subject, call.sample, function))


class ReplacedCall(SampleCall):
    """A call of a function that an operator replaces, in a program."""

    def __init__(self, subject: Subject, sample: Sample, replaced: Callable[..., Any]) -> None:
        super().__init__(subject, sample)
        self.replaced = replaced

    def body(self, names: dict[int, str]) -> tuple[list[str], list[str]]:
        """Return the line that stands for the function, and a call of it."""
        name = getattr(self.replaced, "__qualname__", repr(self.replaced))
        return [f"replaced = ...  # {name}"], [
            call_text("replaced", tuple(self.sample.args), self.sample.kwargs, names)
        ]

    def function(self) -> Callable[..., Any]:
        """Return a function of the sample's tensors that calls the replaced function."""
        return function_of(self, {"replaced": self.replaced}, has_setup=False)


def _check_replaced(subject: Subject, call: ReplacedCall) -> None:
    """Check a program that calls a replaced function: its values, and under autocast eager's types too."""
    function = call.function()
    compiled, result = _compiled(subject, call, function, torch.no_grad)
    if subject.written:
        _check_writes(subject, call, compiled)
        return
    _check_value(subject, call, result, "a program that calls the function it replaces")
    try:
        with _autocast(), seeded(), torch.no_grad():
            eager = function(*call.sample.copy().tensors)
    except Exception:  # eager refuses the call under autocast
        return
    _, lower = _compiled(subject, call, function, _no_grad_under_autocast)
    for i, (x, y) in enumerate(zip(tensors_in(lower), tensors_in(eager), strict=False)):
        exact = tensors_in(call.exact.result)[i] if call.exact is not None else y
        judge, fault = replace(subject.settings.judge, factor=4.0), None
        if call.promises_values and x.shape == y.shape == exact.shape:
            fault = judge.fault(x, Reference(exact=exact, eager=y))
        if (x.shape, x.dtype) != (y.shape, y.dtype) or fault is not None:
            raise subject.failure(
                "a program that calls the function it replaces returns something else under autocast than "
                "eager",
                call,
                found={"eager": described(y), "with it": described(x)}
                | ({"values": fault} if fault is not None else {}),
                hint="autocast= of register_operator says what autocast does with the arguments: 'lower', "
                "'fp32', 'promote' or None; like= the function casts as eager does.",
            )


def _check_writes(subject: Subject, call: ReplacedCall, compiled: Any) -> None:
    """Check that a program which calls a function that writes leaves its arguments as eager does."""
    ours, theirs = call.sample.copy().tensors, call.sample.copy().tensors
    with torch.no_grad(), seeded():
        compiled(*ours)
    with torch.no_grad(), seeded():
        call.function()(*theirs)
    for i, (x, y) in enumerate(zip(ours, theirs, strict=True)):
        fault = subject.settings.judge.fault(x, Reference(exact=y, eager=y))
        if fault is not None and call.promises_values:
            raise subject.failure(
                f"a program that calls the function it replaces leaves argument {i} with other values",
                call,
                found={"against eager": fault},
                hint="mutates= has the name of every argument that the function writes to.",
            )


@contextmanager
def _no_grad_under_autocast() -> Iterator[None]:
    with torch.no_grad(), _autocast():
        yield


def _compilable(subject: Subject) -> list[SampleCall]:
    """Return the calls that a function of tensors can make, given ones first. Raises NothingToTest."""
    subject.calls_with_reference()
    calls = [call for call in subject.small_calls() if call.sample.tensors]
    if not calls:
        raise NothingToTest(f"{subject.id} has no sample with tensors")
    if _fails_without(calls[0].function(), calls[0]):
        raise NothingToTest(f"{subject.id} cannot be compiled from a function without the executor either")
    given = [call for call in calls if not call.sample.variant]
    others = [call for call in calls if call.sample.variant]
    chosen = [*given[:3], *others[:: max(1, len(others) // 3)]]
    return [call for call in chosen if call is calls[0] or not _fails_without(call.function(), call)]


def check_changing_shapes(subject: Subject) -> None:
    """Check one compiled function on arguments of many types, shapes and layouts, there and back again."""
    subject.calls_with_reference()
    groups: dict[str, list[SampleCall]] = {}
    for call in subject.small_calls():
        names = {id(x): f"x{i}" for i, x in enumerate(call.sample.tensors)}
        if names:
            groups.setdefault("\n".join(call.body(names)[1]), []).append(call)
    group = max(groups.values(), key=len, default=[])
    if len(group) < 2:
        raise NothingToTest(f"{subject.id} has no two samples of one function of tensors")
    if _fails_without(group[0].function(), group[0]):
        raise NothingToTest(f"{subject.id} cannot be compiled from a function without the executor either")
    types = {tuple(described(x) for x in call.sample.tensors): call for call in reversed(group)}
    calls = list(reversed(types.values()))
    head, rest = calls[: MAX_SHAPES // 2], calls[MAX_SHAPES // 2 :]
    chosen = [*head, *rest[:: max(1, -(-len(rest) // (MAX_SHAPES // 2)))]]
    if len(chosen) < 2:
        raise NothingToTest(f"{subject.id} has no two samples of other types for one function of tensors")
    compiled = jit(chosen[0].function(), executors=[subject.executor])
    for call in (*chosen, *reversed(chosen[:-1]), *chosen[::2]):
        try:
            hint = "Keep nothing from one shape, dtype or layout for another."
            result = _result(subject, call, compiled, torch.no_grad, _WITH_OTHER_SHAPES, hint)
        except ConformanceFailure:
            if _fails_without(call.function(), call):
                continue
            raise
        _check_value(subject, call, result, _WITH_OTHER_SHAPES)


def _autocast() -> Any:
    return torch.autocast("cpu", torch.bfloat16)


def _compiled(
    subject: Subject, call: SampleCall, function: Callable[..., Any], mode: Callable[[], Any]
) -> tuple[Any, Any]:
    """Return the compiled function and its result under a mode."""
    compiled = jit(function, executors=[subject.executor])
    hint = "The executor gets the call as the function makes it, with the casts of autocast."
    return compiled, _result(subject, call, compiled, mode, _ONCE, hint)


def _result(
    subject: Subject, call: SampleCall, compiled: Any, mode: Callable[[], Any], what: str, hint: str
) -> Any:
    """Return what a compiled function returns under a mode. Raises ConformanceFailure if it raises."""
    try:
        with mode(), seeded():
            return compiled(*call.sample.copy().tensors)
    except Exception as error:
        raise subject.failure(
            f"{what} fails", call, found={"raised": error_text(error)}, hint=hint
        ) from error


def _fails_without(function: Callable[..., Any], call: SampleCall) -> bool:
    """Return whether the function cannot be compiled without the executor either."""
    if call.subject.symbol.executor is call.subject.executor:
        return False
    try:
        with torch.no_grad():
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


def _check_value(subject: Subject, call: SampleCall, result: Any, what: str = _ONCE) -> None:
    assert call.eager is not None, "the call was chosen for its reference"
    if not call.promises_values:
        return
    difference = value_difference(call, result)
    if difference is not None:
        raise subject.failure(
            f"{what} returns other values",
            call,
            found=difference.found,
            hint="thunder.last_traces(f)[-1] shows the executors of each call.",
        )


def _check_autocast(subject: Subject, call: SampleCall, result: Any, expected: Any) -> None:
    """Compare the results under autocast with those without the executor."""
    ours, theirs = tensors_in(result), tensors_in(expected)
    judge = replace(subject.settings.judge, factor=4.0)
    for x, y in zip(ours, theirs, strict=False):
        fault = None
        if call.promises_values and x.shape == y.shape:
            fault = judge.fault(x, Reference(exact=y, eager=y))
        if len(ours) != len(theirs) or (x.shape, x.dtype) != (y.shape, y.dtype) or fault is not None:
            raise subject.failure(
                "a compiled function that calls it returns something else under autocast than without it",
                call,
                found={"without the executor": described(y), "with it": described(x)}
                | ({"values": fault} if fault is not None else {}),
                hint="The arguments already have the dtypes to which autocast casts.",
            )
