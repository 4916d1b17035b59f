"""Dual numbers of ``torch.autograd.forward_ad`` within a program."""

from __future__ import annotations

import pytest
import torch
from torch.autograd.forward_ad import dual_level, enter_dual_level, make_dual, unpack_dual

import thunder
from comparison.inputs import leaf

X, V = leaf(3, grad=False), leaf(3, grad=False, seed=1)


def a_value(x, v):
    with dual_level():
        return unpack_dual(make_dual(x, v).sin() * x)


def several(x, v):
    with dual_level():
        a, b = make_dual(x, v), make_dual(v, x * 2)
        return unpack_dual(a * b + x), unpack_dual(a), unpack_dual(x * 2)


def without_tangents(x, v):
    with dual_level():
        dual = make_dual(x, v)
        return unpack_dual(dual.detach()).tangent, unpack_dual(dual > 0).tangent, unpack_dual(dual * 0)


def after_the_level(x, v):
    with dual_level():
        dual = make_dual(x, v)
        y = dual.exp()
        tangent = unpack_dual(y).tangent
    return y * 2, dual + 1, tangent, y.requires_grad


def two_levels(x, v):
    with dual_level():
        first = unpack_dual(make_dual(x, v).sin()).tangent
    with dual_level():
        return unpack_dual(make_dual(first, v) ** 2)


def written(x, v):
    with dual_level():
        dual = make_dual(x, v)
        y = torch.zeros_like(x)
        y.copy_(dual * 2)
        y[0] = 1.0
        return unpack_dual(y)


def decided(x, v):
    with dual_level():
        y = make_dual(x, v).exp()
        return unpack_dual(y * 2 if y.sum() > 3 else y).tangent


PROGRAMS = [a_value, several, without_tangents, after_the_level, two_levels, written, decided]


@pytest.mark.parametrize("program", PROGRAMS)
def test_values_and_tangents_are_eagers(program):
    with torch.no_grad():
        torch.testing.assert_close(thunder.jit(program)(X, V), program(X, V))
    torch.testing.assert_close(thunder.jit(program)(X, V), program(X, V))


def test_their_gradients_are_eagers():
    gradients = []
    for call in (a_value, thunder.jit(a_value)):
        x = leaf(3)
        y = call(x, V)
        gradients.append(torch.autograd.grad((y.primal * y.tangent).sum(), x))
    torch.testing.assert_close(gradients[1], gradients[0])


def test_the_gradient_of_a_tangent_is_that_of_two_backwards():
    norm = torch.nn.LayerNorm(3).double()

    def program(x, v):
        with dual_level():
            return unpack_dual(norm(make_dual(x, v)).sin()).tangent

    x = leaf(3)
    y = norm(x).sin()
    u = torch.zeros_like(y, requires_grad=True)
    (g,) = torch.autograd.grad(y, x, u, create_graph=True)
    (tangent,) = torch.autograd.grad(g, u, V, create_graph=True)
    actual = thunder.jit(program)(x, V)
    torch.testing.assert_close(actual, tangent)
    expected = torch.autograd.grad(tangent.sum(), norm.weight)
    torch.testing.assert_close(torch.autograd.grad(actual.sum(), norm.weight), expected)


def left_open(x, v):
    enter_dual_level()
    return make_dual(x, v) * 2


def without_gradients(x, v):
    with dual_level():
        dual = make_dual(x, v)
        with torch.no_grad():
            y = dual.sin()
        return unpack_dual(y)


def primal_again(x, v):
    with dual_level():
        dual = make_dual(x * 2, v)
        return unpack_dual(unpack_dual(dual.sin()).primal * dual)


REFUSED = {
    "leaves a level of dual numbers open": left_open,
    "has a region without gradients": without_gradients,
    "a primal that was unpacked is used": primal_again,
}


@pytest.mark.parametrize("words", REFUSED)
def test_what_is_refused_says_why(words):
    with pytest.raises(thunder.UnsupportedProgram, match=words):
        thunder.jit(REFUSED[words])(leaf(3), V)


def test_errors_are_torchs():
    def nested(x, v):
        with dual_level(), dual_level():
            return x

    for program in (nested, make_dual, lambda x, v: a_value(x, v[:2]), lambda x, v: a_value(x.long(), v)):
        with pytest.raises((RuntimeError, ValueError)) as expected:
            program(X, V)
        with pytest.raises(expected.type, match=str(expected.value)[:40]):
            thunder.jit(lambda x, v, program=program: program(x, v))(X, V)
