"""The stages of a compile, compared: each trace is computed by torch.

A value has one name in all traces of a compile, so that two of them are compared value by value. The first
stage after which a value differs by more than rounding explains has changed what the program computes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from thunder.core.dtypes import to_torch_dtype
from thunder.core.errors import ThunderError
from thunder.core.proxies import TensorProxy
from thunder.core.pytree import tree_iter
from thunder.core.symbol import BoundSymbol
from thunder.core.trace import TraceCtx
from thunder_bisect.calls import copies_of, evaluate, is_random, is_uninitialised, reference_calls
from thunder_bisect.judgement import Expected, expected_of, fault_of
from thunder_bisect.ranks import Ranks
from thunder_bisect.shadows import Shadows
from thunder_bisect.statement_checks import inputs_of
from thunder_transforms.observing import is_computing

__all__ = [
    "Difference",
    "Evaluated",
    "StageFault",
    "different_results",
    "evaluated",
    "fault_between",
    "first_difference",
    "results_of",
    "stage_fault",
]


@dataclass(frozen=True)
class Difference:
    """A value of two traces, by its name in each, and how it differs."""

    before: str
    after: str
    what: str


@dataclass(frozen=True, eq=False)
class StageFault:
    """The first stage after which a value differs: its statements and traces."""

    stage: str
    difference: Difference
    makers: tuple[BoundSymbol | None, BoundSymbol | None]
    traces: tuple[TraceCtx, TraceCtx]


@dataclass(frozen=True, eq=False)
class Evaluated:
    """The values of a trace by name, as torch computes them.

    `makers` has the statement that computes each value, `errors` the statements that torch could not compute.
    """

    trace: TraceCtx
    values: Mapping[str, Any]
    makers: Mapping[str, BoundSymbol]
    errors: Mapping[str, str] = field(default_factory=dict)


def evaluated(
    trace: TraceCtx, inputs: Mapping[str, Any], shadows: Shadows, before: Evaluated | None = None
) -> Evaluated:
    """Compute a trace by torch within `shadows`, from the values of its inputs by name.

    Statements that `before` has with equal operands are not computed again. The n-th draw of random numbers
    of every trace has the same seed.
    """
    names = [p.name for p in inputs_of(trace)]
    values: dict[str, Any] = copies_of({name: inputs[name] for name in names if name in inputs})
    same = set(values)
    makers: dict[str, BoundSymbol] = {}
    errors: dict[str, str] = {}
    draws = 0
    for bsym in trace.bound_symbols:
        if not is_computing(bsym) or bsym.sym.name.startswith("unpack"):
            continue
        if is_random(bsym):
            torch.manual_seed(draws)
            draws += 1
        outputs = [p.name for p in bsym.flat_proxy_outs if p.name not in values]
        if before is not None and _is_same(bsym, outputs, same, before):
            values.update({name: before.values[name] for name in outputs})
            same.update(outputs)
        else:
            try:
                evaluate(bsym, values)
            except ThunderError as error:
                errors.update(dict.fromkeys(outputs, str(error).splitlines()[0]))
            except (
                RuntimeError,
                TypeError,
                ValueError,
                IndexError,
            ) as error:  # torch refuses the changed call
                errors.update(dict.fromkeys(outputs, f"torch raises {error}"))
        for part in (bsym, *reference_calls(bsym)):
            makers.update({p.name: part for p in part.flat_proxy_outs if p.name not in makers})
    return Evaluated(trace, values, makers, errors)


def _is_same(bsym: BoundSymbol, outputs: Sequence[str], same: set[str], before: Evaluated) -> bool:
    """Return whether another trace has computed the statement from the same values."""
    if not outputs or any(p.name not in same for p in bsym.flat_proxy_args):
        return False
    theirs = before.makers.get(outputs[0])
    if theirs is None or any(name not in before.values for name in outputs):
        return False
    ours, other = reference_calls(bsym), reference_calls(theirs)
    return [c.rhs for c in ours] == [c.rhs for c in other]


def first_difference(
    before: Evaluated, after: Evaluated, shadows: Shadows, factor: float, *, strict: bool = False
) -> Difference | None:
    """Return the first value of a trace that differs from that in another, and how.

    Values of one name are compared, then the results at one place, if there are as many. The rounding of the
    statements of both traces is allowed, since an operator may be taken apart; if `strict`, only that of the
    first.
    """
    for name, maker in after.makers.items():
        if name not in before.values or is_uninitialised(maker):
            continue
        if name in after.errors:
            if after.errors[name].startswith("torch raises"):
                return Difference(name, name, after.errors[name])
            continue
        ours = after.values.get(name)
        declared = next((p for p in maker.flat_proxy_outs if p.name == name), None)
        if isinstance(declared, TensorProxy) and isinstance(ours, torch.Tensor):
            dtype = to_torch_dtype(declared.dtype)
            if dtype is not ours.dtype and ours is not before.values[name]:
                return Difference(name, name, f"dtype {ours.dtype}, and the trace says {dtype}")
        fault = fault_between(before.values[name], ours, shadows, factor, strict)
        if fault is not None:
            return Difference(name, name, fault)
    if len(results_of(before)) != len(results_of(after)):
        return None
    return next((found for _, found in different_results(before, after, shadows, factor, strict)), None)


def different_results(
    before: Evaluated, after: Evaluated, shadows: Shadows, factor: float, strict: bool = False
) -> Iterator[tuple[int, Difference]]:
    """Yield the results of a trace that differ from those at the same place of another, with their places.

    Of different numbers of results the first ones are compared.
    """
    for place, (theirs, name) in enumerate(zip(results_of(before), results_of(after), strict=False)):
        fault = fault_between(before.values.get(theirs), after.values.get(name), shadows, factor, strict)
        if fault is not None:
            yield place, Difference(theirs, name, fault)


def results_of(evaluated: Evaluated) -> list[str]:
    """Return the names of the tensors that a trace returns, in order."""
    return [p.name for p in tree_iter(evaluated.trace.output) if isinstance(p, TensorProxy)]


def fault_between(
    theirs: Any, ours: Any, shadows: Shadows, factor: float, strict: bool = False
) -> str | None:
    """Return how a value differs from that in another trace, or None; `strict` as in `first_difference`."""
    if ours is theirs or not isinstance(theirs, torch.Tensor) or not isinstance(ours, torch.Tensor):
        return None
    return fault_of(ours, expected_of(theirs, shadows) if strict else _of_both(theirs, ours, shadows), factor)


def _of_both(theirs: torch.Tensor, ours: torch.Tensor, shadows: Shadows) -> Expected:
    """Return the right values, with the rounding errors of the statements of both traces."""
    expected = expected_of(theirs, shadows, 1.0)
    other = expected_of(ours, shadows)
    if other.exact.shape != expected.exact.shape or not theirs.is_floating_point():
        return expected
    errors = [
        expected.exact + (x - other.exact).to(expected.exact.dtype) for x in (other.own, *other.others[2:])
    ]
    return Expected(expected.own, [*expected.others, *errors], expected.scale)


def stage_fault(
    traces: Sequence[TraceCtx],
    inputs: Mapping[str, Any],
    shadows: Shadows,
    factor: float,
    *,
    strict: bool = False,
    ranks: Ranks,
) -> tuple[StageFault | None, list[Evaluated]]:
    """Return the first stage that changes what a program computes, or None.

    And the traces computed so far: until a stage changes something in one of the processes.
    """
    done: list[Evaluated] = []
    for trace in traces:
        now = evaluated(trace, inputs, shadows, done[-1] if done else None)
        found = first_difference(done[-1], now, shadows, factor, strict=strict) if done else None
        done.append(now)
        if ranks.any(found is not None):
            if found is None:
                break
            stage = trace.provenance.pss if trace.provenance is not None else "an unnamed stage"
            makers = done[-2].makers.get(found.before), now.makers.get(found.after)
            return StageFault(stage, found, makers, (done[-2].trace, trace)), done
    return None, done
