"""Checks of fusion executors: small programs have the same results when they are fused."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from thunder.base.errors import Location
from thunder.base.langctx import TORCH, using_language
from thunder.base.pytree import tree_iter, tree_map
from thunder.executor_base.fusion_executor import FUEL_LEVEL, FusionExecutor
from thunder.executor_base.operator_executor import OperatorExecutor
from thunder.extend import get_always_executors
from thunder.ir.proxies import TensorProxy
from thunder.ir.trace import TraceCtx, tracectx
from thunder.ops import prims
from thunder.passes.claim import claim
from thunder.testing.conformance_failure import NothingToTest, definition_of, described, tensors_in
from thunder.testing.interleaving import Interleaved, interleaved
from thunder.testing.result_cases import layout_of, metadata_faults, shared_memory
from thunder.testing.sample_call import LoweredProgram, Outcome, SampleCall, lowered, plain, proxy_of, seeded
from thunder.testing.samples import Sample, cast, other_values
from thunder.testing.subjects import Subject
from thunder.testing.tolerances import difference, same_bits

__all__ = ["check_fuel", "check_fusion_threads", "check_fusions_repeat", "check_regions"]


def _opaque(x: torch.Tensor) -> torch.Tensor:
    return x * 0.5


#: an operator that no fusion executor supports, to separate operators that it supports
OPAQUE = OperatorExecutor("conformance").register_operator(
    "opaque", meta=lambda x: TensorProxy(like=x), fn=_opaque, replace=True
)


class CallTemplate:
    """A call of a fusible operator, of which programs are composed; `f` makes it on other tensors."""

    def __init__(self, call: SampleCall, sample: Sample, proxies: Sequence[TensorProxy]) -> None:
        self.symbol, self.sample, self.x = call.subject.symbol, sample, list(proxies)

    def f(self, *tensors: TensorProxy) -> Any:
        """Make the call with these tensors in place of its first ones; return its result."""
        new = {
            id(old): x
            for old, x in zip(self.sample.tensors, (*tensors, *self.x[len(tensors) :]), strict=True)
        }
        args, kwargs = tree_map(
            lambda x: new.get(id(x), x), (tuple(self.sample.args), dict(self.sample.kwargs))
        )
        return self.symbol(*args, **kwargs)

    def first(self, *tensors: TensorProxy) -> TensorProxy:
        """Make the call; return the first tensor of its result."""
        return next(x for x in tree_iter(self.f(*tensors)) if isinstance(x, TensorProxy))

    def fits(self, y: TensorProxy) -> bool:
        """Return whether `y` can be the first tensor of the call."""
        return (tuple(y.shape), y.dtype) == (tuple(self.x[0].shape), self.x[0].dtype)


class _DoesNotFit(Exception):
    """A program cannot be composed of this operator, whose results differ in type from its arguments."""


def _again(b: CallTemplate, y: TensorProxy) -> TensorProxy:
    if not b.fits(y):
        raise _DoesNotFit
    return b.first(y)


def _chain(b: CallTemplate) -> Any:
    return _again(b, _again(b, b.first()))


def _intermediate_too(b: CallTemplate) -> Any:
    y = b.first()
    return y, _again(b, y)


def _unused(b: CallTemplate) -> Any:
    b.f()
    y = b.first(_opaque_of(b.x[0]))
    return y


def _opaque_of(x: TensorProxy) -> TensorProxy:
    if not x.dtype.is_floating_point:
        raise _DoesNotFit
    return OPAQUE(x)  # type: ignore[no-any-return]


def _same_input(b: CallTemplate) -> Any:
    alike = [b.x[0] if b.fits(x) else x for x in b.x]
    return b.f(*alike), b.f(*alike)


def _other_order(b: CallTemplate) -> Any:
    y, z = b.first(), b.first(_opaque_of(b.x[0]))
    return z, y, b.x[0]


def _interrupted(b: CallTemplate) -> Any:
    y = b.first()
    k = _opaque_of(y)
    z = _again(b, k)
    return z, _again(b, y)


def _written(b: CallTemplate) -> Any:
    later = _opaque_of(b.x[0])
    y = b.first()
    if not b.fits(y):
        raise _DoesNotFit
    prims.copy_(later, b.x[0], grad_enabled=False)
    return b.first(y)


#: what a fusion may get wrong → a program with it
PROGRAMS: dict[str, Callable[[CallTemplate], Any]] = {
    "one call": lambda b: b.f(),
    "a chain of calls": _chain,
    "a result that is also an argument": _intermediate_too,
    "a result that is not read": _unused,
    "the same tensor for several arguments": _same_input,
    "results in another order than the calls": _other_order,
    "a call of another executor between two calls": _interrupted,
    "a write to an argument between two calls": _written,
}


@dataclass(frozen=True, eq=False)
class RegionProgram:
    """A program of `PROGRAMS` for one call: its trace, and functions that run it in eager and in float64."""

    name: str
    call: SampleCall
    sample: Sample
    trace: TraceCtx
    eager: Callable[..., Any]
    exact: Callable[..., Any] | None


def _trace_of(program: Callable[[CallTemplate], Any], call: SampleCall, sample: Sample) -> TraceCtx:
    trace = TraceCtx()
    with tracectx(trace), using_language(TORCH), torch.no_grad():
        trace.args = [proxy_of(x) for x in sample.tensors]
        prims.python_return(plain(program(CallTemplate(call, sample, trace.args))))
    return trace


def _region_program(name: str, call: SampleCall) -> RegionProgram | None:
    program = PROGRAMS[name]
    try:
        trace = _trace_of(program, call, call.sample)
    except _DoesNotFit:
        return None
    wide = cast(call.sample, torch.float64)
    always = get_always_executors()
    try:
        exact = claim(_trace_of(program, call, wide), always)[0].python_callable()
    except (RuntimeError, TypeError, ValueError):  # the operator refuses float64
        exact = None
    return RegionProgram(name, call, call.sample, trace, claim(trace, always)[0].python_callable(), exact)


def _programs(subject: Subject) -> list[RegionProgram]:
    calls = [c for c in subject.calls if c.is_claimed and c.sample.tensors and "," not in c.sample.name]
    cases = [_region_program(name, call) for call in calls[:3] for name in PROGRAMS]
    return [case for case in cases if case is not None]


# -- cases ---------------------------------------------------------------------------------------------------


def check_regions(subject: Subject) -> None:
    """Check that fused programs have eager's results: structure, types, strides, aliasing, values, writes."""
    fused = 0
    for case in _programs(subject):
        try:
            program = lowered(case.trace, subject.executor)
            first = _run(program.run, case.sample)
            second = _run(program.run, case.sample)
        except Exception as error:
            raise _failure(
                subject,
                case,
                "cannot be fused and run",
                {"raised": f"{type(error).__name__}: {error}"},
                "fusion_pass keeps every call and every name that is read later, in an order in which "
                "values are computed before they are read.",
            ) from error
        fused += _has_fusion(program, subject)
        _compare(subject, case, program, first, second)
    if not fused:
        raise NothingToTest(f"no program of {subject.id} was fused: other executors run every call")


