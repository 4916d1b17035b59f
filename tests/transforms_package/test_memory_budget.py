"""A training step within a number of bytes: estimates, the allocator's numbers, and gradients."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import thunder
from compiler.test_memory import peak_bytes
from thunder.core.errors import InvalidArgument
from thunder_transforms.cpu_offloading import CPUOffloading
from thunder_transforms.memory_budget import fit_memory


class Deep(nn.Module):
    """Wide results beside small weights."""

    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.ModuleList(nn.Linear(16, 16) for _ in range(6))
        self.p = dropout

    def forward(self, x):
        for layer in self.layers:
            x = F.dropout(torch.tanh(layer(x)), self.p)
        return x.square().mean()


def x():
    return torch.linspace(-1, 1, 16 * 512).view(512, 16)


def peak_of_a_step(compiled, model) -> int:
    """Return the most bytes of a step with its weights and argument."""
    compiled(x()).backward()
    model.zero_grad()
    value = x()
    existing = sum(t.nbytes for t in (*model.parameters(), value))
    return existing + peak_bytes(lambda: compiled(value).backward())


@pytest.mark.parametrize("part", [1.0, 0.9, 0.8])
def test_the_peak_is_within_the_budget_and_the_estimate(part):
    model = Deep()
    default = thunder.plan(model, x()).memory.peak
    plan = fit_memory(model, x(), max_bytes=int(default * part))
    assert plan.peak <= default * part
    compiled = thunder.jit(model, rematerialization=plan.rematerialization, transforms=plan.transforms())
    measured = peak_of_a_step(compiled, model)
    assert abs(plan.peak - measured) <= 0.1 * measured
    gradients = [p.grad.clone() for p in model.parameters()]
    model.zero_grad()
    model(x()).backward()
    for ours, theirs in zip(gradients, model.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs.grad)


def test_costly_values_are_computed_again_only_if_need_be():
    model = Deep()
    default = thunder.plan(model, x()).memory.peak
    first = fit_memory(model, x(), max_bytes=default)
    assert (first.rematerialization, first.transforms(), first.tried) == ("min-cut", [], ())
    less = fit_memory(model, x(), max_bytes=int(default * 0.8))
    assert less.saved < first.saved
    assert list(less.values.values()).count("recompute") > list(first.values.values()).count("recompute")
    assert less.tried[0] == ("rematerialization='min-cut'", default)


def test_a_budget_that_nothing_meets_is_refused_with_the_least():
    with pytest.raises(InvalidArgument, match="at most 1000 bytes") as error:
        fit_memory(Deep(), x(), max_bytes=1000)
    least = int(str(error.value.facts["least"]).split()[0])
    assert fit_memory(Deep(), x(), max_bytes=least).peak == least


def test_on_a_device_the_rest_is_offloaded():
    """Masks of dropout cannot be computed again: they are what is left."""
    model = Deep(dropout=0.5)
    plans = {
        keep: thunder.plan(model, x(), device="h200", transforms=[CPUOffloading(keep_bytes=keep)]).memory
        for keep in (10**9, 0)
    }
    assert plans[0].saved == 0 < plans[10**9].saved
    plan = fit_memory(model, x(), max_bytes=plans[0].peak, device="h200")
    assert plan.keep_bytes is not None
    assert "offload" in plan.values.values()
    assert [type(t) for t in plan.transforms()] == [CPUOffloading]


def test_a_program_without_gradients_has_nothing_to_keep():
    with pytest.raises(InvalidArgument, match="no backward"):
        fit_memory(torch.sin, x(), max_bytes=10**6)


def test_a_budget_is_a_number_of_bytes():
    with pytest.raises(InvalidArgument, match="max_bytes='1GB' is not a number of bytes"):
        fit_memory(torch.sin, x(), max_bytes="1GB")
