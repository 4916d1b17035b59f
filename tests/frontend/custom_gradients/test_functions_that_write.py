"""``torch.autograd.Function``s whose forward writes to its arguments, and does not mark them as dirty."""

from __future__ import annotations

import pytest
import torch
from torch.autograd import Function

import thunder
from comparison.inputs import leaf


class Shifted(Function):
    @staticmethod
    def forward(ctx, x):
        x -= x.max()
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, g):
        return g * 2 * ctx.saved_tensors[0]


class Both(Function):
    @staticmethod
    def forward(ctx, x, y):
        x[0] = y[0]
        y.mul_(2)
        ctx.save_for_backward(x, y)
        return x * y

    @staticmethod
    def backward(ctx, g):
        x, y = ctx.saved_tensors
        return g * y, g * x


def of_a_value(x):
    y = x * 2
    return Shifted.apply(y), y


def of_a_view(x):
    y = x * 2
    return Shifted.apply(y[1:]), y, y * 3


def read_again(x):
    y = x * 2
    return Shifted.apply(y) * y


def in_a_loop(x):
    y = x * 2
    for _ in range(3):
        y = Shifted.apply(y) + y
    return y


def of_two(x):
    y, z = x * 2, x + 1
    return Both.apply(y, z), y, z


def of_the_leaf(x):
    return Shifted.apply(x) * x


@pytest.mark.parametrize("program", [of_a_value, of_a_view, read_again, in_a_loop, of_two, of_the_leaf])
def test_values_and_gradients_are_eagers(program):
    outcomes = []
    for call in (program, thunder.jit(program)):
        x = leaf(3)
        results = call(x)
        results = results if isinstance(results, tuple) else (results,)
        sum((r * (i + 1)).sum() for i, r in enumerate(results)).backward()
        outcomes.append([*(r.detach() for r in results), x.detach(), x.grad])
    torch.testing.assert_close(outcomes[1], outcomes[0])
