"""Programs of several processes: what is wrong in one of them, and in what they do together."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

import thunder
import thunder_distributed
from bisecting.rank_programs import RIGHT, normed, of_rank, rows, stepped
from distributed.small_models import words
from sweeping import one_in
from thunder.core.rewrite import replace_calls
from thunder.core.trace import TraceCtx
from thunder.distributed import ddp, fsdp, run_ranks
from thunder.extend import OperatorExecutor
from thunder.plugins import get_manager
from thunder_distributed.collectives import all_gather, all_reduce, reduce_scatter


@pytest.fixture(autouse=True)
def _distributed() -> Iterator[None]:
    with get_manager().temporary(thunder_distributed, name="distributed-beside-bisect"):
        yield


def bisected(
    compiled: Callable[[], Any], args: Callable[[], Any] = rows, size: int = 2, **options: Any
) -> Any:
    """Return the report of a bisection by all ranks, which have the same one."""
    reports = run_ranks(lambda: thunder.bisect(compiled(), args(), **options), size)
    assert all(str(report) == str(reports[0]) for report in reports)
    return reports[0]


@pytest.mark.parametrize("name", one_in(4, RIGHT))
def test_right_programs_have_no_findings(name: str):
    program = RIGHT[name]
    report = bisected(program.compiled, program.args, program.size)
    assert report.ok, report
    assert report.compared > 0
    assert report.unjudged == ()


# -- executors that are wrong


def by_executor(operator: Any, name: str, fn: Callable[..., Any]) -> list[Any]:
    """Return an executor that runs an operator by a function."""
    acme = OperatorExecutor("acme")
    symbol = acme.register_operator(name, like=operator, fn=fn)
    acme.register_implementation(operator.id, symbol)
    return [acme]


def wrong_gelu(x: torch.Tensor, approximate: str = "none") -> torch.Tensor:
    y = torch.nn.functional.gelu(x, approximate=approximate)
    return y * 1.25 if dist.get_rank() == 1 else y


@pytest.mark.parametrize("transform", one_in(2, [ddp, fsdp]))
def test_a_kernel_that_is_wrong_on_one_rank(transform, tmp_path: Path):
    executors = by_executor(thunder.torch.gelu, "gelu", wrong_gelu)
    report = bisected(
        lambda: stepped([transform()], executors=executors), lambda: of_rank(2), folder=tmp_path
    )
    assert report.differences
    found = [f for f in report.findings if f.branch == "forward"]
    assert {f.executor for f in report.findings} == {"acme"}
    assert all(f.kind == "statement" and f.ranks == (1,) for f in report.findings)
    assert any(f.decisive for f in found)
    assert found[0].file == tmp_path / "bisect_0.py"
    assert "ltorch.gelu(" in found[0].file.read_text(encoding="utf-8")


def forgets(collective: Any) -> Callable[..., Any]:
    """Return a collective that leaves out what the last rank has."""

    def run(a: torch.Tensor, *args: Any) -> torch.Tensor:
        return collective(torch.zeros_like(a) if dist.get_rank() == dist.get_world_size() - 1 else a, *args)

    return run


COLLECTIVES = {
    "all_gather": (all_gather, fsdp),
    "reduce_scatter": (reduce_scatter, fsdp),
    "all_reduce": (all_reduce, ddp),
}


@pytest.mark.parametrize(("name", "overlap"), one_in(3, itertools.product(COLLECTIVES, [0, 1]), 1))
def test_a_collective_that_is_wrong(name: str, overlap: int):
    operator, transform = COLLECTIVES[name]
    executors = by_executor(operator, name, forgets(operator.python_impl))
    report = bisected(
        lambda: thunder.jit(
            normed(), transforms=[transform()], executors=executors, overlap_collectives=overlap
        )
    )
    assert report.differences
    assert {(f.kind, f.executor) for f in report.findings} == {("statement", "acme")}
    assert all(name in f.statement for f in report.findings)
    assert any(f.decisive for f in report.findings)
    assert {rank for f in report.findings for rank in f.ranks} == {0, 1}


# -- passes, and what processes begin with


class Summing(thunder.Transform):
    """Leaves the division of the mean out of a gradient."""

    def transform_joint_trace(self, joint_trace: TraceCtx, **kwargs: Any) -> TraceCtx:
        def on_call(bsym: Any) -> Any:
            return bsym.args[0] if "div" in bsym.sym.name else None

        return replace_calls(joint_trace, on_call, provenance="Summing")


def test_a_transform_that_forgets_the_mean():
    report = bisected(lambda: thunder.jit(normed(), transforms=[ddp(), Summing()]))
    assert all(name.startswith("gradient of ") for name in report.differences)
    (finding,) = report.findings
    assert (finding.kind, finding.stage, finding.ranks) == ("stage", "Summing", (0, 1))


def test_processes_that_have_other_weights():
    def compiled() -> Any:
        compiled = thunder.jit(words(), transforms=[ddp()])
        with torch.no_grad():  # those that they begin with are equal
            compiled.get_parameter("scale").add_(dist.get_rank())
        return compiled

    report = bisected(compiled, lambda: of_rank(3), 3)
    (finding,) = report.findings
    assert (finding.kind, finding.ranks) == ("ranks", (1, 2))
    assert finding.what == "scale: other values than on rank 0"
    assert "parameters differ, between processes" in str(report)
