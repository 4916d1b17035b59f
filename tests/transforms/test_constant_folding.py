"""Constant folding: eager's values at each call, memory of the caller's own, and less to compute."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import thunder
from thunder_transforms.constant_calls import ConstantFolding
from thunder_transforms.cuda_graphs import CUDAGraphTransform


class Positions(nn.Module):
    def forward(self, x):
        n = x.shape[-1]
        mask = torch.triu(torch.full((n, n), float("-inf"), device=x.device), 1)
        positions = torch.sin(torch.arange(n, device=x.device)[:, None] * 0.1)
        return torch.softmax(x + mask, -1) @ positions


def names(fn):
    return [
        b.sym.name for b in thunder.last_traces(fn)[-1].bound_symbols if b.sym.executor or b.sym.is_fusion
    ]


def test_constants_are_computed_once():
    compiled = thunder.jit(Positions(), transforms=[ConstantFolding()])
    for step in range(3):
        x = torch.full((4, 4), float(step))
        assert torch.equal(compiled(x), Positions()(x))
    assert names(compiled) == ["constants0", "add", "softmax", "matmul"]
    assert torch.equal(compiled(torch.ones(5, 5)), Positions()(torch.ones(5, 5)))


def test_gradients_are_eagers():
    compiled = thunder.jit(Positions(), transforms=[ConstantFolding()])
    x, y = (torch.ones(4, 4, requires_grad=True) for _ in range(2))
    for _ in range(2):
        compiled(x).sum().backward()
        Positions()(y).sum().backward()
    assert torch.equal(x.grad, y.grad)


def returned(x):
    mask = torch.ones(3, 3).tril()
    steps = torch.arange(3)
    return x * mask, mask, steps, steps.view(3, 1), torch.exp(steps / 3) + x


def test_results_are_the_callers_own():
    compiled = thunder.jit(returned, transforms=[ConstantFolding()])
    x = torch.ones(3, 3)
    for _ in range(2):
        results, expected = compiled(x), returned(x)
        assert all(torch.equal(a, b) for a, b in zip(results, expected, strict=True))
        results[2].fill_(7)
        assert results[3].eq(7).all()
        results[1].zero_()
    assert names(compiled).count("exp") == 0


def written(x):
    table = torch.zeros(3)
    table[1] = 5
    return x + table, x.add_(table)


def test_programs_that_write():
    compiled = thunder.jit(written, transforms=[ConstantFolding()])
    x, y = torch.ones(3), torch.ones(3)
    for _ in range(2):
        for ours, theirs in zip(compiled(x), written(y), strict=True):
            assert torch.equal(ours, theirs)
        assert torch.equal(x, y)


def undetermined(x):
    with torch.no_grad():
        noise = torch.rand(3)
    return x + noise * torch.ones(3)


def test_random_numbers_are_drawn_at_each_call():
    compiled = thunder.jit(undetermined, transforms=[ConstantFolding()])
    torch.manual_seed(0)
    ours = [compiled(torch.zeros(3)) for _ in range(2)]
    torch.manual_seed(0)
    theirs = [undetermined(torch.zeros(3)) for _ in range(2)]
    assert all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))


def test_a_large_constant_is_not_kept():
    compiled = thunder.jit(Positions(), transforms=[ConstantFolding(max_bytes=63)])
    x = torch.ones(4, 4)
    assert torch.equal(compiled(x), Positions()(x))
    assert "triu" in names(compiled)
    assert "sin" not in names(compiled)


@pytest.mark.parametrize("first", [True, False])
def test_constants_and_graphs_stack(first):
    transforms = [ConstantFolding(), CUDAGraphTransform()]
    plan = thunder.plan(
        Positions(), torch.ones(4, 4), device="h200", transforms=transforms[:: 1 if first else -1]
    )
    assert "CUDAGraph0(" in plan.traces[-1].python(print_depth=1)
    assert ("constants0()" in plan.traces[-1].python(print_depth=2)) is first


@pytest.mark.parametrize("size", [-1, "64"])
def test_the_size_of_a_constant_is_a_number_of_bytes(size):
    with pytest.raises(thunder.InvalidArgument, match="is not a number of bytes"):
        ConstantFolding(max_bytes=size)
