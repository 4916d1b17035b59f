"""Which elements share a scale under each recipe of blocks, and scales of tensors without magnitude."""

from __future__ import annotations

import math

import pytest
import torch
from torch.nn.functional import linear

import thunder
from thunder.executors.transformer_engineex import (
    Float8BlockScaling,
    Format,
    MXFP8BlockScaling,
    autocast,
    fp8_reference_ex,
)
from thunder_te import formulas

E4M3, E5M2 = torch.float8_e4m3fn, torch.float8_e5m2
Block = tuple[int, int]


def rounded(x: torch.Tensor, dtype: torch.dtype, block: Block, power_of_2: bool) -> torch.Tensor:
    """A matrix with each block rounded by a scale of its own: a plain computation."""
    largest, result = torch.finfo(dtype).max, torch.empty_like(x)
    for i in range(0, x.shape[0], block[0]):
        for j in range(0, x.shape[1], block[1]):
            part = x[i : i + block[0], j : j + block[1]]
            scale = largest / part.abs().max().item()
            if power_of_2:
                scale = 2.0 ** math.floor(math.log2(scale))
            values = (part * scale).clamp(-largest, largest).to(dtype).float() / scale
            result[i : i + block[0], j : j + block[1]] = values
    return result.double()


#: recipe → (blocks of x, w and g for their two products, whether scales are powers of two)
RECIPES = {
    MXFP8BlockScaling(): (((1, 32), (32, 1)), ((1, 32), (32, 1)), ((1, 32), (32, 1)), True),
    Float8BlockScaling(): (((1, 128), (128, 1)), ((128, 128),) * 2, ((1, 128), (128, 1)), True),
    Float8BlockScaling(Format.HYBRID, True): (
        ((1, 128), (128, 1)),
        ((128, 128),) * 2,
        ((1, 128), (128, 1)),
        False,
    ),
}


@pytest.mark.parametrize("recipe", RECIPES, ids=str)
def test_products_are_those_of_operands_whose_blocks_have_scales(recipe):
    torch.manual_seed(0)
    of_x, of_w, of_g, power_of_2 = RECIPES[recipe]
    # magnitudes so different that what a number becomes depends on the largest one of its block
    x, w, g = (
        torch.randn(m, n) * 10 ** (2 * torch.randn(m, n)) for m, n in ((128, 256), (160, 256), (128, 160))
    )
    leaves = [x.requires_grad_(), w.requires_grad_()]
    compiled = thunder.jit(linear, executors=[fp8_reference_ex])
    with autocast(recipe=recipe):
        y = compiled(x, w)
    dx, dw = torch.autograd.grad(y, leaves, g)
    backward = E5M2 if getattr(recipe, "fp8_format", Format.E4M3) is Format.HYBRID else E4M3
    X, W = ([rounded(t.detach(), E4M3, b, power_of_2) for b in bs] for t, bs in ((x, of_x), (w, of_w)))
    G = [rounded(g, backward, block, power_of_2) for block in of_g]
    expected = X[0] @ W[0].t(), G[0] @ W[1], G[1].t() @ X[1]
    magnitudes = X[0].abs() @ W[0].abs().t(), G[0].abs() @ W[1].abs(), G[1].abs().t() @ X[1].abs()
    for found, right, magnitude in zip((y.detach(), dx, dw), expected, magnitudes, strict=True):
        # sums in float32; a scale that is no power of two may move a tie
        error = ((found.double() - right).abs() / magnitude.clamp(min=1e-30)).max().item()
        assert error < (2e-6 if power_of_2 else 0.05)


@pytest.mark.parametrize("power_of_2", [False, True])
def test_the_scale_of_a_tensor_without_magnitude_is_one(power_of_2: bool):
    for amax in (0.0, math.inf, math.nan):
        scale = formulas.scale_from_amax(torch.tensor([amax]), E4M3, power_of_2)
        assert scale.item() == 1
    tiny = formulas.scale_from_amax(torch.tensor([1e-45]), E4M3, power_of_2)
    assert tiny.isfinite().all()
    x = torch.randn(64, 64)
    x[:32, :32] = 0
    data, inverses = formulas.by_blocks(x, E4M3, (32, 32), power_of_2)
    assert inverses[0, 0] == 1
    assert not data[:32, :32].float().any()
    data, inverse = formulas.by_own_amax(torch.zeros(4, 4), E4M3, power_of_2)
    assert (data.float().any().item(), inverse.item()) == (False, 1)


@pytest.mark.parametrize("algorithm", ["max", "most_recent"])
def test_a_scale_stays_where_a_step_has_no_magnitude(algorithm):
    history, scale = torch.zeros(3, 4), torch.tensor([2.0, 3.0, 5.0, 7.0])
    amax = torch.tensor([0.0, math.inf, math.nan, 4.0])
    largest = torch.full((4,), 448.0)
    history, scale = formulas.updated_state(history, scale, amax, largest, 0, algorithm)
    assert scale.tolist() == [2, 3, 5, 112]
    assert history[0].tolist() == [0, 0, 0, 0]
