"""Calls after those that a transform replaced require grad as eager's do."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import thunder
import thunder.torch as ltorch
from thunder.core.rewrite import add_input, replace_calls


class Gated(nn.Module):
    """Nothing requires grad before the transform but the last bias."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.gate, self.last = (nn.Linear(3, 3).requires_grad_(False) for _ in range(3))
        self.last.bias.requires_grad_(True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(F.gelu(torch.tanh(self.first(x)) * self.gate(x)).softmax(-1))


class Shifted(thunder.Transform):
    """Adds a trained shift to the result of the first linear layer."""

    def __init__(self, nested: bool) -> None:
        self.nested = nested

    def transform_module(self, model: Any) -> None:
        model.override("first.shift", nn.Parameter(torch.ones(3)))

    def transform_traces_pre_prologue(
        self, prologue_trace: Any, computation_trace: Any, epilogue_trace: Any, **kwargs: Any
    ) -> Any:
        first = computation_trace.bound_symbols[0]

        def shifted(call: Any) -> Any:
            if call.sym.id != first.sym.id or call.output.name != first.output.name:
                return None
            return ltorch.linear(*call.args) + add_input(prologue_trace, computation_trace, "first.shift")

        return prologue_trace, replace_calls(computation_trace, shifted, nested=self.nested), epilogue_trace


@pytest.mark.parametrize("nested", [False, True])
def test_a_gradient_flows_through_calls_that_required_none_before(nested):
    model, x = Gated(), torch.linspace(-1, 1, 6).view(2, 3)
    compiled = thunder.jit(model, transforms=[Shifted(nested)])
    result = compiled(x)
    result.square().sum().backward()
    shift = torch.ones(3, requires_grad=True)
    hidden = F.gelu(torch.tanh(model.first(x) + shift) * model.gate(x)).softmax(-1)
    expected = model.last(hidden)
    (gradient,) = torch.autograd.grad(expected.square().sum(), shift)
    assert torch.equal(result, expected)
    torch.testing.assert_close(compiled.get_parameter("first.shift").grad, gradient)
