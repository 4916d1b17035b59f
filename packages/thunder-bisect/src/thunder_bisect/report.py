"""What was found: the report of a bisection."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from pathlib import Path
from typing import Any

from thunder.core.errors import Location

__all__ = ["Finding", "Report", "joined", "written"]


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One fault of a compiled program.

    Attributes:
        kind: ``"statement"`` (what runs computes something else than torch on the same inputs), ``"stage"``
            (a pass or a transform changed what the program computes), ``"version"`` (of two traces),
            ``"gradient"`` (the rule of an operator is wrong) or ``"ranks"`` (processes begin with other
            parameters).
        what: how the first wrong value differs.
        branch: ``"forward"``, ``"backward"`` or ``"inference"``.
        statement: the statement as the trace prints it; of a stage, the one before it.
        after: of a stage, the statement after it, or None.
        executor: the name of the executor that runs the statement, or None.
        stage: the name of the stage or transform, or None.
        where: the user's lines.
        row: the ledger's row of the call, or None.
        decisive: whether the whole result is right once this, and what else is decisive, is replaced; None
            where that cannot be tried.
        types: of the inputs with which the reproducer shows the fault.
        reproducer: a program that shows it alone, or None where a value of it has no text.
        file: where the reproducer was written.
        ranks: the processes that show it; none for a program of one process.
    """

    kind: str
    what: str
    branch: str = "forward"
    statement: str | None = None
    after: str | None = None
    executor: str | None = None
    stage: str | None = None
    where: Sequence[Location] = ()
    row: str | None = None
    decisive: bool | None = None
    types: str | None = None
    reproducer: str | None = None
    file: Path | None = None
    ranks: Sequence[int] = ()

    def __str__(self) -> str:
        by = {
            "statement": f"by {self.executor}",
            "stage": f"in the stage {self.stage!r}",
            "version": "of two versions of a trace",
            "gradient": "by its rule",
            "ranks": "between processes",
        }
        subjects = {
            "gradient": "the gradient of a call is wrong",
            "version": "a value differs",
            "ranks": "parameters differ",
        }
        subject = subjects.get(self.kind, "a value is wrong")
        lines = [f"{subject}, {by[self.kind]}: {self.what}"]
        lines += [f"  on rank  {', '.join(map(str, self.ranks))}"] if self.ranks else []
        lines += [f"  at  {location}" for location in self.where]
        lines += [f"  {self.branch}:  {self.statement}"] if self.statement else []
        lines += [f"  after it:  {self.after}"] if self.after else []
        lines += [f"  ledger:  {self.row}"] if self.row else []
        if self.decisive is not None:
            lines.append(
                "  with it computed by torch the results are right"
                if self.decisive
                else "  the results are as right with it as without it"
            )
        lines += [f"  still wrong with  {self.types}"] if self.types else []
        lines += [f"  reproducer:  {self.file}"] if self.file else []
        return "\n".join(lines)


@dataclass(frozen=True, kw_only=True)
class Report:
    """The outcome of a bisection.

    Attributes:
        differences: the results, gradients and written tensors that differ by more than rounding explains,
            and how.
        findings: what explains them, the first that runs first.
        compared: how many statements were compared with torch.
        unjudged: what was not compared, and why.
    """

    differences: Mapping[str, str]
    findings: Sequence[Finding] = ()
    compared: int = 0
    unjudged: Sequence[str] = field(default_factory=tuple)

    @property
    def ok(self) -> bool:
        """Whether nothing differs by more than rounding explains."""
        return not self.differences and not self.findings

    def __str__(self) -> str:
        if self.ok:
            lines = [f"no difference beyond rounding; {self.compared} statements compared"]
        else:
            lines = [f"{name}: {what}" for name, what in self.differences.items()]
            lines = lines or ["the results differ by no more than rounding explains, and a statement does"]
            lines += (
                ["", *map(str, self.findings)] if self.findings else ["", "no single statement explains it"]
            )
        if self.unjudged:
            lines += [
                "",
                "not compared:",
                *(f"  {x}" for x in self.unjudged),
            ]
        return "\n".join(lines)


def joined(reports: Sequence[Report]) -> Report:
    """Return the report of all processes from those of each, by rank."""
    if len(reports) == 1:
        return reports[0]
    findings: dict[tuple[Any, ...], Finding] = {}
    in_turn = zip_longest(*([(rank, f) for f in report.findings] for rank, report in enumerate(reports)))
    for rank, finding in (pair for pairs in in_turn for pair in pairs if pair is not None):
        key = finding.kind, finding.branch, finding.statement, finding.executor, finding.stage
        first = findings.get(key, finding)
        ranks = {*findings[key].ranks, rank} if key in findings else {rank}
        findings[key] = replace(first, ranks=first.ranks if first.kind == "ranks" else tuple(sorted(ranks)))
    return Report(
        differences={
            f"{name}, on rank {rank}": what
            for rank, report in enumerate(reports)
            for name, what in report.differences.items()
        },
        findings=list(findings.values()),
        compared=sum(report.compared for report in reports),
        unjudged=tuple(dict.fromkeys(text for report in reports for text in report.unjudged)),
    )


def written(
    finding: Finding, folder: str | Path | None, number: int, *, by_this_process: bool = True
) -> Finding:
    """Return a finding whose reproducer is in a file of a folder, which one process writes."""
    if folder is None or finding.reproducer is None:
        return finding
    path = Path(folder) / f"bisect_{number}.py"
    if by_this_process:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(finding.reproducer, encoding="utf-8")
    return replace(finding, file=path)
