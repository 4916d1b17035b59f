"""The arithmetic of NVFP4 in torch: four bits with a scale of 8 bits for 16 elements, and one for the tensor.

NVIDIA, "Pretraining Large Language Models with NVFP4", arXiv:2509.25149, appendices B and C:

    global = 6 · 448 / amax      scale = E4M3(amax(block) / 6 · global)      q = E2M1(x · global / scale)

so that x ≈ q · scale / global. The elements of a block are summed together: of a matrix the rows are summed,
or the columns; then it is stored transposed, so that each product is `a @ b.T`. Two elements are in one byte,
the first in its lower half, as in `torch.float4_e2m1fn_x2`.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Final

import torch
from torch import Tensor

__all__ = [
    "BLOCK",
    "VALUES",
    "dequantised_four_bits",
    "four_bits",
    "hadamard",
    "packed",
    "rounded_codes",
    "stochastic_codes",
    "stochastic_four_bits",
    "unpacked",
]

#: elements with one scale
BLOCK: Final = 16
#: the numbers of E2M1, by code: 2 bits of exponent, 1 of mantissa; a fourth bit is the sign (Open Compute
#: Project, "OCP Microscaling Formats (MX) Specification", version 1.0, 5.3.3)
VALUES: Final = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
_LARGEST_SCALE: Final = 448.0
_LARGEST_FLOAT: Final = torch.finfo(torch.float32).max
#: the signs of the transform, the same for both operands of a product (Transformer Engine 2.20,
#: `get_wgrad_sign_vector`)
_SIGNS: Final = (1, 1, 1, -1, 1, -1, -1, -1, -1, -1, -1, 1, -1, 1, -1, -1)


def rounded_codes(x: Tensor) -> Tensor:
    """Return the codes (uint8, 0 to 15) of float32 values in E2M1: the nearest, of two the even one.

    Values beyond 6, infinities too, become 6; NaN becomes 6, since the format has none.
    """
    magnitude = x.abs().nan_to_num(nan=VALUES[-1])
    codes = torch.zeros_like(magnitude, dtype=torch.uint8)
    for code, (low, high) in enumerate(pairwise(VALUES)):
        middle = (low + high) / 2
        codes += (magnitude > middle) | ((magnitude == middle) & (code % 2 == 1))
    return codes | (x.signbit().to(torch.uint8) << 3)


def stochastic_codes(x: Tensor, drawn: Tensor) -> Tensor:
    """Return the codes (uint8, 0 to 15) of float32 values in E2M1, rounded up or down at random.

    A value x between two numbers a < b of the format becomes b with probability (x - a) / (b - a), so that
    the mean of what it becomes is x: Croci et al., "Stochastic rounding: implementation, error analysis and
    applications", 2022, section 2, as the paper on NVFP4 and Transformer Engine's recipe round gradients.
    `drawn` are independent numbers of [0, 1), one for each element. Values beyond 6 become 6, as does NaN.
    """
    values = torch.tensor(VALUES, device=x.device)
    magnitude = x.abs().nan_to_num(nan=VALUES[-1]).clamp(max=VALUES[-1])
    below = torch.zeros_like(magnitude, dtype=torch.long)  # codes of the largest numbers not above
    for value in VALUES[1:]:
        below += magnitude >= value
    low, high = values[below], values[(below + 1).clamp(max=len(VALUES) - 1)]
    codes = below + (drawn * (high - low) < magnitude - low)
    return codes.to(torch.uint8) | (x.signbit().to(torch.uint8) << 3)


def packed(codes: Tensor) -> Tensor:
    """Return codes `(m, n)` as bytes `(m, n / 2)`."""
    return codes[:, ::2] | (codes[:, 1::2] << 4)


def unpacked(data: Tensor) -> Tensor:
    """Return bytes `(m, n / 2)` as the float32 values of their codes `(m, n)`."""
    codes = torch.stack((data & 15, data >> 4), -1).flatten(-2)
    values = torch.tensor([*VALUES, *(-value for value in VALUES)], device=data.device)
    return values[codes.long()]


def hadamard(x: Tensor) -> Tensor:
    """Return a matrix `(m, n)` whose rows were transformed in pieces of 16, which keeps products of rows.

    The matrix is orthogonal: signs, then Sylvester's matrix over 4.
    """
    matrix = torch.ones(1, 1, device=x.device)
    for _ in range(4):
        matrix = torch.cat((torch.cat((matrix, matrix), 1), torch.cat((matrix, -matrix), 1)))
    signs = torch.tensor(_SIGNS, dtype=torch.float32, device=x.device)
    result: Tensor = (x.float().unflatten(-1, (-1, BLOCK)) * signs @ (matrix / 4)).flatten(-2)
    return result


def four_bits(x: Tensor, by_columns: bool, square: bool, transform: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Return a matrix `(m, n)` in four bits: bytes, scales E4M3 and the largest magnitude, f32 `(1,)`.

    Bytes are `(m, n / 2)` and scales `(m, n / 16)`, of the transposed matrix with `by_columns`. With `square`
    16 by 16 elements have one scale; with `transform` rows are transformed first (:func:`hadamard`).
    """
    scaled, scales, amax = _scaled(x, by_columns, square, transform)
    return packed(rounded_codes(scaled)), scales, amax


def stochastic_four_bits(x: Tensor, by_columns: bool, transform: bool) -> tuple[Tensor, Tensor, Tensor]:
    """As :func:`four_bits`, with elements rounded at random by numbers of torch's default generator."""
    scaled, scales, amax = _scaled(x, by_columns, False, transform)
    return packed(stochastic_codes(scaled, torch.rand_like(scaled))), scales, amax


def _scaled(x: Tensor, by_columns: bool, square: bool, transform: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Return the elements in the range of the format, the scales E4M3 and the largest magnitude."""
    matrix = x.float().t() if by_columns else x.float()
    if transform:
        matrix = hadamard(matrix)
    amax = matrix.abs().max().view(1)
    whole = _global_scale(amax)
    blocks = matrix.abs().unflatten(-1, (-1, BLOCK)).amax(-1)
    if square:
        over_rows = blocks.unflatten(0, (-1, BLOCK)).amax(1)
        blocks = over_rows.repeat_interleave(BLOCK, 0)
    scales = (blocks / VALUES[-1] * whole).clamp(max=_LARGEST_SCALE).to(torch.float8_e4m3fn)
    by_element = (whole / scales.float()).clamp(max=_LARGEST_FLOAT).repeat_interleave(BLOCK, 1)
    return matrix * by_element, scales, amax


def _global_scale(amax: Tensor) -> Tensor:
    """Return 6 · 448 / amax; 1 where amax is zero, infinite or NaN."""
    scale = (VALUES[-1] * _LARGEST_SCALE / amax).clamp(max=_LARGEST_FLOAT)
    return torch.where((amax > 0) & amax.isfinite(), scale, 1.0)


def dequantised_four_bits(data: Tensor, scales: Tensor, amax: Tensor) -> Tensor:
    """Return the float32 values `(m, n)` of what :func:`four_bits` returns."""
    return unpacked(data) * scales.float().repeat_interleave(BLOCK, 1) / _global_scale(amax)
