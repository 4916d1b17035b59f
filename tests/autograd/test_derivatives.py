"""Second and third derivatives, whatever is saved and whichever results are used."""

from __future__ import annotations

import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck

import thunder
from comparison.derivatives import assert_as_eager
from comparison.inputs import leaf

POLICIES = ["none", "min-cut", 10_000]


def mixed(x, w, b):
    h = torch.tanh(x @ w + b)
    return torch.softmax(h * torch.sin(h), -1), h.sum()


@pytest.mark.parametrize("policy", POLICIES)
def test_gradgradcheck_passes(policy):
    compiled = thunder.jit(mixed, rematerialization=policy)
    inputs = leaf(2, 3), leaf(3, 2, seed=1), leaf(2, seed=2)
    assert gradcheck(compiled, inputs)
    assert gradgradcheck(compiled, inputs)


@pytest.mark.parametrize("policy", POLICIES)
def test_derivatives_are_eagers(policy):
    assert_as_eager(mixed, leaf(2, 3), leaf(3, 2, seed=1), leaf(2, seed=2), rematerialization=policy)


@pytest.mark.parametrize("policy", POLICIES)
def test_third_and_fourth_derivatives(policy):
    def program(x):
        return torch.exp(torch.sin(x)) * x

    def derivatives(run):
        x = leaf(3)
        y, found = run(x), []
        for _ in range(4):
            (y,) = torch.autograd.grad(y.sum(), x, create_graph=True)
            found.append(y.detach())
        return found

    torch.testing.assert_close(
        derivatives(thunder.jit(program, rematerialization=policy)), derivatives(program)
    )


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("used", [(0,), (1,), (0, 1)])
def test_a_saved_value_that_is_a_result_too(policy, used):
    def program(x, w):
        h = torch.exp(x)
        return h, torch.tanh(h * w)

    def second(run):
        x, w = leaf(3), leaf(3, seed=1)
        results = run(x, w)
        loss = sum((results[i] ** 2).sum() for i in used)
        first = torch.autograd.grad(loss, (x, w), create_graph=True, allow_unused=True)
        total = sum((g**2).sum() for g in first if g is not None)
        return torch.autograd.grad(total, (x, w), allow_unused=True)

    found, expected = second(thunder.jit(program, rematerialization=policy)), second(program)
    for f, e in zip(found, expected, strict=True):
        torch.testing.assert_close(
            torch.zeros(3).double() if f is None else f, torch.zeros(3).double() if e is None else e
        )


def test_create_graph_once_then_a_backward_through_both():
    def loss(run):
        x, w = leaf(3), leaf(3, seed=1)
        y = run(x, w).sum()
        (g,) = torch.autograd.grad(y, x, create_graph=True)
        (y + (g * g).sum()).backward()
        return x.grad, w.grad

    def program(x, w):
        return torch.sin(x * w) * w

    torch.testing.assert_close(loss(thunder.jit(program)), loss(program))


def test_gradient_penalty_of_a_module():
    def losses(jit):
        torch.manual_seed(0)
        model = torch.nn.Sequential(
            torch.nn.Linear(3, 4), torch.nn.Softplus(), torch.nn.Linear(4, 1)
        ).double()
        run = thunder.jit(model) if jit else model
        x = leaf(5, 3)
        (g,) = torch.autograd.grad(run(x).sum(), x, create_graph=True)
        ((g.norm(dim=-1) - 1) ** 2).mean().backward()
        return [p.grad for p in model.parameters() if p.grad is not None]

    torch.testing.assert_close(losses(True), losses(False))


def test_what_is_computed_under_no_grad_stays_constant_in_second_derivatives():
    def program(x, w):
        with torch.no_grad():
            flipped, scale = x.t(), torch.exp(w)
        return torch.mm(flipped, x) * scale.sum()

    for policy in POLICIES:
        assert_as_eager(program, leaf(2, 3), leaf(3, seed=1), rematerialization=policy)


def test_what_is_detached_stays_constant_in_second_derivatives():
    def program(x):
        return torch.sin(x.detach()) * x * torch.cos(x)

    for policy in POLICIES:
        assert_as_eager(program, leaf(3), rematerialization=policy)


def test_hessian_of_torch_matches_eagers():
    def program(x):
        return (torch.sin(x) * x.sum()).sum()

    compiled, x = thunder.jit(program), leaf(4)
    torch.testing.assert_close(
        torch.autograd.functional.hessian(compiled, x), torch.autograd.functional.hessian(program, x)
    )


def test_jacobian_of_several_results():
    def program(x, w):
        return x * w.sum(), torch.cumsum(x, 0) * w

    compiled, x, w = thunder.jit(program), leaf(3), leaf(3, seed=1)
    torch.testing.assert_close(
        torch.autograd.functional.jacobian(compiled, (x, w)),
        torch.autograd.functional.jacobian(program, (x, w)),
    )
