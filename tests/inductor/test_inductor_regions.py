"""Regions that TorchInductor compiles compute what eager computes."""

from __future__ import annotations

import copy

import pytest
import torch
from torch.nn import functional as F

import thunder
from thunder.examine import get_fusion_symbols, get_fusions

#: whichever worker runs one of these tests imports TorchInductor, which takes seconds
pytestmark = pytest.mark.xdist_group("inductor")


class Block(torch.nn.Module):
    """A norm, a product, an activation and a residual connection."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = torch.nn.LayerNorm(16)
        self.linear = torch.nn.Linear(16, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return softmax(x + gelu(W norm(x) + b))."""
        return F.softmax(x + F.gelu(self.linear(self.norm(x))), dim=-1)


def test_a_model_is_trained_as_in_eager() -> None:
    model, x = torch.nn.Sequential(Block(), Block()), torch.randn(3, 5, 16)
    compiled = thunder.jit(model)
    result, expected, parameters = compiled(x), model(x), list(model.parameters())
    torch.testing.assert_close(result, expected)
    seed = torch.randn_like(expected)
    ours = torch.autograd.grad(result, parameters, seed)
    torch.testing.assert_close(ours, torch.autograd.grad(expected, parameters, seed))
    rows = thunder.explain(compiled).rows
    fused = {(row.trace, row.symbol) for row in rows if (row.claimed_by, row.via) == ("inductor", "fusion")}
    assert {("forward", "torch.nn.functional.softmax"), ("backward", "ltorch.gelu_backward")} <= fused
    assert "InductorFusion0" in str(thunder.last_traces(compiled)[-1])
    assert get_fusions(thunder.last_traces(compiled)[-1])


def test_bfloat16_is_rounded_after_each_operator_and_strides_are_those_of_eager() -> None:
    def program(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = (x * 1.7 + 0.3) * x - x
        return y, y.sum(dim=-1)

    x = torch.randn(7, 9, dtype=torch.bfloat16).t()
    y, total = thunder.jit(program)(x)
    assert torch.equal(y, program(x)[0])
    assert y.stride() == program(x)[0].stride() == (1, 9)
    torch.testing.assert_close(total, program(x)[1])


def test_a_number_that_is_not_one_has_no_rounded_value() -> None:
    """The graph of `x - nan` in bfloat16 has no numbers to round."""
    x = torch.randn(4, dtype=torch.bfloat16)
    compiled = thunder.jit(lambda x: torch.sin(x - float("nan")), executors=["inductor"])
    assert compiled(x).isnan().all()


@pytest.mark.sweep
def test_the_mode_full_compiles_products_convolutions_and_attention() -> None:
    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = torch.nn.Conv2d(3, 8, 3, padding=1)
            self.linear = torch.nn.Linear(8, 8)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = F.relu(self.conv(x)).flatten(2).transpose(1, 2)
            y = F.silu(self.linear(y))
            return F.scaled_dot_product_attention(y, y, y) + y

    model, x = Net(), torch.randn(2, 3, 6, 6)
    compiled = thunder.jit(model, inductor_mode="full")
    result, expected, parameters = compiled(x), model(x), list(model.parameters())
    torch.testing.assert_close(result, expected)
    ours = torch.autograd.grad(result.sum(), parameters)
    torch.testing.assert_close(ours, torch.autograd.grad(expected.sum(), parameters), rtol=1e-4, atol=1e-5)
    fused = {row.symbol for row in thunder.explain(compiled).rows if row.claimed_by == "inductor"}
    assert {"torch.nn.functional.conv2d", "torch.nn.functional.linear"} <= fused


def test_one_kernel_computes_the_cotangents_of_a_gate() -> None:
    def gated(x: torch.Tensor, gate: torch.Tensor, up: torch.Tensor, down: torch.Tensor) -> torch.Tensor:
        return (F.silu(x @ gate) * (x @ up)) @ down

    shapes = ((6, 4), (4, 8), (4, 8), (8, 4))
    inputs = [torch.randn(shape, requires_grad=True) for shape in shapes]
    compiled = thunder.jit(gated, executors=["inductor"], inductor_mode="pointwise")
    seed = torch.randn(6, 4)
    ours = torch.autograd.grad(compiled(*inputs), inputs, seed)
    torch.testing.assert_close(ours, torch.autograd.grad(gated(*inputs), inputs, seed))
    (fusion,) = get_fusion_symbols(thunder.last_backward_traces(compiled)[-1])
    assert len(fusion.output) == 3  # of the gate, of up, and the product that `down` was multiplied by


def test_batch_normalisation_in_training_is_in_a_region() -> None:
    layers = torch.nn.BatchNorm2d(4), torch.nn.ReLU()
    model, x = torch.nn.Sequential(*layers), torch.randn(2, 4, 8, 8, requires_grad=True)
    reference = copy.deepcopy(model)
    compiled = thunder.jit(model, executors=["inductor"])
    result, expected = compiled(x), reference(x)
    torch.testing.assert_close(result, expected)
    torch.testing.assert_close(dict(model.named_buffers()), dict(reference.named_buffers()))
    seed = torch.randn_like(expected)
    ours = torch.autograd.grad(result, [x, *model.parameters()], seed)
    torch.testing.assert_close(ours, torch.autograd.grad(expected, [x, *reference.parameters()], seed))
    left = {row.symbol for row in thunder.explain(compiled).rows if row.claimed_by != "inductor"}
    assert "prims.batch_norm_update" not in left


@pytest.mark.sweep  # tests/inductor/test_maxima_of_windows.py has a slice of it
def test_maximum_pooling_is_a_region_and_its_indices_are_torchs() -> None:
    x = torch.full((1, 2, 8, 8), -torch.inf)
    compiled = thunder.jit(lambda x: F.max_pool2d(x, 3, 2, 1), executors=["inductor"])
    assert torch.equal(compiled(x), F.max_pool2d(x, 3, 2, 1))
    assert get_fusions(thunder.last_traces(compiled)[-1])
    with_indices = thunder.jit(
        lambda x: F.max_pool2d(x, 3, 2, 1, return_indices=True), executors=["inductor"]
    )
    assert torch.equal(with_indices(x)[1], F.max_pool2d(x, 3, 2, 1, return_indices=True)[1])
