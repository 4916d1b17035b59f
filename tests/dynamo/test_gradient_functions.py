"""`torch.autograd.Function`s in graphs of TorchDynamo."""

from __future__ import annotations

import pytest
import torch

from comparison.inputs import leaf
from thunder.dynamo import thunderfx

pytestmark = pytest.mark.usefixtures("_quick_inductor")


class Scaled(torch.autograd.Function):
    """Saves an argument, a result, an intermediate and a number; one result has no gradient."""

    @staticmethod
    def forward(ctx, x, factor, w):
        y = x.exp()
        ctx.save_for_backward(x, y)
        ctx.factor, ctx.doubled = factor, x * 2
        positive = x > 0
        ctx.mark_non_differentiable(positive)
        return y.sin() * factor, positive

    @staticmethod
    def backward(ctx, g, _):
        x, y = ctx.saved_tensors
        return g * x.cos() * ctx.factor * y + ctx.doubled, None, g.sum()


class Counted(torch.autograd.Function):
    """Its forward has a size that depends on data."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.sin() * x.nonzero().sum()

    @staticmethod
    def backward(ctx, g):
        return g * 3


def scaled(x, w):
    return Scaled.apply(x * 2, 3, w)[0] + x**3


def counted(x, w):
    return Counted.apply(x * 2) * w + x**3


@pytest.mark.parametrize("f", [scaled, counted], ids=["in thunder", "in inductor"])
def test_its_backward_is_the_gradient(f):
    compiled = thunderfx(f)
    x, w = leaf(3), leaf()
    for _ in range(2):
        torch.testing.assert_close(compiled(x, w), f(x, w))
        actual, expected = (torch.autograd.grad(g(x, w).sum(), (x, w)) for g in (compiled, f))
        torch.testing.assert_close(actual, expected)


@pytest.mark.parametrize("f", [scaled, counted], ids=["in thunder", "in inductor"])
def test_its_second_derivative_is_an_error(f):
    """A graph does not have it; eager torch would take the backward for a constant."""
    x, w = leaf(3), leaf()
    (gradient,) = torch.autograd.grad(thunderfx(f)(x, w).sum(), x, create_graph=True)
    with pytest.raises((NotImplementedError, RuntimeError), match=r"second derivative|double backward"):
        torch.autograd.grad(gradient.sum(), x)
