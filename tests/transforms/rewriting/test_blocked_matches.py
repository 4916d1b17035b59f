"""Matches that must not be replaced: values used elsewhere, writes, regions, views, strides."""

from __future__ import annotations

import torch

import thunder
from thunder.core.patterns import rewrite
from transforms.rewriting.rewriting_programs import (
    RMS_NORM,
    applied,
    by_torch,
    compiled,
    refusals,
    rms_norm,
    symbols,
)

X, W = torch.randn(3, 4), torch.rand(4)


def check(program, *args, rules=(RMS_NORM,), **options):
    """The compiled program, whose results, and what it writes, agree with eager's."""
    fn = compiled(program, *rules, **options)
    mine, eagers = [[a.clone() if isinstance(a, torch.Tensor) else a for a in args] for _ in range(2)]
    result, expected = fn(*mine), program(*eagers)
    torch.testing.assert_close(result, expected)
    torch.testing.assert_close(mine, eagers)
    return fn


def test_a_value_inside_that_is_read_elsewhere_prevents_a_match():
    def program(x, w):
        inverse = torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6)
        return x * inverse * w, inverse

    fn = check(program, X, W)
    assert applied(fn) == []
    assert refusals(fn) == ["used-elsewhere"]
    assert "used elsewhere" in str(thunder.explain(fn))


def test_a_cast_inside_that_is_read_elsewhere_stays():
    def pattern(x, w):
        return torch.sin(x.float()) * w

    def program(x, w):
        wide = x.float()
        return wide.sin() * w, wide.cos()

    fn = check(program, X.bfloat16(), W, rules=[rewrite(pattern, lambda x, w: w * torch.sin(x.float()))])
    assert applied(fn) == ["pattern"]


def test_a_write_between_is_seen():
    def program(x, w):
        square = (x * x).mean(-1, keepdim=True)
        x.mul_(2)
        return x * torch.rsqrt(square + 1e-6) * w

    assert applied(check(program, X, W)) == []

    def after(x, w):
        x.mul_(2)
        y = rms_norm(x, w, 1e-6)
        x.add_(1)
        return y + x

    fn = check(after, X, W)
    assert applied(fn) == ["rms_norm"]


def test_a_change_of_the_grad_mode_between_prevents_a_match():
    def divided(x, w):
        with torch.no_grad():
            inverse = torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6)
        return x * inverse * w

    x = X.clone().requires_grad_()
    fn = compiled(divided, RMS_NORM)
    fn(x, W).sum().backward()
    expected = X.clone().requires_grad_()
    divided(expected, W).sum().backward()
    torch.testing.assert_close(x.grad, expected.grad)
    assert applied(fn) == []
    assert refusals(fn) == ["region"]


def test_a_match_without_gradients_stays_without():
    def program(x, w):
        with torch.no_grad():
            y = rms_norm(x, w, 1e-6)
        return y * x

    x, expected = (X.clone().requires_grad_() for _ in range(2))
    fn = compiled(program, RMS_NORM)
    fn(x, W).sum().backward()
    program(expected, W).sum().backward()
    torch.testing.assert_close(x.grad, expected.grad)
    assert applied(fn) == ["rms_norm"]


def test_a_detached_part_is_a_part_of_the_pattern():
    def pattern(x, w):
        return x.detach() * w + x

    def program(x, w):
        return x * w + x

    assert applied(check(program, X, W, rules=[rewrite(pattern, lambda x, w: x * w + x)])) == []


def test_a_returned_view_stays_a_view():
    def pattern(x):
        return x.transpose(0, 1).unsqueeze(0)

    def program(x):
        return x.t().sin(), x.transpose(0, 1).unsqueeze(0)

    rule = rewrite(pattern, lambda x: x.transpose(0, 1).unsqueeze(0).clone())
    fn = compiled(program, rule)
    x = X.clone()
    fn(x)[1].zero_()
    assert torch.equal(x, torch.zeros_like(x))
    assert refusals(fn) == ["view"]


def test_a_replacement_that_returns_its_argument_makes_a_new_tensor():
    rule = rewrite(lambda x: x * 1, lambda x: x, name="times_one")
    x = X.clone()
    fn = compiled(lambda x: x * 1, rule)
    result = fn(x)
    assert applied(fn) == ["times_one"]
    result.zero_()
    assert torch.equal(x, X)
    view = rewrite(lambda x: x + 0, lambda x: x.view_as(x), name="plus_zero")
    fn = compiled(lambda x: x + 0, view)
    fn(x).zero_()
    assert torch.equal(x, X)


