"""The arithmetic of the recipes in torch: scales, rounding to 8 bits, products of rounded tensors.

A quantised tensor is its elements in an 8-bit format and the inverses of its scales, float32:
x ≈ data · scale_inv. The formulas are those of Transformer Engine 2.20: `recipe_common.cuh` for scales from
amaxes, `pytorch/quantization.py` (`_default_sf_compute`, `_default_get_amax_and_update_history`) for delayed
scaling, and its documentation of block scaling.
"""

from __future__ import annotations

from typing import Final, Literal

import torch
from torch import Tensor

__all__ = [
    "by_blocks",
    "by_own_amax",
    "by_scale",
    "dequantised",
    "product",
    "scale_from_amax",
    "updated_state",
]

_LARGEST: Final = torch.finfo(torch.float32).max


def scale_from_amax(amax: Tensor, dtype: torch.dtype, power_of_2: bool) -> Tensor:
    """Return largest(dtype) / amax in float32; 1 where amax is zero, infinite or NaN.

    With `power_of_2` it is rounded down to a power of two, so that no scaled value exceeds the format.
    """
    scale = torch.finfo(dtype).max / amax
    scale = scale.clamp(max=_LARGEST)  # of an amax so small that the quotient overflows
    if power_of_2:
        mantissa, exponent = torch.frexp(scale)  # scale = mantissa · 2**exponent, mantissa in [0.5, 1)
        scale = torch.ldexp(torch.full_like(mantissa, 0.5), exponent)
    return torch.where((amax > 0) & amax.isfinite(), scale, 1.0)


def _rounded(scaled: Tensor, dtype: torch.dtype) -> Tensor:
    """Return float32 values in an 8-bit format, those beyond its range as its largest; NaN stays NaN."""
    largest = torch.finfo(dtype).max
    return scaled.clamp(-largest, largest).to(dtype)


def _amax(x: Tensor) -> Tensor:
    """Return the largest magnitude of the elements, f32 `()`; 0 if there are none."""
    return x.abs().max() if x.numel() else x.new_zeros(())


def by_own_amax(x: Tensor, dtype: torch.dtype, power_of_2: bool) -> tuple[Tensor, Tensor]:
    """Return a tensor in 8 bits and the inverse of its scale, f32 `(1,)`, from its own largest magnitude."""
    x = x.float()
    scale = scale_from_amax(_amax(x).view(1), dtype, power_of_2)
    return _rounded(x * scale, dtype), scale.reciprocal()


def by_scale(x: Tensor, scale: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    """Return a tensor in 8 bits by a scale f32 `(1,)`, the scale's inverse, and the amax, f32 `()`."""
    x = x.float()
    return _rounded(x * scale, dtype), scale.reciprocal(), _amax(x)


def by_blocks(
    x: Tensor, dtype: torch.dtype, block: tuple[int, int], power_of_2: bool
) -> tuple[Tensor, Tensor]:
    """Return a tensor `(m, n)` in 8 bits and the inverses of the scales of its blocks.

    They are f32 `(⌈m / block[0]⌉, ⌈n / block[1]⌉)`. Blocks at the edges may be incomplete.
    """
    x = x.float()
    amax = _block_amax(x, block)
    scale = scale_from_amax(amax, dtype, power_of_2)
    return _rounded(x * _spread(scale, block, x.shape), dtype), scale.reciprocal()


def _block_amax(x: Tensor, block: tuple[int, int]) -> Tensor:
    rows, columns = (-(-size // length) for size, length in zip(x.shape, block, strict=True))
    padded = torch.nn.functional.pad(
        x.abs(), (0, columns * block[1] - x.shape[1], 0, rows * block[0] - x.shape[0])
    )
    return padded.view(rows, block[0], columns, block[1]).amax((1, 3))


def _spread(scales: Tensor, block: tuple[int, int], shape: torch.Size) -> Tensor:
    """Return the scale of each element."""
    rows = scales.repeat_interleave(block[0], 0)[: shape[0]]
    return rows.repeat_interleave(block[1], 1)[:, : shape[1]]


def dequantised(data: Tensor, scale_inv: Tensor, block: tuple[int, int] | None) -> Tensor:
    """Return data · scale_inv in float32; `block` is that of :func:`by_blocks`, None for one scale."""
    values = data.float()
    return values * (scale_inv if block is None else _spread(scale_inv, block, data.shape))


def product(a: Tensor, b: Tensor, dtype: torch.dtype, bias: Tensor | None) -> Tensor:
    """Return a @ b + bias of dequantised matrices, summed in float32 and rounded once to `dtype`."""
    result = a @ b
    return (result if bias is None else result + bias.float()).to(dtype)


def updated_state(
    history: Tensor,
    scale: Tensor,
    amax: Tensor,
    largest: Tensor,
    margin: int,
    algorithm: Literal["max", "most_recent"],
) -> tuple[Tensor, Tensor]:
    """Return the history of amaxes `(steps, n)` and the scales `(n,)` after a step with these amaxes.

    history[0] is the place of the current step, and is 0 between steps. `largest` has the largest numbers of
    the formats. A scale stays as it is where the amax is zero, infinite or NaN.
    """
    history = torch.cat((amax.unsqueeze(0), history[1:]))
    chosen = history.amax(0) if algorithm == "max" else history[0]
    new = (largest / chosen / 2.0**margin).clamp(max=_LARGEST)
    new = torch.where((chosen > 0) & chosen.isfinite(), new, scale)
    history = history.roll(-1, 0)
    history[0] = 0
    return history, new
