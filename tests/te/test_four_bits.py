"""NVFP4 and the formats of blocks: each number against torch's own conversions, or a plain computation."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
import torch
from torch.nn.functional import linear
from torch.testing._internal import common_quantized as of_torch

import thunder
from thunder.executors.transformer_engineex import NVFP4BlockScaling, autocast, fp8_reference_ex
from thunder_te import formulas
from thunder_te.four_bits import (
    VALUES,
    dequantised_four_bits,
    four_bits,
    hadamard,
    packed,
    rounded_codes,
    unpacked,
)

NEAREST = NVFP4BlockScaling(disable_stochastic_rounding=True)
EDGES = torch.tensor([0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0, 6.0, 7.0, 0.0, 2.0**-30, math.inf])


def test_rounding_to_four_bits_is_that_of_torch():
    torch.manual_seed(0)
    around = torch.cat([EDGES.nextafter(torch.tensor(sign * math.inf)) for sign in (-1.0, 1.0)])
    x = torch.cat([EDGES, around, torch.randn(1000) * 3, torch.linspace(-7, 7, 1001)])
    x = torch.cat([x, -x])
    finite = x.clamp(-6, 6)  # torch's conversion takes finite numbers
    assert torch.equal(rounded_codes(x), of_torch._f32_to_floatx_unpacked(finite, 2, 1))


def test_two_elements_are_in_a_byte_as_torch_packs_them():
    codes = torch.arange(256, dtype=torch.uint8).view(8, 32) & 15
    assert torch.equal(packed(codes), of_torch.pack_uint4(codes))
    values = of_torch._floatx_unpacked_to_f32(codes, 2, 1)
    assert torch.equal(unpacked(packed(codes)), values)
    x = torch.randn(8, 32).bfloat16()
    packed_by_torch = of_torch._bfloat16_to_float4_e2m1fn_x2(x)
    assert torch.equal(packed(rounded_codes(x.float())), packed_by_torch.view(torch.uint8))


def nearest(x: Fraction) -> Fraction:
    """The number of E2M1 that is nearest; of two, the one with an even code."""
    size = min(abs(x), Fraction(6))
    code = min(range(8), key=lambda c: (abs(Fraction(VALUES[c]) - size), c % 2))
    return Fraction(VALUES[code]) * (-1 if x < 0 else 1)


@pytest.mark.parametrize("square", [False, True])
def test_the_two_levels_of_scales_are_those_of_a_plain_computation(square: bool):
    torch.manual_seed(1)
    x = torch.randn(32, 48) * torch.logspace(-3, 3, 32)[:, None]
    x[16:, 16:32] = 0
    data, scales, amax = four_bits(x, False, square, False)
    found, values = dequantised_four_bits(data, scales, amax), unpacked(data)
    assert amax.item() == x.abs().max().item()
    whole = torch.tensor(6 * 448.0) / amax
    for i in range(32):
        for k in range(3):
            rows = slice(i // 16 * 16, i // 16 * 16 + 16) if square else slice(i, i + 1)
            block = x[rows, 16 * k : 16 * k + 16].abs().max()
            scale = (block / 6 * whole).clamp(max=448).to(torch.float8_e4m3fn).float().item()
            assert scales[i, k].float().item() == scale
            if scale == 0:  # of a block that is small beside the tensor: its elements are lost
                assert (found[i, 16 * k : 16 * k + 16] == 0).all()
                continue
            factor = whole / scale
            for j in range(16 * k, 16 * k + 16):
                assert values[i, j].item() == nearest(Fraction((x[i, j] * factor).item())), (i, j)
    exact = values * scales.float().repeat_interleave(16, 1) * amax / (6 * 448)
    torch.testing.assert_close(found, exact)


def test_the_transform_keeps_products_and_columns_are_rows_of_the_transpose():
    torch.manual_seed(2)
    a, b = torch.randn(16, 64), torch.randn(32, 64)
    torch.testing.assert_close(hadamard(a) @ hadamard(b).t(), a @ b.t(), rtol=1e-4, atol=1e-4)
    peak = torch.zeros(1, 16)
    peak[0, 3] = 4.0
    assert torch.equal(hadamard(peak).abs(), torch.ones(1, 16))
    for transform in (False, True):
        for rows, columns in zip(
            four_bits(a, False, False, transform), four_bits(a.t(), True, False, transform), strict=True
        ):
            assert torch.equal(rows.view(torch.uint8), columns.view(torch.uint8))


@pytest.mark.parametrize(
    "recipe",
    [
        NEAREST,
        NVFP4BlockScaling(disable_rht=True, disable_stochastic_rounding=True),
        NVFP4BlockScaling(disable_stochastic_rounding=True, disable_2d_quantization=True),
    ],
    ids=str,
)
def test_layers_and_gradients_are_products_of_rounded_operands(recipe: NVFP4BlockScaling):
    torch.manual_seed(0)
    x, w, b = (torch.randn(*shape).requires_grad_() for shape in ((2, 32, 64), (160, 64), (160,)))
    compiled = thunder.jit(linear, executors=[fp8_reference_ex])
    with autocast(recipe=recipe):
        y = compiled(x, w, b)
    g = torch.randn_like(y)
    dx, dw, db = torch.autograd.grad(y, (x, w, b), g, retain_graph=True)
    again = torch.autograd.grad(y, (x, w, b), g)
    assert all(map(torch.equal, (dx, dw, db), again))
    square, rht = not recipe.disable_2d_quantization, not recipe.disable_rht
    X, G, W = (t.detach().flatten(0, -2) for t in (x, g, w))

    def rounded(t: torch.Tensor, by_columns: bool, square: bool = False, rht: bool = False) -> torch.Tensor:
        return dequantised_four_bits(*four_bits(t, by_columns, square, rht)).double()

    forward = rounded(X, False) @ rounded(W, False, square).t() + b.detach()
    torch.testing.assert_close(y.detach().flatten(0, 1).double(), forward, rtol=1e-4, atol=1e-4)
    of_x = rounded(G, False) @ rounded(W, True, square).t()
    torch.testing.assert_close(dx.flatten(0, 1).double(), of_x, rtol=1e-4, atol=1e-4)
    of_w = rounded(G, True, rht=rht) @ rounded(X, True, rht=rht).t()
    torch.testing.assert_close(dw.double(), of_w, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(db, g.sum((0, 1)))
    # an element of E2M1 is off by at most a quarter of itself, and of its block's largest number by a twelfth
    exact = G.double().t() @ X.double()
    assert ((dw - exact).norm() / exact.norm()).item() < 0.2


@pytest.mark.parametrize("block", [(1, 32), (32, 1), (1, 128), (128, 1), (128, 128)], ids=str)
@pytest.mark.parametrize("power_of_2", [False, True])
@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2], ids=str)
def test_scales_of_blocks_are_those_of_a_plain_computation(block, power_of_2: bool, dtype: torch.dtype):
    torch.manual_seed(3)
    x = torch.randn(40, 136) * torch.logspace(-4, 4, 40)[:, None]
    data, inverses = formulas.by_blocks(x, dtype, block, power_of_2)
    largest = torch.finfo(dtype).max
    for i in range(0, 40, block[0]):
        for j in range(0, 136, block[1]):
            part = (slice(i, i + block[0]), slice(j, j + block[1]))
            scale = largest / x[part].abs().max().item()
            if power_of_2:  # the largest that keeps the block within the format
                scale = 2.0 ** math.floor(math.log2(scale))
            inverse = inverses[i // block[0], j // block[1]].item()
            assert inverse == pytest.approx(1 / scale, rel=1e-6)
            assert not power_of_2 or math.frexp(inverse)[0] == 0.5
            expected = (x[part] / inverse).clamp(-largest, largest).to(dtype).float()
            found = data[part].float()
            off = (found - expected).abs()  # a scale that is not a power of two may move a tie by one place
            assert off.max() == 0 if power_of_2 else (off <= 2**-2 * expected.abs() + 2**-9).all()
    if power_of_2:
        exponents = inverses.to(torch.float8_e8m0fnu)
        assert torch.equal(exponents.float(), inverses), "MXFP8 stores them in E8M0"
