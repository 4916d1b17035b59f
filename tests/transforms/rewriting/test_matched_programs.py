"""Patterns are found by data flow: through casts, commutation, equal constants and other spellings."""

from __future__ import annotations

import copy

import pytest
import torch

from thunder.core.patterns import rewrite
from transforms.rewriting.rewriting_programs import (
    RMS_NORM,
    HandWrittenRMSNorm,
    applied,
    by_torch,
    compiled,
    is_rewritten,
    rms_norm,
    rms_norm_in_float32,
    symbols,
)

X, Y = torch.randn(3, 4), torch.randn(3, 4)


@pytest.mark.parametrize("pattern", [rms_norm, rms_norm_in_float32])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("offset", [False, True])
def test_a_hand_written_rms_norm_is_replaced_and_agrees(pattern, dtype, offset):
    model = HandWrittenRMSNorm(8, add_unit_offset=offset).to(dtype)
    x = torch.randn(2, 3, 8, dtype=dtype)

    def replacement(x, weight, eps):
        return by_torch(x, weight.to(x.dtype), eps)

    fn = compiled(model, rewrite(pattern, replacement))
    torch.testing.assert_close(fn(x), model(x))
    assert applied(fn) == [pattern.__name__]
    assert "rsqrt" not in symbols(fn)
    assert "rms_norm" in symbols(fn)


def test_the_gradients_are_those_of_the_replacement():
    model = HandWrittenRMSNorm(8)
    x = torch.randn(4, 8, requires_grad=True)
    fn = compiled(model, RMS_NORM)
    (fn(x) * torch.arange(8)).sum().backward()
    assert applied(fn) == ["rms_norm"]
    reference, exact = copy.deepcopy(model).double(), x.detach().double().requires_grad_()
    reference.forward = lambda t: rms_norm(t, reference.weight, model.eps)
    (reference(exact) * torch.arange(8)).sum().backward()
    torch.testing.assert_close(x.grad, exact.grad.float())
    torch.testing.assert_close(model.weight.grad, reference.weight.grad.float())


def test_autocast_adds_casts_that_a_pattern_does_not_write():
    def pattern(x, w):
        return torch.nn.functional.linear(torch.softmax(x, -1), w)

    def program(x, w):
        with torch.autocast("cpu", torch.bfloat16):
            return torch.nn.functional.linear(torch.softmax(x, -1), w)

    w = torch.randn(5, 4)
    for casts, rules in (("through", ["pattern"]), ("written", [])):
        fn = compiled(program, rewrite(pattern, lambda x, w: pattern(x, w), casts=casts))
        torch.testing.assert_close(fn(X, w), program(X, w), rtol=1e-2, atol=1e-2)
        assert applied(fn) == rules


def test_a_written_cast_has_to_be_there():
    def pattern(x, w):
        return (torch.sin(x) * w).to(torch.bfloat16)

    assert is_rewritten(pattern, lambda x, w: (w * x.sin()).bfloat16(), X, Y)
    assert not is_rewritten(pattern, lambda x, w: (w * x.sin()).sum(), X, Y)
    assert not is_rewritten(pattern, lambda x, w: (w * x.sin()).half(), X, Y)


SPELLINGS = {
    "a method": lambda x, y: x.mul(y).add(1).relu(),
    "reflected operands": lambda x, y: torch.relu(1 + y * x),
    "a float for an int": lambda x, y: torch.nn.functional.relu(torch.multiply(x, y) + 1.0),
    "keywords": lambda x, y: torch.relu(input=torch.add(input=x * y, other=1, alpha=1)),
    "another order of statements": lambda x, y: (1 + y * x, torch.sin(x))[0].relu(),
}


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_spellings_of_one_computation_are_matched(spelling):
    assert is_rewritten(lambda x, y: torch.relu(x * y + 1), SPELLINGS[spelling], X, Y)


EQUAL = {
    "pow(2)": (lambda x, y: x * x + y, lambda x, y: y + x.pow(2)),
    "** 2": (lambda x, y: (x + y) ** 2, lambda x, y: (y + x) * (y + x)),
    "square": (lambda x, y: x.square() * y, lambda x, y: y * (x * x)),
    "half": (lambda x, y: (x + y) / 2, lambda x, y: 0.5 * (x + y)),
    "maximum": (lambda x, y: torch.maximum(x, y).exp(), lambda x, y: torch.exp(torch.maximum(y, x))),
    "true_divide": (lambda x, y: torch.true_divide(x, y).sin(), lambda x, y: torch.div(x, y).sin()),
    "rsub": (lambda x, y: (1 - x) * y, lambda x, y: y * torch.rsub(x, 1)),
    "negative dim": (lambda x, y: x.mean(-1) + y.sum(1), lambda x, y: y.sum(dim=-1) + torch.mean(x, (1,))),
    "softmax": (
        lambda x, y: torch.softmax(x, -1) * y,
        lambda x, y: y * torch.nn.functional.softmax(x, dim=1),
    ),
}


