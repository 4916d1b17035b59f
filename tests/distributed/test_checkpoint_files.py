"""Checkpoints that are saved while training goes on, and processes that are killed meanwhile."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.distributed.checkpoint.api import CheckpointException

import thunder
from distributed.launching import Outcome
from new_processes import run_python
from thunder.distributed.checkpoint import async_save, load, save

pytestmark = pytest.mark.multi_process
PROGRAM = Path(__file__).with_name("killed_saves.py")


@pytest.mark.parametrize("kind", ["asynchronous", "synchronous"])
def test_a_save_that_is_killed_leaves_a_complete_checkpoint(whole_run, kind: str):
    if kind == "synchronous" and not whole_run:
        pytest.skip("the files are written by the same writer; the sweep kills both")
    run = run_python(str(PROGRAM), kind, "1" if whole_run else "3")
    assert run.returncode == 0, run.stderr
    results = json.loads(run.stdout)
    assert [killed for *_, killed in results] == [*[True] * (len(results) - 1), False]
    assert len(results) > (20 if whole_run else 7)
    newest = 0
    for index, (returned, values, _) in enumerate(results):
        (value,) = values  # all tensors are of one checkpoint
        assert value in (newest, 2 * index + 1, 2 * index + 2)
        assert value >= returned
        newest = value
    assert newest == returned


def test_a_checkpoint_is_saved_while_training_goes_on(outcomes: dict[str, list[Outcome]]):
    for outcome in outcomes["saved_while_training"]:
        assert outcome.get() < 1e-10


def test_processes_that_are_killed_leave_the_last_complete_checkpoint(outcomes):
    survivor, killed = outcomes["killed_while_saving"]
    assert killed.error == "killed"
    folder, returned, error = survivor.get()
    assert error != "no error"
    state = nn.Linear(3, 7).state_dict()
    load(state, folder, no_dist=True)
    (value,) = {value for tensor in state.values() for value in tensor.flatten().tolist()}
    assert returned <= value <= returned + 1


def test_a_checkpoint_replaces_no_other_files(tmp_path: Path):
    (tmp_path / "notes.txt").touch()
    with pytest.raises(
        thunder.InvalidArgument, match=r"other files than those of a checkpoint\n.*notes\.txt"
    ):
        save({"a": torch.ones(1)}, tmp_path, no_dist=True)


def test_the_error_of_an_asynchronous_save_is_raised_by_the_next_one(tmp_path: Path):
    (tmp_path / "file").touch()
    async_save({"a": torch.ones(1)}, tmp_path / "file" / "run", no_dist=True)
    with pytest.raises(CheckpointException, match="NotADirectoryError"):
        save({"a": torch.ones(1)}, tmp_path / "run", no_dist=True)
    save({"a": torch.ones(1)}, tmp_path / "run", no_dist=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "run"]


def test_a_relative_path_is_that_of_the_current_folder(tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    save({"a": torch.ones(2)}, "run", no_dist=True)
    save({"a": torch.ones(2) * 2}, Path("run"), no_dist=True)
    state = {"a": torch.zeros(2)}
    load(state, tmp_path / "run", no_dist=True)
    assert state["a"].tolist() == [2, 2]