def _run(fn: Callable[..., Any], sample: Sample) -> Outcome:
    given = sample.copy().tensors
    before = [x.clone() for x in given]
    with seeded():
        return Outcome(given, before, fn(*given))


def _has_fusion(program: LoweredProgram, subject: Subject) -> bool:
    return any(b.sym.is_fusion and b.sym.executor == subject.executor for b in program.trace.bound_symbols)


def _compare(
    subject: Subject, case: RegionProgram, program: LoweredProgram, ours: Outcome, again: Outcome
) -> None:
    eager = _run(case.eager, case.sample)
    exact = _run(case.exact, cast(case.sample, torch.float64)) if case.exact is not None else eager
    fault = next(metadata_faults(case.trace.output, ours.result), None)
    if fault is not None:
        place, said, real = fault
        raise _failure(
            subject,
            case,
            f"returns another type: {place} differs from the program's",
            {"program": described(said), "fused": described(real), "trace": "\n" + program.trace.python()},
            "A fusion returns its outputs in the order of its bound symbol, each with the type that its "
            "proxy has.",
        )
    triples = zip(*(tensors_in((o.result, o.given)) for o in (ours, eager, exact)), strict=True)
    for x, y, z in triples:
        wrong = difference(x, y, z, *subject.settings.tolerance(y.dtype))
        if wrong is not None and case.call.promises_values:
            raise _failure(
                subject,
                case,
                "returns other values",
                {"fused, against eager": wrong, "trace": "\n" + program.trace.python()},
                "A fusion reads its arguments at its place in the program: after they are computed, and not "
                "after a later write to one of them.",
            )
        if layout_of(x) != layout_of(y):
            raise _failure(
                subject,
                case,
                "returns other strides",
                {"eager": tuple(y.stride()), "fused": tuple(x.stride())},
                "Allocate results with eager's strides.",
            )
    if shared_memory(ours) - shared_memory(eager):
        raise _failure(
            subject,
            case,
            "returns results that share memory",
            {"shared": ", ".join(sorted(shared_memory(ours)))},
            "Each result of a fusion has its own memory.",
        )
    repeats = all(map(same_bits, tensors_in(ours.result), tensors_in(again.result)))
    if case.call.promises_values and not repeats:
        raise _failure(
            subject,
            case,
            "returns other results in a second run",
            {},
            "A fusion keeps no state between runs.",
        )


