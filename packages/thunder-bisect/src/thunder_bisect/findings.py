"""Faults as findings: with the user's line, the ledger's row, a reproducer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import thunder
from thunder.core.errors import Location
from thunder.core.symbol import BoundSymbol
from thunder_bisect.calls import copies_of, program_of, reference_calls
from thunder_bisect.gradient_checks import GradientFault
from thunder_bisect.report import Finding
from thunder_bisect.reproducers import gradient_reproducer, stage_reproducer, statement_reproducer
from thunder_bisect.run_alone import statement_fault
from thunder_bisect.smaller_inputs import AloneProgram, shapes_of, smaller
from thunder_bisect.stage_checks import Evaluated, StageFault
from thunder_bisect.statement_checks import StatementFault
from thunder_transforms.observing import statement_of

__all__ = ["gradient_finding", "stage_finding", "statement_finding", "statement_text", "version_finding"]


def statement_finding(
    fault: StatementFault, compiled: Any, tolerance: float, *, decisive: bool | None, alone: bool = True
) -> Finding:
    """Return the finding of a statement, with the smallest program that shows it."""
    bsym, executor = fault.bsym, fault.bsym.sym.executor
    described = statement_of(bsym, fault.branch)
    found: AloneProgram | None = None
    if executor is not None and alone:

        def is_faulty(program: AloneProgram) -> bool:
            return statement_fault(program.trace, program.inputs, executor, tolerance) is not None

        found = smaller(reference_calls(bsym), copies_of(fault.inputs), is_faulty)
    title = f"{described.executor} computes {described.operator} ({fault.kind}): {fault.what}"
    text = None
    if found is not None and executor is not None:
        text = statement_reproducer(title, found.trace, found.inputs, executor)
    return Finding(
        kind="statement",
        what=fault.what,
        branch=fault.branch,
        statement=described.text,
        executor=described.executor,
        where=described.locations,
        row=_row(compiled, fault.branch, bsym),
        decisive=decisive,
        types=shapes_of(found) if found is not None else None,
        reproducer=text,
    )


def _row(compiled: Any, branch: str, bsym: BoundSymbol) -> str | None:
    """Return the ledger's row of the first call of a statement."""
    names = {p.name for p in bsym.flat_proxy_outs}
    side = "backward" if branch == "backward" else "forward"
    for row in thunder.explain(compiled).rows:
        if row.trace == side and names & set(row.outputs):
            return f"{row.index}: {row.symbol} → {row.claimed_by}, via {row.via}"
    return None


def version_finding(fault: StageFault, inputs: Mapping[str, Any], evaluated: Sequence[Evaluated]) -> Finding:
    """Return the finding of two versions of a trace."""
    return replace(stage_finding(fault, "forward", inputs, evaluated), kind="version", stage=None)


def stage_finding(
    fault: StageFault, branch: str, inputs: Mapping[str, Any], evaluated: Sequence[Evaluated]
) -> Finding:
    """Return the finding of a stage, with the statements that compute the value."""
    values = {name: x for e in reversed(evaluated) for name, x in e.values.items()} | dict(inputs)
    difference, (before, after) = fault.difference, fault.makers
    text = types = None
    if before is not None and after is not None:
        stops = {p.name for p in before.flat_proxy_args}
        ends = zip(fault.traces, (difference.before, difference.after), strict=True)
        parts = [(name, _needed(trace.bound_symbols, name, stops)) for trace, name in ends]
        read = {p.name: p for _, part in parts for b in part for p in b.flat_proxy_args}
        made = {p.name for _, part in parts for b in part for p in b.flat_proxy_outs}
        given = {name: p for name, p in read.items() if name not in made and name in values}
        first, second = (
            program_of(
                part, given.values(), [p for b in part for p in b.flat_proxy_outs if p.name == name][:1]
            )
            for name, part in parts
        )
        title = f"{fault.stage} changes {difference.after}: {difference.what}"
        text = stage_reproducer(title, first, second, [values[name] for name in given])
        types = shapes_of(AloneProgram(first, ()))
    return Finding(
        kind="stage",
        what=f"{difference.after}: {difference.what}",
        branch=branch,
        statement=_line(before),
        after=_line(after),
        stage=fault.stage,
        where=_locations(before),
        types=types,
        reproducer=text,
    )


def _needed(bsyms: Sequence[BoundSymbol], name: str, stops: set[str]) -> list[BoundSymbol]:
    """Return the calls that compute a value from values in `stops`, in order."""
    wanted, part = {name}, list[BoundSymbol]()
    for bsym in reversed(bsyms):
        if wanted.isdisjoint(p.name for p in bsym.flat_proxy_outs) or bsym.sym.name.startswith("python_"):
            continue
        calls = reference_calls(bsym)
        part = [*calls, *part]
        computed = {p.name for c in calls for p in c.flat_proxy_outs}
        wanted |= {
            p.name for c in calls for p in c.flat_proxy_args if p.name not in stops and p.name not in computed
        }
    return part


def gradient_finding(fault: GradientFault, executors: Sequence[Any]) -> Finding:
    """Return the finding of a call whose gradient is wrong."""
    title = f"the gradient of {fault.bsym.sym.name}: {fault.what}"
    return Finding(
        kind="gradient",
        what=f"the gradient of {fault.argument}: {fault.what}",
        branch="backward",
        statement=_line(fault.bsym),
        where=_locations(fault.bsym),
        reproducer=gradient_reproducer(title, fault.bsym, fault.inputs, executors),
    )


def statement_text(bsym: BoundSymbol) -> str:
    """Return a statement as the trace prints it, without the types of its results."""
    return bsym.line.partition("  # ")[0]


def _line(bsym: BoundSymbol | None) -> str | None:
    return None if bsym is None else statement_text(bsym)


def _locations(bsym: BoundSymbol | None) -> Sequence[Location]:
    return () if bsym is None else bsym.locations
