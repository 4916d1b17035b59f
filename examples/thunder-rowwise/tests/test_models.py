"""A model that uses both operators, compiled with the package installed."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import thunder
from thunder_rowwise import swiglu


class Block(nn.Module):
    """The feed-forward half of a transformer's layer."""

    def __init__(self, width: int = 64, hidden: int = 160) -> None:
        super().__init__()
        self.norm = nn.RMSNorm(width, eps=1e-6)
        self.gate = nn.Linear(width, hidden, bias=False)
        self.up = nn.Linear(width, hidden, bias=False)
        self.down = nn.Linear(hidden, width, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.norm(x)
        result: torch.Tensor = x + self.down(swiglu(self.gate(h), self.up(h)))
        return result


@pytest.fixture
def block() -> Block:
    """A block with fixed weights."""
    torch.manual_seed(0)
    return Block()


def taken(compiled: object, trace: str = "forward") -> list[str]:
    """The calls of the last program that the executor runs."""
    return [
        r.symbol for r in thunder.explain(compiled).rows if r.claimed_by == "rowwise" and r.trace == trace
    ]


def test_installing_the_package_is_enough() -> None:
    assert "rowwise" in [ex.name for ex in thunder.get_default_executors()]


def test_inference_runs_on_both_kernels_and_the_ledger_says_so(block: Block) -> None:
    compiled = thunder.jit(block)
    x = torch.randn(64, 64, 64)
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), block(x))
    assert taken(compiled) == ["torch.nn.functional.rms_norm", "rowwise.swiglu"]


def test_training_gives_the_gradients_of_eager(block: Block) -> None:
    compiled = thunder.jit(block)
    x = torch.randn(64, 64, 64, requires_grad=True)
    parameters = [x, *block.parameters()]
    result = compiled(x)
    weight = torch.randn_like(result)
    ours = torch.autograd.grad(result, parameters, weight)
    torch.testing.assert_close(ours, torch.autograd.grad(block(x), parameters, weight))
    assert taken(compiled) == ["rowwise.rms_norm_forward", "rowwise.swiglu"]
    assert taken(compiled, "backward") == ["rowwise.swiglu_backward", "rowwise.rms_norm_backward"]


def test_a_small_call_is_left_to_others_with_the_reason(block: Block) -> None:
    compiled = thunder.jit(block)
    x = torch.randn(3, 64)
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), block(x))
    (row,) = thunder.explain(compiled).why_not("rowwise", symbol="torch.nn.functional.rms_norm").rows
    (refusal,) = (r for r in row.refusals if r.executor == "rowwise")
    assert (refusal.code, refusal.facts["numel"]) == ("size", 192)


def test_tensors_that_do_not_fit_are_refused_as_in_eager() -> None:
    with pytest.raises(ValueError, match="one shape and dtype"):
        thunder.jit(swiglu)(torch.ones(3), torch.ones(4))
