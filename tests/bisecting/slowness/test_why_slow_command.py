"""`python -m thunder why-slow`: what it prints, and its exit status."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from thunder.__main__ import main
from thunder_bisect.slowness import runs

PROGRAM = """
import torch


def small(x):
    return torch.sin(x)


def inputs():
    return torch.ones(3)
"""


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.syspath_prepend("")
    monkeypatch.delitem(sys.modules, "slow_script", raising=False)
    monkeypatch.setattr(runs, "LIMITS", runs.Limits(seconds=0.03))
    path = tmp_path / "slow_script.py"
    path.write_text(PROGRAM)
    return path


def test_the_command_prints_the_answer(script: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["why-slow", f"{script}:small", "--executors", "torch"]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("a call: ")
    assert "small program" in printed


def test_arguments_are_an_expression(script: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["why-slow", f"{script}:small", "--args", "torch.ones(300_000)", "--executors", "torch"]) == 0
    assert "nothing stands out" in capsys.readouterr().out


def test_a_program_that_does_not_exist_is_refused(script: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["why-slow", f"{script}:large"]) == 2
    assert "large" in capsys.readouterr().err
