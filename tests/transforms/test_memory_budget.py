"""A training step within a number of bytes: no budget is refused that can be met, and none is exceeded."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import sweeping
import thunder
from compiler.test_memory import peak_bytes
from thunder.core.errors import InvalidArgument
from thunder_transforms.memory_budget import MemoryBudgetTooSmall, fit_memory

Tensors = list[torch.Tensor]


class Deep(nn.Module):
    """Wide results beside small weights."""

    def __init__(self, dropout: float = 0.0, layers: int = 4) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.ModuleList(nn.Linear(16, 16) for _ in range(layers))
        self.p = dropout

    def forward(self, x):
        for layer in self.layers:
            x = F.dropout(torch.tanh(layer(x)), self.p)
        return x.square().mean()


def x():
    return torch.linspace(-1, 1, 16 * 128).view(128, 16)


def program(seed: int) -> tuple[Callable[..., torch.Tensor], Tensors]:
    """Return a random program of a tensor and two weights, and its arguments."""
    rng = random.Random(seed)
    calls = [(rng.randrange(6), rng.randrange(100)) for _ in range(rng.randrange(4, 7))]

    def f(a, v, w):
        values = [torch.sin(a @ v) @ w]
        for kind, number in calls:
            last, other = values[-1], values[number % len(values)]
            results = (
                lambda last=last: torch.tanh(last @ v) @ w,
                lambda last=last: torch.exp(-last * last),
                lambda last=last, other=other: last * other.mean(1, keepdim=True),
                lambda last=last, other=other: last + other,
                lambda last=last: torch.cat([last.sin(), last], 1)[:, 1:17],
                lambda last=last: torch.softmax(last, -1),
            )
            values.append(results[kind]())
        return sum(value.square().mean() for value in values[-2:])

    torch.manual_seed(seed)
    sizes = ((64, 16), (16, 32), (32, 16))
    return f, [torch.randn(s, dtype=torch.float64).div(4).requires_grad_() for s in sizes]


def least_of(fn: Any, *args: Any, **options: Any) -> int:
    with pytest.raises(MemoryBudgetTooSmall, match="memory_budget=1 bytes: the step needs more") as error:
        thunder.plan(fn, *args, memory_budget=1, **options)
    return int(error.value.facts["least"])


def gradients(fn: Callable[..., torch.Tensor], args: Tensors) -> Sequence[torch.Tensor]:
    return torch.autograd.grad(fn(*args), args)


@pytest.mark.parametrize("seed", sweeping.one_in(20, range(40)))
def test_every_budget_from_the_least_on_is_met_with_the_results_of_eager(seed):
    f, args = program(seed)
    expected = gradients(f, args)
    default, least = (
        thunder.plan(f, *args, executors="torch").memory.peak,
        least_of(f, *args, executors="torch"),
    )
    existing = sum(a.nbytes for a in args)
    for budget in (least, (least + default) // 2):
        compiled = thunder.jit(f, executors="torch", memory_budget=budget)
        for ours, theirs in zip(gradients(compiled, args), expected, strict=True):
            torch.testing.assert_close(ours, theirs)
        estimate = thunder.plan(compiled, *args).memory.peak
        measured = existing + peak_bytes(lambda c=compiled: gradients(c, args))
        assert estimate <= budget
        assert abs(estimate - measured) <= 0.1 * measured


def test_what_the_default_keeps_is_chosen_if_it_fits():
    model = Deep()
    default = thunder.plan(model, x(), executors="torch")
    planned = thunder.plan(model, x(), executors="torch", memory_budget=default.memory.peak)
    assert str(planned.backward_traces[-1]) == str(default.backward_traces[-1])


def test_less_is_kept_for_a_smaller_budget():
    model = Deep()
    default = thunder.plan(model, x(), executors="torch").memory.peak
    plans = [fit_memory(model, x(), max_bytes=int(default * p), executors="torch") for p in (1, 0.85)]
    assert plans[1].peak <= 0.85 * default
    assert plans[1].saved < plans[0].saved
    counts = [list(plan.values.values()).count("recompute") for plan in plans]
    assert counts[0] < counts[1]


def test_a_value_is_computed_again_as_often_as_the_budget_needs():
    model = Deep(layers=8)
    plan = thunder.plan(model, x(), executors="torch", memory_budget=least_of(model, x(), executors="torch"))
    names = [p.name for b in plan.backward_traces[-1].bound_symbols for p in b.flat_proxy_outs]
    again = [name for name in names if name.startswith("bw_")]
    assert len({name.rpartition("_")[0] for name in again if name.count("_") > 1}) > 0


def test_random_numbers_are_not_drawn_twice():
    model = Deep(dropout=0.5)
    compiled = thunder.jit(model, executors="torch", memory_budget=least_of(model, x(), executors="torch"))
    grads = []
    for fn in (model, compiled):
        model.zero_grad()
        torch.manual_seed(1)
        fn(x()).backward()
        grads.append([p.grad.clone() for p in model.parameters()])
    for ours, theirs in zip(*grads, strict=True):
        torch.testing.assert_close(ours, theirs)


def test_on_a_device_values_that_cannot_be_computed_again_are_offloaded():
    """These are the masks of dropout."""
    model = Deep(dropout=0.5)
    least = least_of(model, x(), device="h200", executors="torch")
    assert least < least_of(model, x(), executors="torch")
    plan = fit_memory(model, x(), max_bytes=least, device="h200", executors="torch")
    assert "offload" in plan.values.values()


def test_each_of_several_results_can_be_differentiated():
    def f(a, w):
        h = torch.tanh(a @ w)
        return (h.sin() @ w).mean(), torch.exp(-h * h).sum()

    args = [torch.randn(16, 8, requires_grad=True), torch.randn(8, 8, requires_grad=True)]
    compiled = thunder.jit(f, executors="torch", memory_budget=least_of(f, *args, executors="torch"))
    for i in (0, 1):
        for ours, theirs in zip(
            torch.autograd.grad(compiled(*args)[i], args), torch.autograd.grad(f(*args)[i], args), strict=True
        ):
            torch.testing.assert_close(ours, theirs)


def test_second_derivatives_are_those_of_eager():
    args = [torch.randn(8, 4, dtype=torch.float64, requires_grad=True)]

    def f(a):
        return torch.exp(torch.tanh(a).sin()).square().mean()

    compiled = thunder.jit(f, executors="torch", memory_budget=least_of(f, *args, executors="torch"))
    results = []
    for fn in (f, compiled):
        (first,) = torch.autograd.grad(fn(*args), args, create_graph=True)
        results.append(torch.autograd.grad(first.square().sum(), args)[0])
    torch.testing.assert_close(results[1], results[0])


def test_without_gradients_the_budget_is_checked():
    with pytest.raises(MemoryBudgetTooSmall, match="memory_budget=100 bytes"):
        thunder.jit(torch.sin, executors="torch", memory_budget=100)(x())
    assert thunder.jit(torch.sin, executors="torch", memory_budget="1 MB")(x()).shape == (128, 16)


@pytest.mark.parametrize("budget", ["1 foo", "much", -1, 0])
def test_a_budget_is_a_number_of_bytes(budget):
    with pytest.raises(InvalidArgument, match="is not a number of bytes"):
        thunder.jit(torch.sin, memory_budget=budget)


def test_a_text_has_the_units_of_powers_of_two_and_ten():
    least = least_of(Deep(), x(), executors="torch")
    assert fit_memory(Deep(), x(), max_bytes=f"{least / 1024} KiB", executors="torch").peak <= least
    with pytest.raises(MemoryBudgetTooSmall, match=f"memory_budget={least - 24}"):
        fit_memory(Deep(), x(), max_bytes=f"{(least - 24) / 1000} kB", executors="torch")


def test_a_program_without_gradients_has_nothing_to_keep():
    with pytest.raises(InvalidArgument, match="no backward"):
        fit_memory(torch.sin, x(), max_bytes=10**6)
