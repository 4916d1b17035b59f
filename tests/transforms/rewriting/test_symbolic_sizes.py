"""Rules are applied to programs whose sizes differ from call to call, by one program for all."""

from __future__ import annotations

import pytest
import torch

import thunder
from thunder.core.patterns import Rewrites, rewrite
from transforms.rewriting.rewriting_programs import applied, by_torch


def normalised(x, weight, eps: float):
    return weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps))


def _program(x, y, weight):
    """A place of the pattern, and one that resembles it where two sizes are equal by chance."""
    first = weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 0.25))
    return first.sum(0), y * torch.rsqrt(y.pow(2).mean(0, keepdim=True) + 0.25)


@pytest.mark.parametrize("cache", ["automatic", "symbolic values"])
def test_a_rule_fixes_no_size(cache):
    compiled = thunder.jit(_program, transforms=Rewrites(rewrite(normalised, by_torch)), cache=cache)
    for n, m in ((3, 5), (4, 6), (5, 5), (6, 3), (8, 9), (4, 7)):
        arguments = torch.randn(n, 7), torch.randn(m, n), torch.randn(7)
        torch.testing.assert_close(compiled(*arguments), _program(*arguments))
        assert applied(compiled) == ["normalised"]
    assert thunder.cache_misses(compiled) <= (2 if cache == "automatic" else 1)
    assert thunder.compile_stats(compiled).last_static_reason is None


def test_a_rule_with_an_integer_is_applied_for_each_value():
    def scaled(x, k: int):
        return torch.roll(x, k).sin() * 2

    def replacement(x, k):
        return torch.roll(x.sin(), k) * 2

    def program(x, k):
        return torch.roll(x, k).sin() * 2

    compiled = thunder.jit(program, transforms=Rewrites(rewrite(scaled, replacement)), recompile_limit=None)
    for n, k in ((3, 1), (4, 2), (5, 3), (4, 4), (3, 1)):
        x = torch.randn(n)
        torch.testing.assert_close(compiled(x, k), program(x, k))


def test_a_rule_is_applied_again_for_numbers_that_an_earlier_program_had_as_sizes():
    rule = rewrite(normalised, by_torch)
    for cache in ("symbolic values", "constant values", "symbolic values"):
        compiled = thunder.jit(_program, transforms=Rewrites(rule), cache=cache)
        for n in (4, 5):
            arguments = torch.randn(n, 7), torch.randn(3, n), torch.randn(7)
            torch.testing.assert_close(compiled(*arguments), _program(*arguments))
            assert applied(compiled) == ["normalised"]
