"""Stochastic rounding of cotangents to four bits: its probabilities, and that gradients are not biased."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
import torch
from torch.nn.functional import linear

import thunder
from thunder.executors.transformer_engineex import NVFP4BlockScaling, autocast, fp8_reference_ex
from thunder_te.four_bits import (
    VALUES,
    dequantised_four_bits,
    four_bits,
    hadamard,
    rounded_codes,
    stochastic_codes,
    stochastic_four_bits,
    unpacked,
)


def values(codes: torch.Tensor) -> torch.Tensor:
    """The numbers of codes, by the table of the format."""
    table = torch.tensor([*VALUES, *(-value for value in VALUES)])
    return table[codes.long()]


def neighbours(x: float) -> tuple[float, float]:
    """The numbers of the format around a magnitude of at most 6."""
    return max(v for v in VALUES if v <= x), min(v for v in VALUES if v >= x)


def test_a_value_becomes_each_neighbour_with_its_probability():
    torch.manual_seed(0)
    count, points = 40_000, [0.1, 0.25, 0.9, 1.49, 2.2, 2.5, 3.9, 4.1, 5.9]
    for x in (sign * point for point in points for sign in (1, -1)):
        low, high = neighbours(abs(x))
        rounded = values(stochastic_codes(torch.full((count,), x), torch.rand(count)))
        assert set(rounded.abs().tolist()) == {low, high}
        assert (rounded * x >= 0).all()
        p = (abs(x) - low) / (high - low)
        found = (rounded.abs() == high).double().mean().item()
        assert abs(found - p) < 5 * math.sqrt(p * (1 - p) / count), (x, found, p)
        error = abs(rounded.double().mean().item() - x)
        assert error < 5 * (high - low) * math.sqrt(p * (1 - p) / count)


def test_numbers_of_the_format_stay_and_what_is_beyond_becomes_the_largest():
    exact = torch.tensor([*VALUES, *(-value for value in VALUES)])
    beyond = torch.tensor([6.5, 1e9, math.inf, -7.0, -math.inf, math.nan])
    for drawn in (0.0, 0.5, 1 - 2**-24):
        codes = stochastic_codes(exact, torch.full_like(exact, drawn))
        assert torch.equal(codes, torch.arange(16, dtype=torch.uint8))
        found = values(stochastic_codes(beyond, torch.full_like(beyond, drawn)))
        assert found.tolist() == [6, 6, 6, -6, -6, 6]
        assert torch.equal(stochastic_codes(beyond, torch.zeros_like(beyond)), rounded_codes(beyond))


def test_draws_decide_the_direction_at_their_bound():
    x = torch.full((2,), 3.25)  # a quarter of the way from 3 to 4
    drawn = torch.tensor([0.25, 0.25 - 2**-24])
    assert values(stochastic_codes(x, drawn)).tolist() == [3, 4]


@pytest.mark.parametrize("by_columns", [False, True])
def test_scales_are_those_of_rounding_to_the_nearest(by_columns: bool):
    torch.manual_seed(0)
    x = torch.randn(64, 96) * 10
    found, expected = (
        stochastic_four_bits(x, by_columns, by_columns),
        four_bits(x, by_columns, False, by_columns),
    )
    assert torch.equal(found[1].view(torch.uint8), expected[1].view(torch.uint8))
    assert torch.equal(found[2], expected[2])
    difference = (unpacked(found[0]) - unpacked(expected[0])).abs()
    assert 0 < difference.max() <= 2  # the largest step of the format


RECIPES = [NVFP4BlockScaling(), NVFP4BlockScaling(disable_rht=True), NVFP4BlockScaling(False, False, True)]


def gradients(recipe: NVFP4BlockScaling, count: int) -> tuple[Sequence[torch.Tensor], ...]:
    """The mean of gradients of a layer over backwards, and the arguments with their cotangent."""
    torch.manual_seed(0)
    x, w = torch.randn(32, 64, requires_grad=True), torch.randn(96, 64, requires_grad=True)
    compiled = thunder.jit(linear, executors=[fp8_reference_ex])
    with autocast(recipe=recipe):
        state = torch.get_rng_state()
        y = compiled(x, w)
        assert torch.equal(state, torch.get_rng_state())  # a forward draws nothing
    g = torch.randn(32, 96, generator=torch.Generator().manual_seed(1))
    sums = [torch.zeros_like(x), torch.zeros_like(w)]
    for _ in range(count):
        for total, part in zip(sums, torch.autograd.grad(y, (x, w), g, retain_graph=True), strict=True):
            total += part
    return [total / count for total in sums], (x.detach(), w.detach(), g)


@pytest.mark.parametrize("recipe", RECIPES, ids=str)
def test_the_mean_of_gradients_is_that_of_the_cotangent_which_was_not_rounded(recipe: NVFP4BlockScaling):
    """x and w are rounded to the nearest in both. Cotangents that are too are four times as far off."""
    square, rht = not recipe.disable_2d_quantization, not recipe.disable_rht
    means, (x, w, g) = gradients(recipe, 400)
    of_w = dequantised_four_bits(*four_bits(w, True, square, False)).t()
    of_x = dequantised_four_bits(*four_bits(x, True, False, rht))
    wide = g.t()
    if rht:  # of both operands, so that the product is that of the matrices
        wide = hadamard(wide)
    expected = g @ of_w, wide @ of_x.t()
    nearest, _ = gradients(NVFP4BlockScaling(recipe.disable_rht, True, recipe.disable_2d_quantization), 1)
    for mean, exact, biased in zip(means, expected, nearest, strict=True):
        error, of_nearest = ((found - exact).norm() / exact.norm() for found in (mean, biased))
        assert error < 0.03
        assert error < of_nearest / 4


def test_the_seed_decides_the_gradients_and_each_backward_draws_again():
    torch.manual_seed(0)
    x, w = torch.randn(32, 64, requires_grad=True), torch.randn(96, 64, requires_grad=True)
    compiled = thunder.jit(linear, executors=[fp8_reference_ex])
    with autocast(recipe=NVFP4BlockScaling()):
        y = compiled(x, w)
    found = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        found.append(torch.autograd.grad(y.square().sum(), (x, w), retain_graph=True))
    assert all(map(torch.equal, found[0], found[1]))
    assert not any(map(torch.equal, found[0], found[2]))
    torch.manual_seed(2)
    torch.autograd.grad(y.square().sum(), (x, w), retain_graph=True)
    again = torch.autograd.grad(y.square().sum(), (x, w))
    assert not any(map(torch.equal, found[2], again))


def test_layers_with_the_same_cotangent_draw_their_own_numbers():
    compiled = thunder.jit(lambda x, v, w: linear(x, v) + linear(x, w), executors=[fp8_reference_ex])
    x, v, w = (torch.randn(n, 64, requires_grad=True) for n in (32, 96, 96))
    with autocast(recipe=NVFP4BlockScaling()):
        compiled(x, v, w).sum().backward()
    assert str(thunder.last_backward_traces(compiled)[-1]).count("= fp8_quantize_four_bits_at_random(") == 4


def test_both_roundings_of_a_cotangent_draw_their_own_numbers():
    compiled = thunder.jit(linear, executors=[fp8_reference_ex])
    x, w = torch.randn(32, 64, requires_grad=True), torch.randn(96, 64, requires_grad=True)
    with autocast(recipe=NVFP4BlockScaling(disable_rht=True)):
        compiled(x, w).sum().backward()
    backward = str(thunder.last_backward_traces(compiled)[-1])
    assert backward.count("= fp8_quantize_four_bits_at_random(") == 2
    forward = str(thunder.last_traces(compiled)[-1])
    assert "at_random" not in forward
    assert forward.count("= fp8_quantize_four_bits(") == 4
