"""Delayed scaling in two gloo processes: the state of each is that of one process on the whole batch."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from new_processes import run_python

pytestmark = pytest.mark.multi_process

PROGRAM = '''
import os, sys
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn

import thunder
import thunder_te
from thunder.executors.transformer_engineex import (
    DelayedScaling, TransformerEngineTransform, autocast, fp8_reference_ex,
)
from thunder.plugins import get_manager

STEPS = 3


def trained(rank, reduces, group=None):
    """The state after some steps, whose batches are those of a process, or of both for None."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(32, 16))
    transform = TransformerEngineTransform(amax_history_len=4)
    module = thunder.jit(net, executors=[fp8_reference_ex], transforms=[transform])
    recipe = DelayedScaling(amax_history_len=4, reduce_amax=reduces)
    for step in range(STEPS):
        torch.manual_seed(step)
        x, g = torch.randn(32, 32), torch.randn(32, 16)
        x[:16] *= 3  # the largest inputs are those of rank 0, the largest cotangents those of rank 1
        g[16:] *= 5
        rows = slice(None) if rank is None else slice(16 * rank, 16 * rank + 16)
        with autocast(recipe=recipe, amax_reduction_group=group):
            module(x[rows]).backward(g[rows])
    return {name: tensor.clone() for name, tensor in module.state_dict().items() if "fp8" in name}


folder = sys.argv[1]
child = os.fork()
rank = 1 if child == 0 else 0
get_manager().register(thunder_te, "te-under-test")
dist.init_process_group(
    "gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2, timeout=timedelta(seconds=60)
)
alone = [dist.new_group([0]), dist.new_group([1])]
results = {
    "all": trained(rank, True),
    "own": trained(rank, False),
    "own by group": trained(rank, True, alone[rank]),
}
dist.barrier()
dist.destroy_process_group()
results["whole batch"] = trained(None, True)
torch.save(results, f"{folder}/rank{rank}.pt")
if rank == 1:
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
'''


def test_the_largest_magnitudes_are_those_of_all_processes_of_the_group(tmp_path: Path):
    done = run_python("-c", PROGRAM, str(tmp_path))
    assert done.returncode == 0, done.stderr
    first, second = (torch.load(tmp_path / f"rank{rank}.pt") for rank in range(2))
    whole = first["whole batch"]
    assert len(whole) == 2
    for name, tensor in whole.items():
        for result in (first, second):
            torch.testing.assert_close(result["all"][name], tensor)
        if name.endswith("amax_history"):
            assert (tensor[-3:] > 0).all(), "three steps were noted"
    for kind in ("own", "own by group"):
        name = "0.weight.fp8_amax_history"
        assert not torch.allclose(first[kind][name], second[kind][name])
        larger = torch.maximum(first[kind][name], second[kind][name])
        torch.testing.assert_close(larger[:, :2], whole[name][:, :2])
    for name, tensor in first["own"].items():
        assert torch.equal(tensor, first["own by group"][name])
