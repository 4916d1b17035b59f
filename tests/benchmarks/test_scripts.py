"""The benchmarks run and print their tables. Nothing here depends on how fast anything is."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from measure import interleaved, print_table
from sweeping import one_in
from training_memory import peak_bytes, saved_bytes

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
#: the ways to call a compiled program that the scripts compare
FORMS = ("thunder", "thunder, frozen", 'thunder, "same input"')


def first_cells(script: str, *arguments: str) -> list[str]:
    """Runs a script and returns the first cell of each row that it prints, heads included."""
    command = [sys.executable, str(BENCHMARKS / script), *arguments]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    rows = [line for line in run.stdout.splitlines() if line.startswith("| ")]
    return [row.split("|")[1].strip() for row in rows]


#: script and options → the first cells that it prints
SCRIPTS: dict[str, tuple[str, list[str]]] = {
    "import_time.py": ("--repeats 1", ["statement", "import torch", "import thunder, after torch"]),
    "cold_training.py": ("--layers 1 --repeats 1 --ways thunder", ["compiler", "thunder"]),
    "warm_call.py": (
        "--layers 1 2 --repeats 2 --ways thunder",
        ["way", "eager", *FORMS, "bare", "overhead", *(f"{form}, minus bare" for form in FORMS)],
    ),
    "training_memory.py": (
        "mlp --width 32 --rows 2 --length 16 --ways eager thunder",
        ["way", "eager", "thunder"],
    ),
    "warm_training.py": (
        "--layers 1 2 --repeats 2 --ways thunder",
        ["way", "eager", *FORMS[:2], "overhead", *(f"{form}, minus eager" for form in FORMS[:2])],
    ),
    "cold_start.py": (
        "--layers 1 --repeats 1 --ways thunder dynamo",
        ["compiler", "thunder", 'torch.compile, "eager"'],
    ),
    "ledger_cost.py": ("--layers 1 --executors 0 2 --repeats 1", ["executors that refuse", "0", "2"]),
}


@pytest.mark.parametrize("script", one_in(2, SCRIPTS))
def test_a_script_prints_its_table(script: str):
    options, cells = SCRIPTS[script]
    assert first_cells(script, *options.split()) == cells


def test_saved_bytes_count_each_storage_once_and_no_existing_one():
    weight, x = torch.ones(10, 10, requires_grad=True), torch.ones(10, 10)

    def forward() -> torch.Tensor:
        hidden = (x @ weight).sin()  # saves x, and what sin was taken of: 400 bytes
        return (hidden[:5] * hidden[5:]).sum()  # saves two views of one storage: 400 bytes

    assert saved_bytes(forward, (weight, x)) == 800
    assert saved_bytes(forward, (weight,)) == 1_200


def test_peak_bytes_are_the_highest_sum_of_what_is_allocated():
    def step() -> None:
        a = torch.zeros(1_000)
        b = a + 1
        del a
        c = torch.zeros(1_500)
        del b, c
        torch.zeros(500)

    assert peak_bytes(step) == 4 * (1_000 + 1_500)


def test_times_are_medians_in_microseconds_per_call():
    times = interleaved({"loop": lambda: sum(range(20_000)), "nothing": lambda: None}, 3, budget_us=2_000)
    assert list(times) == ["loop", "nothing"]
    assert all(microseconds > 0 for microseconds in times.values())


def test_tables_are_markdown(capsys: pytest.CaptureFixture[str]):
    print_table(("name", "s"), [("a", "1.25"), ("longer", "2")])
    assert capsys.readouterr().out == (
        "| name   |    s |\n|--------|------|\n| a      | 1.25 |\n| longer |    2 |\n"
    )
