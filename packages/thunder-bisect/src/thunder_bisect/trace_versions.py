"""Two versions of a trace, computed by torch: the first statement with other values on the same operands."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

from thunder.core.errors import InvalidArgument
from thunder.core.trace import TraceCtx
from thunder_bisect.calls import is_uninitialised
from thunder_bisect.findings import version_finding
from thunder_bisect.report import Finding, Report, written
from thunder_bisect.shadows import Shadows
from thunder_bisect.stage_checks import (
    Difference,
    Evaluated,
    StageFault,
    different_results,
    evaluated,
    fault_between,
    results_of,
)

__all__ = ["bisect_versions"]


def bisect_versions(
    trace: TraceCtx,
    reference: Any,
    args: Sequence[Any],
    tolerance: float = 1.0,
    *,
    seed: int = 0,
    folder: str | Path | None = None,
) -> Report:
    """Find where a trace computes something else than another version of it, for the same arguments.

    The arguments are those of both traces, in their order. Results are compared in theirs; where one
    differs, the finding is the first statement of the trace that computes another value than that of the
    same name in the other, from values of the same names. Each is computed by torch, so that kernels are not
    compared. Raises InvalidArgument for another reference, and for other arguments than both traces have.
    """
    if not isinstance(reference, TraceCtx):
        raise InvalidArgument(
            f"a trace is compared with another one, and reference= is {reference!r}",
            hint="thunder.bisect(trace, args, reference=other)",
        )
    versions = (reference, trace)
    given = [dict(_named(version, args)) for version in versions]
    with torch.random.fork_rng(devices=()), Shadows() as shadows:
        torch.manual_seed(seed)
        before, after = (evaluated(t, x, shadows) for t, x in zip(versions, given, strict=True))
        different = list(different_results(before, after, shadows, tolerance))
        wrong = {f"result {place}": difference.what for place, difference in different}
        own, others = len(results_of(after)), len(results_of(before))
        if own != others:
            wrong = {"results": f"{own} tensors, and {others} in the other version"}
        found = _first(before, after, shadows, tolerance) if wrong else None
        if found is None and different:
            found = different[0][1]
    findings: list[Finding] = []
    if found is not None:
        makers = before.makers.get(found.before), after.makers.get(found.after)
        fault = StageFault("the other version", found, makers, versions)
        findings = [written(version_finding(fault, given[0], [before, after]), folder, 0)]
    unjudged = tuple(f"{name}: {why}" for name, why in after.errors.items())
    return Report(differences=wrong, findings=findings, compared=len(after.makers), unjudged=unjudged)


def _named(trace: TraceCtx, args: Sequence[Any]) -> Iterator[tuple[str, Any]]:
    if len(trace.args) != len(args):
        raise InvalidArgument(
            f"a trace with {len(trace.args)} inputs got {len(args)} arguments",
            found={"inputs": ", ".join(p.name for p in trace.args)},
        )
    return ((p.name, x) for p, x in zip(trace.args, args, strict=True))


def _first(before: Evaluated, after: Evaluated, shadows: Shadows, tolerance: float) -> Difference | None:
    """Return the first value that differs from that of its name, of statements that read the same names."""
    for name, maker in after.makers.items():
        other = before.makers.get(name)
        if other is None or name not in after.values or is_uninitialised(maker):
            continue
        if {p.name for p in maker.flat_proxy_args} != {p.name for p in other.flat_proxy_args}:
            continue
        fault = fault_between(before.values.get(name), after.values[name], shadows, tolerance)
        if fault is not None:
            return Difference(name, name, fault)
    return None