def test_results_share_memory_where_those_of_the_program_do():
    def pattern(x, y):
        return x + y, (x + y) * 1

    def program(x, y):
        total = x + y
        return total, total * 1

    def overlapping(x, y):
        total = x + y
        return total, total.unsqueeze(0).squeeze(0)

    for replacement in (overlapping, lambda x, y: overlapping(x, y)[::-1]):
        fn = compiled(program, rewrite(pattern, replacement))
        first, second = fn(X, X)
        second.zero_()
        assert torch.equal(first, X + X)
        assert applied(fn) == ["pattern"]
    viewed = rewrite(overlapping, program, name="viewed")
    fn = compiled(overlapping, viewed)
    first, second = fn(X, X)
    second.zero_()
    assert not first.any()
    assert refusals(fn) == ["view"]


def test_a_result_of_the_program_keeps_its_strides():
    rule = rewrite(lambda x, y: torch.sin(x + y), lambda x, y: (x + y).contiguous().sin(), name="sine")
    x = torch.randn(3, 4).t()
    fn = compiled(lambda x: torch.sin(x + x), rule)
    assert fn(x).stride() == torch.sin(x + x).stride()
    assert refusals(fn) == ["strides"]
    inside = compiled(lambda x: torch.sin(x + x).sum(), rule)
    inside(x)
    assert applied(inside) == ["sine"]


def test_strides_that_the_program_has_read_are_kept():
    def program(x):
        y = torch.sin(x + x)
        return (y * 2).sum() if y.is_contiguous() else y.sum()

    rule = rewrite(lambda x: torch.sin(x + x), lambda x: (x + x).contiguous().sin(), name="sine")
    fn = compiled(program, rule)
    x = torch.randn(3, 4).t()
    torch.testing.assert_close(fn(x), program(x))
    assert refusals(fn) == ["strides"]


def test_random_operators_keep_their_numbers():
    def program(x, w):
        y = rms_norm(torch.nn.functional.dropout(x, 0.5), w, 1e-6)
        return torch.nn.functional.dropout(y, 0.5)

    fn = compiled(program, RMS_NORM)
    torch.manual_seed(0)
    result = fn(X, W)
    torch.manual_seed(0)
    torch.testing.assert_close(result, program(X, W))
    assert applied(fn) == ["rms_norm"]


def test_a_custom_gradient_is_not_looked_into():
    class Doubled(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, w):
            return rms_norm(x, w, 1e-6)

        @staticmethod
        def backward(ctx, g):
            return 2 * g, None

    fn = compiled(lambda x, w: Doubled.apply(x, w) * 1, RMS_NORM)
    x = X.clone().requires_grad_()
    fn(x, W).sum().backward()
    assert torch.equal(x.grad, torch.full_like(x, 2))
    assert applied(fn) == []


def test_a_result_that_is_computed_before_a_later_argument_is_left():
    def pattern(x, y, gate):
        s = x + y
        return s, torch.sin(s) * gate

    def program(x, y):
        s = x + y
        gate = s.exp()
        return s * 2, torch.sin(s) * gate

    fn = check(program, X, X.cos(), rules=[rewrite(pattern, lambda x, y, g: (x + y, (x + y).sin() * g))])
    assert applied(fn) == []
    assert refusals(fn) == ["order"]


def test_errors_on_data_are_raised_as_before():
    def program(w, i, v):
        return torch.nn.functional.embedding(i, w) + v

    rule = rewrite(
        lambda w, i, v: torch.nn.functional.embedding(i, w) + v, lambda w, i, v: w[i] + v, name="rows"
    )
    fn = compiled(program, rule)
    i = torch.tensor([0, 2])
    torch.testing.assert_close(fn(X, i, W), program(X, i, W))
    assert applied(fn) == ["rows"]
    assert "embedding" not in symbols(fn)


def test_checkpointed_programs_agree():
    def program(x, w):
        return torch.utils.checkpoint.checkpoint(rms_norm, x, w, 1e-6, use_reentrant=False) * 2

    x, expected = (X.clone().requires_grad_() for _ in range(2))
    fn = compiled(program, RMS_NORM)
    fn(x, W).sum().backward()
    program(expected, W).sum().backward()
    torch.testing.assert_close(x.grad, expected.grad)
    assert by_torch(X, W, 1e-6).shape == (3, 4)
