"""Linear layers with packed weights: as exact as eager's, with what follows them in the same kernel."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import thunder
from thunder_onednn import linear as linear_module
from thunder_transforms.frozen.freezing import Freezing


@pytest.fixture(autouse=True)
def _small_products(monkeypatch):
    monkeypatch.setattr(linear_module, "_FEW", 0)


def compiled_with(model: nn.Module, **options: Any) -> Any:
    return thunder.jit(model.eval(), executors=["onednn"], transforms=[Freezing()], **options)


def calls(compiled: Any) -> list[str]:
    return [b.sym.name for b in thunder.last_traces(compiled)[-1].bound_symbols]


def assert_as_exact(compiled: Any, model: nn.Module, *args: Tensor) -> None:
    """Compare with the model in float64: the error is that of eager, up to a factor."""
    exact = copy.deepcopy(model).double()(*(x.double() for x in args))
    result, expected = compiled(*args), model(*args)
    assert (result.dtype, result.shape, result.stride()) == (
        expected.dtype,
        expected.shape,
        expected.stride(),
    )
    errors = [(y.double() - exact).abs().max().item() for y in (result, expected)]
    assert errors[0] <= max(4 * errors[1], 16 * torch.finfo(result.dtype).eps)


class WithActivation(nn.Module):
    def __init__(self, activation, bias: bool = True, inputs: int = 24, outputs: int = 16) -> None:
        super().__init__()
        self.linear, self.activation = nn.Linear(inputs, outputs, bias=bias), activation

    def forward(self, x):
        return self.activation(self.linear(x))


ACTIVATIONS = {
    "relu": torch.relu,
    "relu of nn": F.relu,
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "silu": F.silu,
    "hardswish": F.hardswish,
    "leaky_relu": F.leaky_relu,
    "leaky_relu with a slope": lambda x: F.leaky_relu(x, 0.2),
    "relu6": F.relu6,
    "hardtanh": lambda x: F.hardtanh(x, -0.1, 0.2),
    "gelu": F.gelu,
    "gelu by tanh": lambda x: F.gelu(x, approximate="tanh"),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_an_activation_is_part_of_the_product(name, dtype):
    model = WithActivation(ACTIVATIONS[name]).to(dtype)
    compiled = compiled_with(model)
    assert_as_exact(compiled, model, 3 * torch.randn(5, 24, dtype=dtype))
    if dtype is torch.float32 or torch.ops.mkldnn._is_mkldnn_bf16_supported():
        assert [c for c in calls(compiled) if not c.startswith("python")] == ["kept0", "onednn_linear"]
    else:
        assert "onednn_linear" not in calls(compiled), "oneDNN has no kernel of bfloat16 for this processor"


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("shape", [(1, 24), (7, 24), (2, 3, 24), (2, 1, 3, 24)])
def test_shapes(shape, bias):
    model = WithActivation(torch.exp, bias)
    compiled = compiled_with(model)
    assert_as_exact(compiled, model, torch.randn(shape))
    assert "onednn_linear" in calls(compiled)


def test_inputs_with_other_strides():
    model = WithActivation(torch.relu)
    compiled = compiled_with(model)
    for x in (torch.randn(24, 5).t(), torch.randn(5, 48)[:, ::2], torch.randn(1, 24).expand(5, 24)):
        assert_as_exact(compiled, model, x)


class Residual(nn.Module):
    def __init__(self, order: int) -> None:
        super().__init__()
        self.first, self.second, self.order = nn.Linear(8, 8), nn.Linear(8, 8), order

    def forward(self, x):
        y = self.second(torch.relu(self.first(x)))
        match self.order:
            case 0:
                return x + y
            case 1:
                return torch.relu(y + x)
            case 2:
                return y + x[0]  # of another shape
            case 3:
                return y + y
            case 4:
                return torch.add(y, x, alpha=2)
            case 5:
                return (y + x) * y  # the product is read again
            case _:
                return self.first(x) + self.second(x)


@pytest.mark.parametrize("order", range(7))
def test_sums_after_a_product(order):
    model = Residual(order)
    compiled = compiled_with(model)
    assert_as_exact(compiled, model, torch.randn(3, 8))
    assert ("onednn_linear_add" in calls(compiled)) == (order in (0, 1))


def test_a_change_of_a_weight_is_packed_again():
    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8))
    compiled, x = compiled_with(model), torch.randn(2, 8)
    for change in (lambda w: w.mul_(2), lambda w: w[0].zero_(), lambda w: setattr(w, "data", w * 3)):
        assert_as_exact(compiled, model, x)
        change(model[2].weight)
    assert_as_exact(compiled, model, x)
    assert thunder.cache_misses(compiled) == 1


def test_one_program_serves_all_batches():
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 8))
    compiled = compiled_with(model, cache="symbolic values")
    for rows in (2, 5, 1, 9):
        assert_as_exact(compiled, model, torch.randn(rows, 8))
    assert thunder.cache_misses(compiled) <= 2  # of one row, and of more


def test_why_a_product_is_not_packed():
    def why(model: nn.Module, *args: Tensor, transforms: Any = None) -> str:
        transforms = [Freezing()] if transforms is None else transforms
        compiled = thunder.jit(model.eval(), executors=["onednn"], transforms=transforms)
        compiled(*args)
        rows = [r for r in thunder.explain(compiled).rows if r.symbol == "torch.nn.functional.linear"]
        return rows[0].refusals[0].code

    assert why(nn.Linear(8, 8), torch.randn(2, 8), transforms=[]) == "not-frozen"
    assert why(nn.Linear(8, 8).double(), torch.randn(2, 8).double()) == "dtype"
    assert why(nn.Linear(8, 8), torch.randn(8)) == "shape"
    assert why(nn.Linear(8, 8), torch.randn(0, 8)) == "shape"


def test_the_ledger_says_who_computes_an_activation():
    model = WithActivation(F.gelu)
    compiled = compiled_with(model)
    assert_as_exact(compiled, model, torch.randn(5, 24))
    claimed = {row.symbol: row.claimed_by for row in thunder.explain(compiled).rows}
    assert claimed["torch.nn.functional.gelu"] == "onednn"


def test_a_small_product_is_left_to_another_kernel(monkeypatch):
    monkeypatch.undo()
    model = nn.Linear(8, 8).eval()
    compiled = compiled_with(model)
    assert_as_exact(compiled, model, torch.randn(2, 8))
    assert "onednn_linear" not in calls(compiled)


def test_the_recipe_of_inference_packs_weights():
    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU()).eval()
    compiled = thunder.compile(model, "inference")
    assert_as_exact(compiled, model, torch.randn(2, 8))
    assert "onednn_linear" in calls(compiled)
