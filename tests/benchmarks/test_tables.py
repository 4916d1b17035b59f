"""The tables of thunder-benchmarks: what is measured, checked and printed. Nothing depends on speed."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from documents.test_documents import ROOT
from new_processes import run_python
from sweeping import one_in
from thunder_benchmarks import worker
from thunder_benchmarks.__main__ import main, update
from thunder_benchmarks.correctness import WrongResult, check_results
from thunder_benchmarks.cpu_time import calls_in, interleaved, tree_seconds
from thunder_benchmarks.measurement import Entry
from thunder_benchmarks.report import markdown, rendered
from thunder_benchmarks.statistics_of_rounds import Spread, geometric_mean
from thunder_benchmarks.step_memory import peak_bytes, saved_bytes
from thunder_benchmarks.tables import MODES, STEP, TABLES
from thunder_benchmarks.ways import WAYS, Way
from thunder_benchmarks.worker_process import Failure, Interpreters, Worker
from thunder_benchmarks.workloads import DTYPES, WORKLOADS


def test_a_table_is_printed_and_written_as_lines_markdown_and_picture(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ways = ["--ways", "eager", "thunder-torch", "lightning"]
    options = ["--workloads", "linear-1", "--modes", "training", "--rounds", "2", "--out", str(tmp_path)]
    assert main(["calls", *ways, *options]) == 0
    printed = capsys.readouterr().out
    assert "| linear-1       | float32 | training |" in printed
    assert "\nlightning-thunder: absent: --peer-python names no interpreter.\n" in printed
    facts, *entries = [json.loads(line) for line in (tmp_path / "calls.jsonl").read_text().splitlines()]
    assert facts["machine"]["torch"] == version("torch")  # of a CUDA build without what follows a plus
    assert [(e["way"], len(e["values"].get("us", ()))) for e in entries] == [
        ("eager", 2),
        ("thunder-torch", 2),
        ("lightning", 0),
    ]
    assert (tmp_path / "calls.md").read_text() in printed
    assert (tmp_path / "calls.png").read_bytes().startswith(b"\x89PNG")


def test_a_table_replaces_the_one_of_a_document(tmp_path: Path) -> None:
    document = tmp_path / "page.md"
    document.write_text("a\n<!-- calls -->\nold\n<!-- end of calls -->\nb\n")
    for text in ("first\n", "second\n"):
        update(document, "calls", text)
        assert document.read_text() == f"a\n<!-- calls -->\n\n{text}\n<!-- end of calls -->\nb\n"
    with pytest.raises(ValueError, match=r"page\.md has no place for the table speed"):
        update(document, "speed", "text\n")


def test_every_table_has_its_place_in_the_readme_of_the_benchmarks() -> None:
    page = (ROOT / "benchmarks" / "README.md").read_text(encoding="utf-8")
    for name in TABLES:
        assert page.count(f"<!-- {name} -->\n") == page.count(f"<!-- end of {name} -->\n") == 1
        assert f"`hatch run bench {name}`" in page


def test_the_bare_function_is_called_on_what_the_prologue_returned() -> None:
    session = worker.Session("thunder-bare")
    session.prepare("linear-10", "float32", "inference")
    with torch.no_grad():
        torch.testing.assert_close(session.subject.forward(), session.subject.model(*session.subject.inputs))


class Shifted(nn.Module):
    """A model whose result is a little too large, or whose gradients are."""

    def __init__(self, model: nn.Module, *, outputs: float = 0.0, gradients: float = 0.0) -> None:
        super().__init__()
        self.model, self.outputs, self.gradients = model, outputs, gradients

    def forward(self, *inputs: Tensor) -> Tensor:
        """Return (1 + `outputs`) times the model's result; gradients are (1 + `gradients`) times its."""
        result = self.model(*inputs) * (1 + self.gradients)
        scaled: Tensor = result - (result - result / (1 + self.gradients) * (1 + self.outputs)).detach()
        return scaled


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("part", "message"), [("outputs", "output 0"), ("gradients", "gradient of 0.weight")]
)
def test_a_way_with_wrong_results_is_not_timed(
    mode: str, part: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong = Way("wrong", lambda: lambda model: Shifted(model, **{part: 1e-3}))
    monkeypatch.setitem(WAYS, "wrong", wrong)
    session = worker.Session("wrong")
    if (mode, part) == ("inference", "gradients"):
        session.prepare("linear-10", "float32", mode)
    else:
        with pytest.raises(WrongResult, match=f"{message} is .* from the exact result"):
            session.prepare("linear-10", "float32", mode)


def test_a_whole_step_with_a_wrong_loss_is_not_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = Way("wrong", lambda: lambda step: lambda *inputs: step(*inputs) * 1.001)
    monkeypatch.setitem(WAYS, "wrong", wrong)
    with pytest.raises(WrongResult, match=r"^loss of step 1 is .* from the exact result"):
        worker.Session("wrong").prepare("linear-10", "float32", "step")


@pytest.mark.parametrize("workload", one_in(8, sorted(WORKLOADS.keys() - {"layers-32", "LLaMAMLP-4096"})))
@pytest.mark.parametrize("way", ["thunder-torch"])
def test_a_workload_compiles_to_eager_results_in_both_dtypes(way: str, workload: str) -> None:
    session = worker.Session(way)
    for dtype in DTYPES:
        for mode in (*MODES, *STEP):
            assert session.prepare(workload, dtype, mode)["error"] <= 1


def test_results_may_be_as_inexact_as_those_of_eager() -> None:
    exact = [torch.ones(100, dtype=torch.float64)]
    eager = [torch.full((100,), 1.01, dtype=torch.bfloat16)]
    near, far = ([torch.full((100,), value, dtype=torch.bfloat16)] for value in (1.015, 1.05))
    assert check_results(["x"], near, eager, exact) < 1
    with pytest.raises(WrongResult, match=r"^x is 0\.469 from the exact result, eager 0\.0781$"):
        check_results(["x"], far, eager, exact)
    with pytest.raises(WrongResult, match=r"^x is torch\.float32 \(100,\), in eager torch\.bfloat16 "):
        check_results(["x"], [near[0].float()], eager, exact)
    with pytest.raises(WrongResult, match=r"^there are 0 results, 1 in eager$"):
        check_results(["x"], [], eager, exact)


def test_a_worker_reports_its_failures_and_its_end(tmp_path: Path) -> None:
    with Worker(Interpreters(None), "eager", tmp_path) as process:
        with pytest.raises(Failure, match=r"^KeyError: 'nothing'$"):
            process.ask("prepare", workload="nothing", dtype="float32", mode="inference")
        process.ask("prepare", workload="linear-1", dtype="float32", mode="inference")
        assert process.ask("warm_up", budget_us=100.0)["calls"] >= 1
        process._process.kill()
        with pytest.raises(Failure, match=r"^the process ended with status -9: no output$"):
            process.ask("time")


def test_a_peer_finds_the_harness_and_none_of_the_other_packages(tmp_path: Path) -> None:
    interpreters = Interpreters(sys.executable)
    path = interpreters.environment("lightning", tmp_path)["PYTHONPATH"]
    assert sorted(file.name for file in Path(path).iterdir()) == ["thunder_benchmarks"]
    program = "import sys, thunder_benchmarks.worker; sys.exit('thunder' in sys.modules)"
    assert run_python("-c", program, env={"PYTHONPATH": path}).returncode == 0


def entry(way: str, mode: str = "inference", failed: str | None = None, **values: Any) -> Entry:
    """Return a measured entry of LLaMAMLP."""
    return Entry("LLaMAMLP", "float32", mode, way, values, failed)


def test_speeds_are_ratios_of_the_same_rounds_with_their_geometric_mean() -> None:
    entries = [
        entry("eager", us=[1000.0, 2000.0, 3000.0]),
        entry("compile", us=[500.0, 1000.0, 1500.0]),
        entry("thunder-inductor", us=[250.0, 500.0, 1500.0]),
        entry("eager", "training", us=[4000.0]),
        entry("compile", "training", us=[8000.0]),
        entry("thunder-inductor", "training", failed="WrongResult: output 0 is 1 from the exact result"),
    ]
    lines = markdown(rendered(TABLES["speed"], entries)).splitlines()
    cells = [[cell.strip() for cell in line.split("|")[4:-1]] for line in lines[:5]]
    assert cells[0] == [
        "eager, ms",
        "torch.compile ÷ eager",
        "thunder, inductor ÷ eager",
        "torch.compile ÷ thunder, inductor",
    ]
    assert cells[2] == ["2 ± 0.5", "0.50 ± 0.00", "0.25 ± 0.06", "2.00 ± 0.25"]
    assert cells[3] == ["4 ± 0", "2.00 ± 0.00", "-", "-"]
    assert cells[4] == ["", "1.00", "0.25", "2.00"]
    assert lines[-1] == (
        "thunder, inductor in 1 of 2 rows, the first LLaMAMLP, float32, training: "
        "WrongResult: output 0 is 1 from the exact result."
    )


def test_first_calls_are_compared_with_torch_compile_and_filled_caches_with_empty_ones() -> None:
    entries = [
        entry("compile", cold_s=[10.0], warm_s=[2.0]),
        entry("thunder-inductor", cold_s=[4.0, 6.0], warm_s=[0.5, 0.5]),
    ]
    rows = rendered(TABLES["compile"], entries).rows
    assert [row[3:] for row in rows] == [
        ("torch.compile", "10.00", "1.00", "2.00", "0.20"),
        ("thunder, inductor", "5.00", "0.50", "0.50", "0.10"),
    ]


def test_bytes_are_compared_with_eager() -> None:
    entries = [entry("eager", saved=2**22, peak=2**23), entry("thunder-torch", saved=2**21, peak=2**23)]
    rows = rendered(TABLES["memory"], entries).rows
    assert [row[3:] for row in rows] == [
        ("eager", "4.00", "1.000", "8.00", "1.000"),
        ("thunder, torch", "2.00", "0.500", "8.00", "1.000"),
    ]


def test_a_whole_step_has_a_peak_and_nothing_that_is_saved(tmp_path: Path) -> None:
    plots = pytest.importorskip("thunder_benchmarks.plots", reason="matplotlib draws")
    entries = [entry("eager", saved=None, peak=2**23), entry("thunder-torch", saved=None, peak=2**22)]
    rows = rendered(TABLES["memory"], entries).rows
    assert [row[4:] for row in rows] == [("-", "-", "8.00", "1.000"), ("-", "-", "4.00", "0.500")]
    plots.draw(TABLES["memory"], entries, tmp_path / "memory.png")
    assert (tmp_path / "memory.png").stat().st_size > 0


def test_spreads_are_medians_and_half_the_distance_of_quartiles() -> None:
    assert Spread.of([3.0]) == Spread(3.0, 0.0)
    assert Spread.of([1.0, 2.0, 3.0, 4.0, 100.0]) == Spread(3.0, 1.0)
    assert geometric_mean([0.5, 2.0, 8.0]) == pytest.approx(2.0)


def test_cpu_time_of_child_processes_counts_while_they_run_and_after() -> None:
    program = "import time\nwhile time.process_time() < 0.5: pass\nprint(flush=True)\ninput()"
    before = tree_seconds()
    child = subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert child.stdout is not None
    child.stdout.readline()
    assert tree_seconds() - before >= 0.45
    child.communicate(b"\n")
    assert tree_seconds() - before >= 0.45


def test_calls_are_as_many_as_take_the_budget() -> None:
    assert calls_in(lambda: sum(range(1_000_000)), budget_us=10) == 1
    assert calls_in(lambda: None, budget_us=1_000) > 100


def test_times_are_medians_in_microseconds_per_call() -> None:
    times = interleaved({"loop": lambda: sum(range(20_000)), "nothing": lambda: None}, 3, budget_us=2_000)
    assert list(times) == ["loop", "nothing"]
    assert all(microseconds > 0 for microseconds in times.values())


def test_saved_bytes_count_each_storage_once_and_no_existing_one() -> None:
    weight, x = torch.ones(10, 10, requires_grad=True), torch.ones(10, 10)

    def forward() -> Tensor:
        hidden = (x @ weight).sin()  # saves x, and the argument of sin: 400 bytes
        return (hidden[:5] * hidden[5:]).sum()  # saves two views of one storage: 400 bytes

    assert saved_bytes(forward, (weight, x)) == 800
    assert saved_bytes(forward, (weight,)) == 1_200
    with pytest.raises(ValueError, match="the result has no graph"):
        saved_bytes(lambda: x, ())


def test_peak_bytes_are_the_highest_sum_of_what_is_allocated() -> None:
    def step() -> None:
        a = torch.zeros(1_000)
        b = a + 1
        del a
        c = torch.zeros(1_500)
        del b, c
        torch.zeros(500)

    assert peak_bytes(step) == 4 * (1_000 + 1_500)
