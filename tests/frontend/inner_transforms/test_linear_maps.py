"""``torch.func.linearize`` within a program."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.func import linearize

import thunder
from comparison.inputs import leaf

X, V = leaf(3, grad=False), leaf(3, grad=False, seed=1)
MODEL = nn.Sequential(nn.Linear(3, 4), nn.GELU(), nn.Linear(4, 2)).double()


def a_function(x, v):
    y, tangent = linearize(lambda x: x.sin() * 2, x)
    return y, tangent(v), tangent(v * 2)


def of_two(x, v):
    y, tangent = linearize(lambda x, w: {"a": (x * w).tanh(), "b": w.exp() + x}, x, v)
    return y, [tangent(v * i, x) for i in range(2)]


def of_a_module(x, v):
    with torch.no_grad():
        y, tangent = linearize(MODEL, x)
        for _ in range(2):
            v = v + tangent(v).sum()
    return y, v


@pytest.mark.parametrize("program", [a_function, of_two, of_a_module])
def test_values_and_tangents_are_eagers(program):
    compiled = thunder.jit(program)
    for scale in (1.0, -2.0):
        torch.testing.assert_close(compiled(X * scale, V), program(X * scale, V))
    assert thunder.cache_misses(compiled) == 1


def test_where_gradients_are_tracked_it_is_refused():
    with pytest.raises(thunder.UnsupportedProgram, match="linearize where gradients are tracked"):
        thunder.jit(a_function)(leaf(3), V)
    with pytest.raises(thunder.UnsupportedProgram, match="depends on no primal"):
        thunder.jit(lambda x: linearize(lambda x: torch.ones(3), x)[0])(X)


def test_a_tangent_of_another_shape_is_an_error():
    with pytest.raises(RuntimeError, match="Expected"):
        thunder.jit(lambda x, v: linearize(torch.sin, x)[1](v))(X, V[:2])
