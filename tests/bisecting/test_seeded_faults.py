"""Faults of many kinds: each is found, named, and shown again by its reproducer in a process of its own."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch

import thunder
import thunder_inductor
from bisecting.faults import FAULTS, Fault, executor_of
from bisecting.right_programs import PROGRAMS
from new_processes import run_python
from sweeping import one_in
from thunder.plugins import get_manager

#: what reproducers import
IMPORTED = ("torch", "thunder")

#: of each kind one, which a default run bisects
QUICK = {
    *(
        "gelu_of_bfloat16",
        "exp_of_a_layout",
        "sum_low_precision",
        "gelu_writes",
        "linear_noisy",
        "gelu_gradient",
    ),
    *("softmax_decomposed", "region_swaps", "drops_a_cast", "changes_epsilon"),
}


@pytest.fixture(autouse=True)
def _on_path(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let reproducers import the faults in a process of their own."""
    given = os.environ.get("PYTHONPATH", "")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, (str(Path(__file__).parents[1]), given))))


def executors_of(name: str, fault: Fault) -> list[object]:
    return [executor_of(name), "torch"] if fault.executor is not None else ["torch"]


@pytest.mark.parametrize(
    "name", [n if n in QUICK else pytest.param(n, marks=pytest.mark.sweep) for n in FAULTS]
)
def test_a_fault_is_found_and_named(name: str, tmp_path: Path, whole_run: bool) -> None:
    fault = FAULTS[name]
    program, args = PROGRAMS[fault.program](fault.dtype)
    report = thunder.bisect(
        program, args, executors=executors_of(name, fault), transforms=fault.transforms(), folder=tmp_path
    )
    assert not report.ok
    first = report.findings[0]
    assert first.kind == fault.kind
    named = f"{first.statement} {first.stage}"
    assert any(operator in named for operator in fault.names), named
    assert fault.says in f"{first.what} {first.statement}", first.what
    assert first.executor == (f"wrong_{name}" if fault.kind == "statement" else None)
    assert first.file is not None
    if whole_run:
        assert run_python(str(first.file), imported=IMPORTED).returncode == 1


def test_a_reproducer_runs_alone_with_small_inputs(tmp_path: Path) -> None:
    fault = FAULTS["gelu_of_large"]
    program, args = PROGRAMS[fault.program](fault.dtype)
    report = thunder.bisect(program, args, executors=executors_of("gelu_of_large", fault), folder=tmp_path)
    first = report.findings[0]
    assert first.row is not None
    assert "torch.nn.functional.gelu → wrong_gelu_of_large" in first.row
    assert first.decisive
    assert first.types is not None
    shape = eval(first.types.partition("f32")[2])
    assert 300 < torch.Size(shape).numel() < 12 * 32
    assert first.file is not None
    done = run_python(str(first.file), imported=IMPORTED)
    assert done.returncode == 1
    assert "elements differ" in done.stdout


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("name", one_in(7, PROGRAMS))
def test_a_right_program_has_no_fault(name: str, dtype: torch.dtype) -> None:
    program, args = PROGRAMS[name](dtype)
    report = thunder.bisect(program, args, executors=["torch"])
    assert report.ok, str(report)
    assert report.unjudged == ()


@pytest.mark.sweep
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_right_program_in_regions_of_a_compiler_has_no_fault(name: str, dtype: torch.dtype) -> None:
    program, args = PROGRAMS[name](dtype)
    with get_manager().temporary(thunder_inductor, name="inductor-beside-bisect"):
        report = thunder.bisect(program, args, executors=["inductor"])
    assert report.ok, str(report)
    assert report.compared > 0 or name == "attention"  # which torch runs
    assert report.unjudged == ()
