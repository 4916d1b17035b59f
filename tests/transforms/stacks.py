"""Stacks of transforms on one small module, and what becomes of its state in files."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import nn

import thunder
from thunder.core.rewrite import replace_input
from thunder.transforms.materialization import MaterializationTransform
from thunder.transforms.quantization import BitsAndBytesLinearQuant4bit, BitsAndBytesLinearQuant8bit
from thunder_transforms.constant_calls import ConstantFolding
from thunder_transforms.cpu_offloading import CPUOffloading
from thunder_transforms.lora import LORATransform
from thunder_transforms.non_finite import NonFiniteDetector
from thunder_transforms.prune_checks import PrunePrologueChecks

TOKENS = torch.tensor([[1, 2, 3], [4, 5, 6]])
MATERIALISED = "materialised"
#: name → the transform
TRANSFORMS: dict[str, Any] = {
    "identity": thunder.Transform,
    "offloading": CPUOffloading,
    "lora": lambda: LORATransform(r=2, weights=["hidden"]),
    "more lora": lambda: LORATransform(r=3, weights=["second"], lora_dropout=0.25),
    "folding": ConstantFolding,
    "pruning": PrunePrologueChecks,
    "detector": NonFiniteDetector,
    "halves": lambda: Halves(),
    "nf4": BitsAndBytesLinearQuant4bit,
    "fp4": lambda: BitsAndBytesLinearQuant4bit("fp4", blocksize=128, double_quantization=True),
    "int8": BitsAndBytesLinearQuant8bit,
}
#: those that store weights in fewer bits
LOSSY = frozenset({"nf4", "fp4", "int8"})


class Halves(thunder.Transform):
    """Stores the bias of a layer as half of it; programs and state dicts double it."""

    name = "second.bias"

    def transform_module(self, model: Any) -> None:
        """Override the bias, on the meta device too."""
        bias = model.get_parameter(self.name)
        model.override(self.name, nn.Parameter(bias.detach() / 2, requires_grad=bias.requires_grad))

    def transform_traces_pre_prologue(self, prologue: Any, computation: Any, epilogue: Any) -> Any:
        """Double the bias where it is read."""
        replace_input(prologue, computation, self.name, lambda bias: bias * 2)
        return prologue, computation, epilogue

    def transform_state_dict_for_submodule(self, model: Any, owner: str, state: dict[str, Any]) -> Any:
        """Halve the bias."""
        return {k: t / 2 if f"{owner}.{k}" == self.name else t for k, t in state.items()}

    def reverse_transform_state_dict_for_submodule(
        self, model: Any, owner: str, state: dict[str, Any]
    ) -> Any:
        """Double the bias."""
        return {k: t * 2 if f"{owner}.{k}" == self.name else t for k, t in state.items()}


class Net(nn.Module):
    """Tied weights, frozen weights, a bias, statistics, integers, and a buffer in no state dict."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(7, 64)
        self.hidden, self.second = nn.Linear(64, 64), nn.Linear(64, 64)
        for layer in (self.hidden, self.second):
            layer.weight.requires_grad_(False)
        self.norm = nn.BatchNorm1d(64)
        self.out = nn.Linear(64, 7, bias=False)
        self.out.weight = self.embedding.weight
        self.register_buffer("shift", torch.ones(64), persistent=False)

    def reset_parameters(self) -> None:
        nn.init.ones_(self.shift)

    def forward(self, tokens: torch.Tensor) -> Any:
        hidden = self.second(self.hidden(self.embedding(tokens) + self.shift).sin())
        return self.out(self.norm(hidden.transpose(1, 2)).transpose(1, 2))


def original() -> nn.Module:
    """Return the module with numbers that are not those of its construction."""
    torch.manual_seed(0)
    module = Net().eval()
    for buffer in (module.norm.running_mean, module.norm.running_var):
        nn.init.uniform_(buffer, 0.5, 1.5)
    return module


def stacked(stack: list[str], transformed: dict[str, torch.Tensor] | None = None) -> Any:
    """Return the compiled module with a stack of transforms, in evaluation.

    A stack with "materialised" begins on the meta device, with the original state, or a transformed one.
    """
    module = original()
    init: Any = MaterializationTransform.init_from_original_state_dict(module.state_dict())
    if transformed is not None:
        init = MaterializationTransform.init_from_transformed_state_dict(transformed)
    transforms = [
        MaterializationTransform("cpu", init=init) if name == MATERIALISED else TRANSFORMS[name]()
        for name in stack
    ]
    if MATERIALISED in stack:
        with torch.device("meta"):
            module = Net().eval()
    return thunder.jit(module, transforms=transforms)


def trained(stack: list[str]) -> Any:
    """Return a compiled module whose parameters have other values than at the beginning."""
    compiled = stacked(stack)
    generator = torch.Generator().manual_seed(len(stack))
    with torch.no_grad():
        for parameter in compiled.parameters():
            if parameter.requires_grad:
                parameter += torch.rand(parameter.shape, generator=generator) / 16
    return compiled


def results(compiled: Any) -> torch.Tensor:
    """Return what the module computes."""
    with torch.no_grad():
        return compiled(TOKENS)  # type: ignore[no-any-return]


def save(compiled: Any, folder: Path) -> None:
    """Write both forms of the state, by `torch.save` and safetensors, and the results."""
    folder.mkdir()
    state = compiled.state_dict()
    torch.save(state, folder / "state.pt")
    torch.save(compiled.original_state_dict(), folder / "original.pt")
    torch.save(results(compiled), folder / "results.pt")
    save_file({name: t.clone().contiguous() for name, t in state.items()}, folder / "state.safetensors")


def assert_same(state: dict[str, Any], expected: dict[str, Any]) -> None:
    """Check that two state dicts have the same names and bits."""
    assert list(state) == list(expected), set(state) ^ set(expected)
    for name, value in expected.items():
        assert state[name].dtype == value.dtype, name
        assert torch.equal(state[name], value), name


def check(stack: list[str], folder: Path) -> None:
    """Load what :func:`save` wrote, in each way that there is, and compare bits."""
    saved, expected = torch.load(folder / "state.pt"), torch.load(folder / "results.pt")
    files = load_file(folder / "state.safetensors")
    assert_same({name: files[name] for name in saved}, saved)
    loaded = [stacked(stack), stacked(stack)]
    loaded[0].load_state_dict(saved)
    loaded[1].load_state_dict({name: files[name] for name in saved})
    if stack and stack[-1] == MATERIALISED:
        loaded.append(stacked(stack, saved))
    for compiled in loaded:
        assert_same(compiled.state_dict(), saved)
        assert torch.equal(results(compiled), expected)
    stored = {saved[f"{layer}.weight"].dtype for layer in ("hidden", "second")}
    is_lossy = bool(LOSSY.intersection(stack))
    assert stored == {torch.int8 if "int8" in stack else torch.uint8 if is_lossy else torch.float32}, stored
    originals = torch.load(folder / "original.pt")
    assert_same(loaded[0].original_state_dict(), originals)
    module = original()
    module.load_state_dict(originals)
    tolerance = 0.2 if is_lossy else 1e-3  # of int8 products, and of adapters that are folded in
    torch.testing.assert_close(results(module), expected, rtol=tolerance, atol=tolerance)
    if not is_lossy:
        loaded[0].load_original_state_dict(originals)
        assert_same(loaded[0].original_state_dict(), originals)


if __name__ == "__main__":  # in another process: python -m transforms.stacks FOLDER
    check(Path(sys.argv[1]).name.split("-"), Path(sys.argv[1]))
