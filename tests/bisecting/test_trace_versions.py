"""Two versions of a trace: the first statement that computes something else."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch.nn import functional as F

import thunder
from sweeping import one_in
from thunder.core.trace import TraceCtx, load


def program(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    h = F.gelu(x @ w + b)
    return torch.softmax(h * 2, -1).sum(0)


def arguments() -> list[torch.Tensor]:
    torch.manual_seed(0)
    return [torch.randn(6, 5), torch.randn(5, 7), torch.randn(7)]


def acquired() -> TraceCtx:
    compiled = thunder.jit(program, executors=["torch"])
    compiled(*arguments())
    return thunder.last_traces(compiled)[0]


def edited(trace: TraceCtx, old: str, new: str) -> TraceCtx:
    """Return a trace with a changed call, without the lines below calls."""
    text = trace.python(print_depth=1)
    assert old in text
    return load(text.replace(old, new))


def test_a_version_of_the_same_values_is_right() -> None:
    trace = acquired()
    assert thunder.bisect(trace, arguments(), reference=trace).ok
    other = edited(trace, "ltorch.mul(h, 2)", "ltorch.add(h, h)")
    report = thunder.bisect(other, arguments(), reference=trace)
    assert report.ok, report
    assert report.compared > 4


@pytest.mark.parametrize(
    ("old", "new"),
    one_in(
        3,
        [
            ("ltorch.mul(h, 2)", "ltorch.mul(h, 3)"),
            ("ltorch.gelu(t1, approximate='none')", "ltorch.gelu(t1, approximate='tanh')"),
            ("ltorch.softmax(t7, -1, None)", "ltorch.softmax(t7, 0, None)"),
        ],
    ),
)
def test_the_first_statement_that_differs_is_found(old: str, new: str, tmp_path: Path) -> None:
    trace = acquired()
    report = thunder.bisect(edited(trace, old, new), arguments(), reference=trace, folder=tmp_path)
    assert list(report.differences) == ["result 0"]
    (finding,) = report.findings
    assert finding.kind == "version"
    assert old.partition("(")[0] in (finding.statement or "")
    assert new.partition(")")[0] in (finding.after or "")
    assert "a value differs, of two versions of a trace" in str(report)
    done = subprocess.run([sys.executable, str(finding.file)], capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stdout + done.stderr


def test_other_names_are_no_difference() -> None:
    trace = acquired()
    text = trace.python(print_depth=1)
    renamed = text.replace("t1 ", "s ").replace("t1,", "s,").replace("t1:", "s:")
    for name, by in (("t0", "t1"), ("s", "t0")):
        renamed = re.sub(rf"\b{name}\b", by, renamed)
    assert thunder.bisect(load(renamed), arguments(), reference=trace).ok
    wrong = load(renamed.replace("ltorch.mul(h, 2)", "ltorch.mul(h, 4)"))
    report = thunder.bisect(wrong, arguments(), reference=trace)
    assert "ltorch.mul(h, 2)" in (report.findings[0].statement or "")


def test_what_is_no_trace_and_other_arguments_are_refused() -> None:
    trace = acquired()
    with pytest.raises(thunder.InvalidArgument, match="compared with another one"):
        thunder.bisect(trace, arguments())
    with pytest.raises(thunder.InvalidArgument, match="3 inputs got 1"):
        thunder.bisect(trace, arguments()[:1], reference=trace)