@pytest.mark.parametrize("name", EQUAL)
def test_expressions_that_are_equal_in_each_bit_are_matched(name):
    pattern, program = EQUAL[name]
    assert is_rewritten(lambda x, y: pattern(x, y), program, X, Y)
    assert is_rewritten(lambda x, y: program(x, y), pattern, X, Y)


DIFFERENT = {
    "another constant": (lambda x, y: x * y + 1, lambda x, y: x * y + 1.5),
    "another operand": (lambda x, y: x * y + x, lambda x, y: x * y + y * y),
    "operands of sub": (lambda x, y: (x - 1).exp() - y, lambda x, y: y - (x - 1).exp() + 0 * x),
    "a third": (lambda x, y: (x + y) / 3, lambda x, y: (x + y) * (1 / 3)),
    "another dim": (lambda x, y: x.mean(-1, keepdim=True) * y, lambda x, y: x.mean(0, keepdim=True) * y),
    "unbiased": (lambda x, y: x.var(0) + y, lambda x, y: x.var(0, correction=0) + y),
    "another operator between": (lambda x, y: (x * y).exp(), lambda x, y: (x * y).neg().exp()),
    "zeros": (lambda x, y: (x + 0.0).exp() * y, lambda x, y: (x + -0.0).exp() * y),
    "part of an operator": (
        lambda x, y: x * torch.sigmoid(x) + y,
        lambda x, y: torch.nn.functional.silu(x) + y,
    ),
}


@pytest.mark.parametrize("name", DIFFERENT)
def test_near_misses_are_not_matched(name):
    pattern, program = DIFFERENT[name]
    assert not is_rewritten(lambda x, y: pattern(x, y), program, X, Y)


def test_an_argument_may_be_any_value_and_the_same_twice():
    assert is_rewritten(lambda a, b: torch.exp(a * b), lambda x: torch.exp(x.sin() * x.sin()), X)
    assert not is_rewritten(lambda a: torch.exp(a * a), lambda x, y: torch.exp(x * y), X, Y)


def test_numbers_are_parameters_and_reach_the_replacement():
    seen = []

    def pattern(x, scale: float, dim: int):
        return torch.softmax(x * scale, dim)

    def replacement(x, scale, dim):
        seen.append((scale, dim))
        return torch.nn.functional.softmax(x.mul(scale), dim)

    fn = compiled(lambda x: torch.softmax(x * 0.125, 0) + (2 * x).softmax(-1), rewrite(pattern, replacement))
    torch.testing.assert_close(fn(X), torch.softmax(X * 0.125, 0) + (2 * X).softmax(-1))
    assert seen == [(0.125, 0), (2, -1)]


def test_a_number_that_occurs_twice_is_one_number():
    def pattern(x, c: float):
        return torch.sin(x + c) * c

    assert is_rewritten(pattern, lambda x: torch.sin(x + 3) * 3.0, X)
    assert not is_rewritten(pattern, lambda x: torch.sin(x + 3) * 4, X)


def test_a_pattern_returns_several_values():
    def pattern(x, residual, weight, eps: float):
        h = x + residual
        return rms_norm(h, weight, eps), h

    def program(x, residual, weight):
        h = residual + x
        return h.sin() + rms_norm(h, weight, 1e-5), h

    fn = compiled(program, rewrite(pattern, lambda x, r, w, eps: (by_torch(x + r, w, eps), x + r)))
    w = torch.rand(4)
    torch.testing.assert_close(fn(X, Y, w), program(X, Y, w))
    assert applied(fn) == ["pattern"]


def test_patterns_that_meet_are_all_replaced():
    def program(x, w1, w2):
        return rms_norm(rms_norm(x, w1, 1e-5), w2, 1e-6) + x

    fn = compiled(program, RMS_NORM)
    w1, w2 = torch.rand(2, 4)
    torch.testing.assert_close(fn(X, w1, w2), program(X, w1, w2))
    assert applied(fn) == ["rms_norm", "rms_norm"]


def test_two_matches_share_what_both_contain():
    def program(x, w1, w2):
        return rms_norm(x, w1, 1e-5), rms_norm(x, w2, 1e-5)

    fn = compiled(program, RMS_NORM)
    w1, w2 = torch.rand(2, 4)
    torch.testing.assert_close(fn(X, w1, w2), program(X, w1, w2))
    assert applied(fn) == ["rms_norm", "rms_norm"]
    assert symbols(fn).count("rms_norm") == 2
    assert "rsqrt" not in symbols(fn)
