"""Weights in 4 bits: quantisation, its inverse, and a product.

w ≈ (q - 8) · scale + middle, with q from 0 to 15, and a scale and a middle for each group of `group_size`
elements in a row. torch's kernels read the bytes in blocks of as many rows as fit in their registers:

    stored   ui8 (out / rows, in, rows / 2)     row i of a block in the low half of byte i,
                                                row i + rows / 2 in the high half
    scales   (in / group_size, out, 2)          scale and middle

The shape of what is stored says how many rows a block has, so that weights that were stored on another
machine are refused by their shape, and not misread.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import torch
from torch import Tensor

from thunder_onednn.quantised.eight_bits import SMALLEST, dtype_of_scales

__all__ = ["GROUP_SIZES", "block_rows", "dequantised", "product", "quantised"]

GROUP_SIZES: Final = (32, 64, 128, 256)
#: instructions of the CPU → rows of a block
_BLOCK_ROWS: Final[Mapping[str, int]] = {"AVX512": 64, "AVX2": 32}
_MIDDLE: Final = 8
_LARGEST: Final = 15


def block_rows() -> int | None:
    """Return how many rows of a weight are in a block, or None where torch has no fast kernel."""
    return _BLOCK_ROWS.get(torch.backends.cpu.get_cpu_capability())


def quantised(weight: Tensor, group_size: int, rows: int) -> tuple[Tensor, Tensor]:
    """Return the bytes and the scales of a weight `(out, in)` of finite numbers."""
    (features, length), dtype = weight.shape, dtype_of_scales(weight)
    if weight.is_meta:
        return (
            weight.new_empty((features // rows, length, rows // 2), dtype=torch.uint8),
            weight.new_empty((length // group_size, features, 2), dtype=dtype),
        )
    groups = weight.detach().float().contiguous().view(features, -1, group_size)
    low, high = groups.aminmax(dim=-1, keepdim=True)
    scale = (high / _LARGEST - low / _LARGEST).clamp_(min=SMALLEST).to(dtype)
    middle = (low + _MIDDLE * scale.float()).to(dtype)
    q = ((groups - middle) / scale).round_().add_(_MIDDLE).clamp_(0, _LARGEST)
    stored: Tensor = torch.ops.aten._convert_weight_to_int4pack_for_cpu(q.int().view(features, length), 1)
    scales = torch.cat([scale, middle], -1).transpose(0, 1).contiguous()
    return stored.view(-1, length, rows // 2), scales


def dequantised(stored: Tensor, scales: Tensor, dtype: torch.dtype) -> Tensor:
    """Return the weight that is stored, `(out, in)`, rounded to `dtype`."""
    blocks, length, half = stored.shape
    halves = stored.transpose(1, 2).contiguous()
    q = torch.cat([halves & _LARGEST, halves >> 4], 1).view(2 * half * blocks, len(scales), -1)
    scale, middle = scales.float().permute(2, 1, 0).unsqueeze(-1)
    return q.float().sub_(_MIDDLE).mul_(scale).add_(middle).to(dtype).view(-1, length)


def product(x: Tensor, stored: Tensor, scales: Tensor) -> Tensor:
    """Return x wᵀ; x: `(rows, in)`, in bfloat16 as the scales are."""
    form = stored.view(-1, x.shape[1] // 2)
    y: Tensor = torch.ops.aten._weight_int4pack_mm_for_cpu(x, form, x.shape[1] // len(scales), scales)
    return y
