"""Gradients within a program under autocast, and ``backward(create_graph=True)``."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import thunder
from comparison.inputs import leaf

X, W = leaf(3, 4, dtype=torch.float32), leaf(4, 5, dtype=torch.float32, seed=1)


def autocast():
    return torch.autocast("cpu", torch.bfloat16)


def model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8), nn.GELU(), nn.Linear(8, 2))


def of_a_product(x, w):
    with autocast():
        (g,) = torch.autograd.grad((x @ w).sum(), x, create_graph=True)
    return g.float().square().sum() + g.sum()


def of_losses(x, w):
    with autocast():
        y = x @ w
        loss = F.cross_entropy(y, torch.tensor([0, 1, 2])) + torch.logsumexp(y, 0).sum() + y.pow(3).sum()
        return torch.autograd.grad(loss, (x, w))


def of_a_function(x, w):
    with autocast():
        return torch.func.grad(lambda x: (x @ w).float().square().sum())(x.detach())


@pytest.mark.parametrize("program", [of_a_product, of_losses, of_a_function])
def test_gradients_under_autocast_are_eagers(program):
    results = []
    for call in (program, thunder.jit(program)):
        result = call(X, W)
        if isinstance(result, torch.Tensor) and result.requires_grad:
            result = [result, *torch.autograd.grad(result.sum(), (X, W), allow_unused=True)]
        results.append(result)
    torch.testing.assert_close(results[1], results[0])


def test_a_step_under_autocast_is_eagers():
    def step(module, x):
        with autocast():
            loss = F.mse_loss(module(x), x[:, :2])
            loss.backward()
        return loss.detach()

    eager, module = model(), model()
    compiled = thunder.jit(lambda x: step(module, x))
    for _ in range(2):
        torch.testing.assert_close(compiled(X.detach()), step(eager, X.detach()))
    for ours, other in zip(module.parameters(), eager.parameters(), strict=True):
        torch.testing.assert_close(ours.grad, other.grad, rtol=2e-2, atol=2e-3)


class Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(w)
        return x @ w

    @staticmethod
    def backward(ctx, g):
        return g.float() @ ctx.saved_tensors[0].t(), None


@pytest.mark.parametrize("product", [torch.mm, Product.apply])
def test_a_backward_that_eager_casts_is_refused(product):
    def program(x, w):
        y = product(x, w)
        with autocast():
            return torch.autograd.grad(y.sum(), x)

    with pytest.raises(thunder.UnsupportedProgram, match="computed under autocast, which casts"):
        thunder.jit(program)(X, W)


# -- backward(create_graph=True) -----------------------------------------------------------------------------


def penalised(module, x, *, clear):
    module.zero_grad()
    loss = module(x).square().sum()
    loss.backward(create_graph=True)
    penalty = sum(p.grad.square().sum() for p in module.parameters())
    if clear:
        module.zero_grad()
    penalty.backward()
    return loss.detach(), penalty.detach(), [p.grad.detach() for p in module.parameters()]


@pytest.mark.filterwarnings("ignore:Using backward")
@pytest.mark.parametrize("clear", [True, False])
def test_the_gradients_of_gradients_are_eagers(clear):
    module = model()
    eager = copy.deepcopy(module)
    compiled = thunder.jit(lambda x: penalised(module, x, clear=clear))
    for _ in range(2):
        actual, expected = compiled(X.detach()), penalised(eager, X.detach(), clear=clear)
        torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.filterwarnings("ignore:Using backward")
def test_a_gradient_with_a_graph_can_be_differentiated_after_the_call():
    def program(x):
        (x**3).sum().backward(create_graph=True)
        return x.grad * 2

    results = []
    for call in (program, thunder.jit(program)):
        x = X.detach().clone().requires_grad_()
        doubled = call(x)
        assert x.grad.requires_grad
        (second,) = torch.autograd.grad(x.grad.sum(), x, retain_graph=True)
        results.append((doubled.detach(), second))
        x.grad = None
    torch.testing.assert_close(results[1], results[0])


def test_a_slope_that_is_constant_has_no_gradient():
    layer = nn.Linear(4, 2)

    def penalty(x):
        x = x.detach().requires_grad_()
        (slope,) = torch.autograd.grad(F.leaky_relu(layer(x)).sum(), x, create_graph=True)
        return slope.square().sum()

    thunder.jit(penalty)(X).backward()
    weight = layer.weight.grad.clone()
    assert layer.bias.grad is None
    layer.zero_grad()
    penalty(X).backward()
    torch.testing.assert_close(weight, layer.weight.grad)
    assert not layer.bias.grad.any()
