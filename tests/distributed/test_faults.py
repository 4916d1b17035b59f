"""What fails in one process is named by all of them in seconds, in real processes of gloo."""

from __future__ import annotations

import json
import os
import random
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import nn

import thunder
from distributed import faults
from distributed.launching import ROOT
from new_processes import run_python
from thunder.distributed import ProgramsDiffer, fsdp, run_ranks

pytestmark = pytest.mark.multi_process

#: much less than the timeout of the groups, and enough for a loaded machine
SOON = 60.0
assert SOON < faults.TIMEOUT / 5
#: fault → what each of the others says, in which RANK is the one with the fault
NAMED = {
    "kill": r"ProcessMissing: rank RANK did not take part in all_gather, number 1 of 4(?s:.*)\n  ended: ",
    "stop": r"ProcessMissing: rank RANK did not take part in all_gather, number 1 of 4(?s:.*)\n  silent: ",
    "stop_before_it_compiles": r"ProcessMissing: rank RANK has not begun a program(?s:.*)\n  silent: ",
    "slow": r"no error",
    "store": r"ProcessMissing: the comparison of programs fails, and the store .* cannot be reached",
    "code": r"ProgramsDiffer: .*with other statements(?s:.*)\n  rank RANK:  t1 = tanh\(t0\)",
    "weights": r"WeightsDiffer: .*(?s:.*)\n  rank RANK:  first.weight float64\[4, 4\] requires grad 0x",
    "modules": r"WeightsDiffer: .*(?s:.*)\n  rank RANK:  0.weight float32\[3, 4\] requires grad\n",
    "programs": r"ProgramsDiffer: .*with other collectives(?s:.*)\n  rank RANK:  .* of t_right_weight",
    "order": r"ProgramsDiffer: .*with other collectives(?s:.*)\n  rank RANK:  .* of t_right_weight",
    "disk": r"CheckpointNotSaved: .*\n  rank RANK:  OSError: \[Errno 27\] File too large",
    "corrupted": r"no error",
}
NOTED = {
    "disk": r"step 1",
    "corrupted": r"step 1: .*step-000000000002 is passed over: __0_0.distcp has other bytes than",
}
assert NAMED.keys() == faults.FAULTS.keys()


def checked(fault: str, size: int, rank: int, folder: Path) -> None:
    variables = os.environ | {"THUNDER_DISABLE_PLUGINS": ""}
    run = run_python(faults.__file__, str(folder), fault, str(size), str(rank), env=variables)
    assert run.returncode == 0, run.stderr
    became = json.loads(run.stdout.splitlines()[-1])
    for other, (error, seconds, note) in enumerate(became):
        if other == rank and fault.startswith(("kill", "stop")):
            assert error == "ended"
            continue
        assert re.match(NAMED[fault].replace("RANK", str(rank)), error), (other, error)
        assert re.match(NOTED.get(fault, "$"), note), (other, note)
        assert fault == "corrupted" or seconds < SOON


def test_a_process_that_is_stopped_is_named(tmp_path: Path):
    checked("stop", 2, 1, tmp_path)


class Activated(nn.Module):
    """A layer with an activation, which is the code of a rank."""

    def __init__(self, activation) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer, self.activation = nn.Linear(4, 4), activation

    def forward(self, x):
        return self.activation(self.layer(x)).sum()


@pytest.mark.parametrize("rank", range(4))
def test_the_rank_with_other_code_is_named_also_if_one_has_a_ragged_batch(rank: int):
    def program() -> None:
        own = dist.get_rank()
        compiled = thunder.jit(Activated(torch.tanh if own == rank else torch.relu), transforms=[fsdp()])
        compiled(torch.ones(3 if own == (rank + 1) % 4 else 2, 4))

    usual = min({0, 1, 2, 3} - {rank, (rank + 1) % 4})
    shown = rf"rank {usual}:  t1 = relu\(t0\)\n  rank {rank}:  t1 = tanh\(t0\)\n  like rank {usual}:  "
    with pytest.raises(ProgramsDiffer, match=shown):
        run_ranks(program, 4)


@pytest.mark.sweep
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("fault", NAMED)
def test_a_fault_is_named_by_all(fault: str, seed: int, tmp_path: Path):
    r = random.Random(f"{fault} {seed}")
    size = r.choice([3, 4])  # of two, each may be the one with the fault
    checked(fault, size, r.randrange(size), tmp_path)


# -- under torchrun ------------------------------------------------------------------------------------------


def trained(folder: Path, processes: int, *arguments: str) -> list[tuple[int, float]]:
    """Run the example under torchrun; return the steps and losses that it prints."""
    program = str(ROOT / "examples" / "elastic_training.py")
    launcher = ["-m", "torch.distributed.run", "--standalone", "--max-restarts=2"]
    given = [f"--nproc-per-node={processes}", program, f"--folder={folder}", *arguments]
    variables = {"THUNDER_DISABLE_PLUGINS": "", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    run = subprocess.run(
        [sys.executable, *launcher, *given],
        capture_output=True,
        text=True,
        env=os.environ | variables,
        timeout=600,
    )
    assert run.returncode == 0, run.stderr[-5000:]
    assert ("ProcessMissing: rank 1" in run.stderr) is ("--lose" in arguments)
    lines = re.findall(r"^step (\d+) loss (\S+)$", run.stdout, re.MULTILINE)
    return [(int(step), float(loss)) for step, loss in lines]


@pytest.mark.sweep
@pytest.mark.parametrize("how", ["kill", "stop"])
def test_a_training_that_torchrun_restarts_goes_on_as_if_nothing_had_happened(how: str, tmp_path: Path):
    calm = trained(tmp_path / "calm", 2)
    assert [step for step, _ in calm] == list(range(1, 11))
    lost = trained(tmp_path / "lost", 2, "--lose", "5", "--how", how, "--hang-timeout", "2")
    steps = [step for step, _ in lost]
    assert steps[:5] == [1, 2, 3, 4, 5]
    assert steps[5:] in ([3, 4, 5, 6, 7, 8, 9, 10], [5, 6, 7, 8, 9, 10])  # that of step 4 may be complete
    for step, loss in lost:
        assert abs(loss - dict(calm)[step]) <= 1e-12


@pytest.mark.sweep
def test_another_number_of_processes_goes_on_with_a_training(tmp_path: Path):
    calm = dict(trained(tmp_path / "calm", 2, "--dropout", "0"))
    begun = trained(tmp_path / "run", 2, "--dropout", "0", "--steps", "4")
    more = trained(tmp_path / "run", 3, "--dropout", "0", "--steps", "8")
    alone = trained(tmp_path / "run", 1, "--dropout", "0")
    assert [step for step, _ in (*begun, *more, *alone)] == list(range(1, 11))
    for step, loss in (*begun, *more, *alone):
        assert abs(loss - calm[step]) <= 1e-12
