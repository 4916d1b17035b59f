"""The scripts beside the tables run and print. Nothing here depends on how fast anything is."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from new_processes import run_python
from sweeping import one_in

ROOT = Path(__file__).resolve().parents[2]

#: script and options → the first cells that it prints
SCRIPTS: dict[str, tuple[str, list[str]]] = {
    "import_time.py": ("--repeats 1", ["statement", "import torch", "import thunder, after torch"]),
    "kernel_bandwidth.py": (
        "--device cpu --executors torch --ways eager thunder --rows 4 --width 8 --dtype float32 --repeats 1 "
        "--operations SwiGLU RMSNorm",
        ["operation", "SwiGLU", "SwiGLU", "RMSNorm", "RMSNorm", "geometric mean"],
    ),
    "ledger_cost.py": ("--layers 1 --executors 0 2 --repeats 1", ["executors that refuse", "0", "2"]),
}


@pytest.mark.parametrize("script", one_in(3, SCRIPTS, start=1))
def test_a_script_prints_its_table(script: str) -> None:
    options, cells = SCRIPTS[script]
    paths = (str(ROOT / "packages" / "thunder-benchmarks" / "src"), os.environ.get("PYTHONPATH"))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
    run = run_python(str(ROOT / "benchmarks" / script), *options.split(), env=environment)
    assert run.returncode == 0, run.stderr
    rows = [line for line in run.stdout.splitlines() if line.startswith("| ")]
    assert [row.split("|")[1].strip() for row in rows] == cells
