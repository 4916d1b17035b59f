"""The scripts that `save_reproducer_to_folder` writes run, and compare."""

from __future__ import annotations

import runpy

import pytest
import torch
from torch.utils.checkpoint import checkpoint

import thunder
from thunder.dynamo import thunderfx


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = torch.nn.Embedding(5, 4)

    def forward(self, i):
        x = self.table(i)
        return checkpoint(lambda a: a.sin() @ self.table.weight.T, x, use_reentrant=False)


@pytest.mark.parametrize("serialize", [False, True], ids=["random inputs", "saved inputs"])
def test_a_reproducer_runs(serialize, tmp_path, capsys):
    net, indices = Net(), torch.tensor([1, 4])
    compiled = thunderfx(net, executors=["torch"])
    compiled(indices)
    (path,) = compiled.backend.save_reproducer_to_folder(tmp_path, serialize_inputs=serialize)
    runpy.run_path(str(path), run_name="__main__")
    assert "thunder and eager agree" in capsys.readouterr().out
    assert (tmp_path / "graph0.inputs.pt").exists() is serialize


def test_a_benchmark_has_a_test_for_each_compiler(tmp_path):
    compiled = thunderfx(torch.sin)
    compiled(torch.ones(2))
    (path,) = compiled.backend.save_reproducer_to_folder(tmp_path, use_pytest_benchmark=True)
    module = runpy.run_path(str(path))
    calls = []
    for name in ("test_eager", "test_thunder"):
        module[name](lambda f: calls.append(f()))
    torch.testing.assert_close(calls[0][0].shape, calls[1][0].shape)


def test_inputs_that_are_gone_cannot_be_saved(tmp_path):
    compiled = thunderfx(torch.sin)
    compiled(torch.ones(2))
    with pytest.raises(thunder.InvalidArgument, match="input 0, which does not exist any more"):
        compiled.backend.save_reproducer_to_folder(tmp_path, serialize_inputs=True)