def check_fuel(subject: Subject) -> None:
    """Check that no fusion is case without fuel, and that programs still run: bisection depends on it."""
    executor = _fusion_executor(subject)
    for case in _programs(subject)[:3]:
        executor.set_fuel(0)
        try:
            program = _lowered(case, subject)
        finally:
            executor.set_fuel(FUEL_LEVEL.UNLIMITED)
        if program is not None and _has_fusion(program, subject):
            raise _failure(
                subject,
                case,
                "is fused without fuel",
                {"trace": "\n" + program.trace.python()},
                "Call self.get_fuel() before each fusion, and leave the calls as they are where it returns "
                "False.",
            )


def check_fusions_repeat(subject: Subject) -> None:
    """Check that a program is fused into the same text each time."""
    for case in _programs(subject)[:4]:
        programs = _lowered(case, subject), _lowered(case, subject)
        if None in programs:
            continue  # check_regions reports it
        first, second = (p.trace.python(include_timing=False) for p in programs if p is not None)
        if first != second:
            raise _failure(
                subject,
                case,
                "is fused into another program the second time",
                {"first": "\n" + first, "second": "\n" + second},
                "Number fusions from 0 in each trace, and iterate over lists, not sets.",
            )


def _lowered(case: RegionProgram, subject: Subject) -> LoweredProgram | None:
    """Return the fused program, or None if fusing or running it fails."""
    try:
        program = lowered(case.trace, subject.executor)
        _run(program.run, case.sample)
    except Exception:
        return None
    return program


def check_fusion_threads(subject: Subject) -> None:
    """Check that a fusion has the same results if another thread's run of it interrupts it."""
    for case in _programs(subject)[:2]:
        program = _lowered(case, subject)
        if program is None or not case.call.promises_values or not _has_fusion(program, subject):
            continue
        mine, others = case.sample, other_values(case.sample)
        alone = tensors_in(_run(program.run, mine).result)
        runs = _interleaved(program.run, mine, others)
        for result in runs.mine:
            if isinstance(result, Exception) or not all(map(same_bits, alone, tensors_in(result))):
                raise _failure(
                    subject,
                    case,
                    "returns other results if another thread runs it too",
                    {"alone": alone, "interrupted": result},
                    "Keep no scratch memory on the executor or in globals: allocate it in each run.",
                )


def _interleaved(run: Callable[..., Any], mine: Sample, others: Sample) -> Interleaved:
    return interleaved(lambda: run(*mine.copy().tensors), lambda: run(*others.copy().tensors))


def _fusion_executor(subject: Subject) -> FusionExecutor:
    assert isinstance(subject.executor, FusionExecutor), "only fusion executors have these cases"
    return subject.executor


def _failure(
    subject: Subject, case: RegionProgram, what: str, found: dict[str, object], hint: str
) -> Exception:
    executor = type(_fusion_executor(subject))
    where: list[Location] = definition_of(executor.fuse, executor.fusion_pass)
    return subject.failure(
        f"a program with {case.name} {what}", case.call, found=found, where=where, hint=hint
    )
