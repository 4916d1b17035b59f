"""`python -m thunder tune`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from thunder.__main__ import main
from thunder_autotune import Entry, Figure
from thunder_autotune.lock_files import read
from thunder_autotune.lock_writing import write

ENTRY = Entry(
    kind="call",
    key="torch.sin(cpu f32[4])",
    executor="torch",
    default="torch",
    profile="cpu Toy, 1 thread",
    figures={"torch": Figure(60.0, 2.0)},
    refused={"acme": "it writes to its inputs"},
    versions={"torch": "2.4.0"},
)

PROGRAM = """
import torch

def program(x):
    return torch.sin(x) * 2

def inputs():
    return (torch.ones(3),)
"""


@pytest.fixture
def lock(tmp_path: Path) -> Path:
    path = tmp_path / "thunder.lock.toml"
    write(path, [ENTRY, replace(ENTRY, key="torch.cos(cpu f32[4])", executor="absent", versions={})])
    return path


def test_show_prints_figures_and_what_is_stale(lock: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tune", "show", str(lock)]) == 0
    text = capsys.readouterr().out
    assert "torch        torch.sin(cpu f32[4])\n" in text
    assert (
        "torch 60 µs, acme refused: it writes to its inputs; by default torch; on cpu Toy, 1 thread" in text
    )
    assert "measured with torch 2.4.0, and this is" in text
    assert "absent is not installed" in text


def test_merge_writes_the_entries_of_all(lock: Path, tmp_path: Path) -> None:
    other, output = tmp_path / "other.toml", tmp_path / "both.toml"
    write(other, [replace(ENTRY, executor="acme"), replace(ENTRY, key="torch.exp(cpu f32[4])")])
    assert main(["tune", "merge", str(output), str(lock), str(other)]) == 0
    chosen = {entry.key: entry.executor for entry in read(output)}
    assert chosen == {
        "torch.cos(cpu f32[4])": "absent",
        "torch.exp(cpu f32[4])": "torch",
        "torch.sin(cpu f32[4])": "acme",
    }


def test_prune_removes_what_is_stale_or_absent(lock: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(lock, [*read(lock), replace(ENTRY, key="torch.exp(cpu f32[4])", versions={})])
    assert main(["tune", "prune", str(lock)]) == 0
    assert [entry.key for entry in read(lock)] == ["torch.exp(cpu f32[4])"]
    assert "2 of 3 entries removed" in capsys.readouterr().out


def test_verify_tells_a_program_that_is_not_run_so(
    lock: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "verified_program.py"
    file.write_text(PROGRAM)
    arguments = [str(lock), f"{file}:program", "--executors", "torch"]
    assert main(["tune", "verify", *arguments]) == 0
    assert "is run as" in capsys.readouterr().out
    write(lock, [replace(ENTRY, key="torch.sin(cpu f32[3])", executor="absent")])
    assert main(["tune", "verify", *arguments]) == 1
    assert "which is absent here" in capsys.readouterr().out
    write(lock, [replace(ENTRY, key="torch.mul(cpu f32[3], 2)", executor="python")])
    assert main(["tune", "verify", *arguments]) == 1
    assert "and torch runs it" in capsys.readouterr().out


def test_measure_writes_a_lock_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, output = tmp_path / "measured_program.py", tmp_path / "thunder.lock.toml"
    file.write_text(PROGRAM)
    assert main(["tune", "measure", f"{file}:program", "-o", str(output), "--executors", "torch"]) == 0
    assert read(output) is not None
    assert "no candidate is faster than the default" in capsys.readouterr().out


def test_a_wrong_file_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tune", "show", str(tmp_path / "absent.toml")]) == 2
    assert "there is no lock file" in capsys.readouterr().err
