"""The last checkpoints of a training: which is loaded, what is kept, what they restore."""

from __future__ import annotations

import errno
import os
import random
from pathlib import Path

import pytest
import torch
from torch import nn

import thunder
from thunder.distributed import CheckpointCorrupted, CheckpointNotSaved, Checkpoints, load, save
from thunder_distributed import checkpoint_files

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is disabled")


class Training:
    """A model with dropout, and its optimizer."""

    def __init__(self, seed: int = 0) -> None:
        torch.manual_seed(seed)
        random.seed(seed)
        self.model = nn.Sequential(nn.Linear(3, 8), nn.Dropout(0.5), nn.Linear(8, 1)).double()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.1)
        self.own = torch.Generator().manual_seed(seed)

    def step(self) -> float:
        x = torch.randn(4, 3, dtype=torch.float64, generator=self.own) * random.gauss(0.0, 1.0)
        self.optimizer.zero_grad()
        loss = self.model(x).square().mean()
        loss.backward()
        self.optimizer.step()
        return loss.item()

    def checkpoints(self, folder: Path, **options) -> Checkpoints:
        return Checkpoints(folder / "runs", generators={"data": self.own}, **options)


def saved(folder: Path, steps: int, **options) -> list[float]:
    """Train, and save each step; return the losses of three more steps."""
    training = Training()
    checkpoints = training.checkpoints(folder, **options)
    for step in range(1, steps + 1):
        training.step()
        checkpoints.save(training.model, training.optimizer, step)
    losses = [training.step() for _ in range(3)]
    checkpoints.wait()
    return losses


def names(folder: Path) -> list[int]:
    return sorted(int(path.name.removeprefix("step-")) for path in (folder / "runs").iterdir())


def changed(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def shortened(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def of_step(folder: Path, step: int) -> Path:
    return folder / "runs" / f"step-{step:012}"


def test_a_restart_draws_and_computes_as_the_run_would_have(tmp_path: Path):
    expected = saved(tmp_path, 3)
    other = Training(seed=5)
    assert other.checkpoints(tmp_path).load(other.model, other.optimizer) == 3
    assert [other.step() for _ in range(3)] == expected


def test_a_training_without_checkpoints_begins_at_step_0(tmp_path: Path):
    training = Training()
    assert training.checkpoints(tmp_path).load(training.model, training.optimizer) == 0


@pytest.mark.parametrize("keep", [1, 3])
def test_as_many_checkpoints_are_kept_as_one_wants(tmp_path: Path, keep: int):
    saved(tmp_path, 5, keep=keep)
    assert names(tmp_path) == list(range(6 - keep, 6))


@pytest.mark.parametrize(
    ("file", "damage", "reason"),
    [
        ("__0_0.distcp", changed, "has other bytes than those that were written"),
        (
            "__0_0.distcp",
            shortened,
            r"has \d+ bytes, and \d+ were",
        ),
        ("__0_0.distcp", Path.unlink, "cannot be read: No such file"),
        (".metadata", changed, "has other bytes than those that were written"),
        ("digests.json", Path.unlink, "is missing"),
        ("digests.json", lambda path: path.write_text("{"), "is not the text that was written"),
    ],
)
def test_a_corrupted_checkpoint_is_named_and_the_one_before_is_loaded(tmp_path: Path, file, damage, reason):
    saved(tmp_path, 3)
    damage(of_step(tmp_path, 3) / file)
    training = Training()
    checkpoints = training.checkpoints(tmp_path)
    with pytest.warns(UserWarning, match=rf"step-000000000003 is passed over: {file} {reason}"):
        assert checkpoints.load(training.model, training.optimizer) == 2
    assert list(checkpoints.skipped) == [of_step(tmp_path, 3)]


@pytest.mark.filterwarnings("ignore:the checkpoint")
def test_it_is_an_error_if_no_checkpoint_is_good(tmp_path: Path):
    saved(tmp_path, 3)
    for step in (2, 3):
        changed(of_step(tmp_path, step) / "__0_0.distcp")
    training = Training()
    with pytest.raises(CheckpointCorrupted, match=r"is good\n  step-000000000003: .*\n  step-000000000002: "):
        training.checkpoints(tmp_path).load(training.model, training.optimizer)


def test_what_interrupted_saves_and_removals_have_left_is_no_checkpoint(tmp_path: Path):
    saved(tmp_path, 2)
    of_step(tmp_path, 2).rename(of_step(tmp_path, 2).with_suffix(".partial"))
    (of_step(tmp_path, 9)).mkdir()
    training = Training()
    checkpoints = training.checkpoints(tmp_path)
    assert checkpoints.load(training.model, training.optimizer) == 1
    checkpoints.save(training.model, training.optimizer, 3)
    checkpoints.wait()
    assert not list((tmp_path / "runs").glob("*.partial"))


def test_the_error_of_a_save_is_raised_by_the_next_call_and_the_last_one_is_as_it_was(
    tmp_path: Path, monkeypatch
):
    saved(tmp_path, 1)
    training = Training()
    checkpoints = training.checkpoints(tmp_path)

    def full(folder: Path) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(checkpoint_files, "_sync", full)
        checkpoints.save(training.model, training.optimizer, 2)
        with pytest.raises(CheckpointNotSaved, match=r"No space left on device\nThe last complete .*001\."):
            checkpoints.wait()
    assert checkpoints.load(training.model, training.optimizer) == 1


def test_a_single_checkpoint_is_compared_with_its_digests_too(tmp_path: Path):
    training = Training()
    save(training.model, training.optimizer, 7, tmp_path / "one")
    assert load(training.model, training.optimizer, tmp_path / "one") == 7
    changed(tmp_path / "one" / "__0_0.distcp")
    with pytest.raises(CheckpointCorrupted, match=r"one is corrupted\n  __0_0.distcp:  has other bytes"):
        load(training.model, training.optimizer, tmp_path / "one")


def test_a_folder_keeps_at_least_one_checkpoint():
    with pytest.raises(thunder.InvalidArgument, match="keep=0 keeps no checkpoint"):
        Checkpoints("runs", keep=0)
