"""`python -m thunder bisect`: what it prints, the reproducers that it writes, and its exit status."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from new_processes import run_python
from thunder.__main__ import main

PROGRAM = """
import torch
import torch.nn.functional as F

import thunder
from thunder.extend import OperatorExecutor

wrong = OperatorExecutor("wrong_of_command")
gelu = wrong.register_operator("gelu", like=thunder.torch.gelu, fn=lambda x, approximate: F.gelu(x) + 1)
wrong.register_implementation("torch.nn.functional.gelu", gelu)


def right(x):
    return F.gelu(x * 2)


program = thunder.jit(right, executors=[wrong])


def inputs():
    return torch.linspace(-2, 2, 24).reshape(4, 6)
"""


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.syspath_prepend("")
    monkeypatch.delitem(sys.modules, "wrong_program", raising=False)
    path = tmp_path / "wrong_program.py"
    path.write_text(PROGRAM, encoding="utf-8")
    return path


def test_a_file_is_bisected_and_its_reproducer_runs_anywhere(
    script: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(["bisect", str(script), "--folder", str(tmp_path)]) == 1
    printed = capsys.readouterr().out
    assert "a value is wrong, by wrong_of_command" in printed
    assert "wrong_program.py" in printed
    monkeypatch.undo()
    done = run_python(str(tmp_path / "bisect_0.py"), cwd=tmp_path.parent, imported=("torch", "thunder"))
    assert (done.returncode, done.stderr) == (1, "")
    assert "elements differ" in done.stdout


def test_a_right_function_has_exit_status_0(script: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bisect", f"{script}:right", "--executors", "torch"]) == 0
    assert "no difference beyond rounding" in capsys.readouterr().out


def test_wrong_arguments_have_exit_status_2(script: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bisect", f"{script}:absent"]) == 2
    assert "absent" in capsys.readouterr().err
    assert main(["bisect", f"{script}:right", "--executors", "torch", "--tolerance", "0"]) == 2
    assert "not positive" in capsys.readouterr().err
