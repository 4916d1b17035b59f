"""The inference example does what it says: it compares, prints both traces and gives the times of one run."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from new_processes import run_python

INFERENCE = Path(__file__).resolve().parents[2] / "examples" / "inference.py"


@pytest.mark.parametrize("arguments", [(), ("--untied", "--layers", "1")], ids=["tied", "untied"])
def test_inference_compiles_compares_and_prints(arguments: tuple[str, ...]):
    run = run_python(str(INFERENCE), "--repeats", "2", *arguments)
    assert run.returncode == 0, run.stderr
    assert re.findall(r"^def (\w+)\(", run.stdout, re.MULTILINE) == ["prologue", "computation"]
    assert "compiled equals eager, bit by bit" in run.stdout
    assert re.findall(r"^(.+?) +[\d.]+ ms ", run.stdout, re.MULTILINE) == [
        "eager",
        "thunder",
        "thunder, first call",
    ]
