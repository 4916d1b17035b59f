"""Backwards that are compiled when they first run, for programs with symbolic sizes."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional

import thunder
from sweeping import in_turn


class Attention(nn.Module):
    """Attention with one head."""

    def __init__(self):
        super().__init__()
        self.q, self.v = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x):
        q = self.q(x)
        return functional.scaled_dot_product_attention(q, q, self.v(x))


class Resized(nn.Module):
    """Interpolation of a convolution."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 2, 3)

    def forward(self, x):
        return functional.interpolate(self.conv(x), scale_factor=2, mode="bilinear").tanh()


#: a model, and the shape of its input for a size
MODELS = {
    "linear": (lambda: nn.Sequential(nn.Linear(8, 4), nn.Tanh(), nn.Linear(4, 1)), lambda n: (n, 8)),
    "conv": (lambda: nn.Sequential(nn.Conv2d(3, 4, 3), nn.SiLU(), nn.Flatten()), lambda n: (n, 3, 5, 5)),
    "conv length": (lambda: nn.Sequential(nn.Conv1d(3, 4, 3, padding=1), nn.Tanh()), lambda n: (2, 3, n)),
    "pooling": (
        lambda: nn.Sequential(nn.Conv2d(3, 4, 3), nn.Tanh(), nn.AdaptiveAvgPool2d(1), nn.Flatten()),
        lambda n: (n, 3, 6, 6),
    ),
    "batch norm": (lambda: nn.Sequential(nn.Linear(8, 4), nn.BatchNorm1d(4), nn.Tanh()), lambda n: (n, 8)),
    "group norm": (lambda: nn.Sequential(nn.Conv2d(3, 4, 3), nn.GroupNorm(2, 4)), lambda n: (n, 3, 5, 5)),
    "layer norm": (lambda: nn.Sequential(nn.Linear(8, 6), nn.LayerNorm(6)), lambda n: (n, 8)),
    "attention": (Attention, lambda n: (2, n, 8)),
    "interpolation": (Resized, lambda n: (n, 3, 5, 5)),
}
USES = {}


def use(fn):
    USES[fn.__name__] = fn
    return fn


@use
def gradient_penalty(fn, model, x):
    y = fn(x)
    # of the sum alone, a normalisation has no gradient but rounding errors
    (g,) = torch.autograd.grad(y.sin().sum(), x, create_graph=True)
    (y.mean() + (g.flatten(1).norm(dim=1) - 1).pow(2).mean()).backward()
    return [y, g, x.grad, *(p.grad for p in model.parameters())]


@use
def product_with_the_hessian(fn, model, x):
    (g,) = torch.autograd.grad(fn(x).pow(2).sum(), x, create_graph=True)
    return [g, *torch.autograd.grad(g, x, torch.ones_like(x))]


@use
def backward_with_a_graph(fn, model, x):
    fn(x).pow(2).sum().backward(create_graph=True)
    parameters = list(model.parameters())
    squares = sum(p.grad.pow(2).sum() for p in parameters if p.grad is not None)
    second = torch.autograd.grad(squares, [x, *parameters], allow_unused=True)
    for p in parameters:
        p.grad = None
    return [g for g in second if g is not None]


SEEN = []


def keep(module, inputs, outputs):
    SEEN.extend(inputs + outputs)


@use
def full_backward_hook(fn, model, x):
    SEEN.clear()
    if not model._backward_hooks:
        model.register_full_backward_hook(keep)
    fn(x).pow(2).sum().backward()
    return [x.grad, *SEEN]


def gradients(name, how, compiles):
    torch.manual_seed(0)
    make, shape = MODELS[name]
    model = make().double()
    fn = thunder.jit(model) if compiles else model
    found = []
    for size in (4, 3, 5, 4):
        generator = torch.Generator().manual_seed(size)
        x = torch.randn(shape(size), generator=generator, dtype=torch.float64, requires_grad=True)
        found.append([g.detach().clone() for g in USES[how](fn, model, x) if g is not None])
        model.zero_grad()
    return found, fn


@pytest.mark.parametrize(("name", "how"), in_turn(MODELS, USES))
@pytest.mark.filterwarnings("ignore:Using backward.. with create_graph=True")
def test_derivatives_of_each_size_are_those_of_eager(name, how):
    expected, _ = gradients(name, how, False)
    found, compiled = gradients(name, how, True)
    torch.testing.assert_close(found, expected)
    assert thunder.cache_misses(compiled) == 2


def test_a_backward_that_runs_as_it_is_has_the_sizes_of_its_call():
    class Scaled(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, g):
            print(end="")  # an effect, so that it is not traced
            return g * len(g)

    compiled = thunder.jit(lambda x: Scaled.apply(x.sin()).cos())
    for size in (3, 4, 5, 4):
        x = torch.linspace(0, 1, size, requires_grad=True)
        (g,) = torch.autograd.grad(compiled(x).sum(), x, create_graph=True)
        other = torch.linspace(0, 1, size, requires_grad=True)
        (h,) = torch.autograd.grad(Scaled.apply(other.sin()).cos().sum(), other, create_graph=True)
        torch.testing.assert_close(g, h)
        seconds = [torch.autograd.grad(a.pow(2).sum(), b)[0] for a, b in ((g, x), (h, other))]
        torch.testing.assert_close(*seconds)
    assert thunder.cache_misses(compiled) == 2
