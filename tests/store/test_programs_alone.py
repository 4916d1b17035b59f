"""An artefact with weights computes without its model what the model computes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch

import thunder
from new_processes import run_python
from store.kept_worlds import write
from thunder_store import ArtefactError
from thunder_store.environment import _AT_START

MODEL = """
import torch
from torch import nn

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(4), nn.Linear(4, 8), nn.Linear(8, 4)
        self.down.weight = nn.Parameter(self.up.weight.detach().clone().t())  # not contiguous
        self.register_buffer("scale", torch.tensor(2.0))

    def forward(self, x, *, times=1):
        for _ in range(times):
            x = x + self.down(nn.functional.gelu(self.up(self.norm(x)))) * self.scale
        return {"y": x, "shape": x.shape}
"""
SAVE = """
import torch, thunder, thunder_store
from thunder.plugins import get_manager
get_manager().register(thunder_store, "store-under-test")
import model
torch.manual_seed(0)
block = model.Block().eval()
compiled = thunder.jit(block, executors=["torch"])
x = torch.linspace(-1, 1, 8).reshape(2, 4)
with torch.no_grad():
    torch.save([compiled(x)["y"], compiled(x, times=2)["y"]], "expected")
assert thunder.save(compiled, "block.thunder", weights=True) == []
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an artefact, and without the source of its model."""
    folder = tmp_path_factory.mktemp("alone")
    write(folder, {"model.py": MODEL})
    path = os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])
    # the variables that this process began with: libraries have added others since
    environment = {**_AT_START, "PYTHONPATH": path}
    ran = run_python("-c", SAVE, env=environment, cwd=folder, imported=("thunder", "thunder_store.entries"))
    assert ran.returncode == 0, ran.stderr
    (folder / "model.py").unlink()
    return folder


def test_it_computes_what_the_model_computed(folder: Path) -> None:
    loaded = thunder.load(folder / "block.thunder")
    x = torch.linspace(-1, 1, 8).reshape(2, 4)
    once, twice = torch.load(folder / "expected")
    with torch.no_grad():
        for _ in range(2):
            found = loaded(x)
            torch.testing.assert_close(found["y"], once, rtol=0, atol=0)
            assert found["shape"] == x.shape
            torch.testing.assert_close(loaded(x, times=2)["y"], twice, rtol=0, atol=0)


@pytest.mark.parametrize(
    ("x", "keywords", "reason"),
    [
        (torch.zeros(3, 4), {}, "metadata of"),
        (torch.zeros(2, 4, dtype=torch.float64), {}, "metadata of"),
        (torch.zeros(2, 4), {"times": 3}, "value of kwargs"),
    ],
    ids=["shape", "dtype", "number"],
)
def test_another_call_is_an_error_with_reasons(
    folder: Path, x: torch.Tensor, keywords: dict[str, int], reason: str
) -> None:
    loaded = thunder.load(folder / "block.thunder")
    with torch.no_grad(), pytest.raises(ArtefactError, match="is for the call") as error:
        loaded(x, **keywords)
    assert reason in str(error.value)


def test_with_gradients_on_it_is_another_call(folder: Path) -> None:
    loaded = thunder.load(folder / "block.thunder")
    with pytest.raises(ArtefactError, match="is for the call") as error:
        loaded(torch.zeros(2, 4))
    assert "ambient state" in str(error.value)


def test_an_artefact_without_weights_needs_its_model(tmp_path: Path) -> None:
    model = torch.nn.Linear(2, 2)
    compiled = thunder.jit(model, executors=["torch"])
    compiled(torch.zeros(1, 2))
    thunder.save(compiled, tmp_path / "linear")
    with pytest.raises(ArtefactError, match="has no weights"):
        thunder.load(tmp_path / "linear")
    with pytest.raises(ArtefactError, match="no program"):
        thunder.save(compiled, tmp_path / "training", weights=True)
