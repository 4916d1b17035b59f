"""Weights in int8: quantisation, its inverse, and two products.

w ≈ q · scale with q from -127 to 127 and a scale for each row of the weight: q `(out, in)`, scale `(out,)`,
which is rounded to its dtype before q is computed: bfloat16 for a weight in bfloat16, else float32. In the
product with quantised inputs each row of x has a scale as well, x ≈ p · scale_x, and sums of q · p are exact:
the result of a row is the same whatever other rows there are.
"""

from __future__ import annotations

from typing import Final

import torch
from torch import Tensor

__all__ = [
    "LONGEST",
    "SMALLEST",
    "dequantised",
    "dtype_of_scales",
    "exact_product",
    "packed",
    "product",
    "quantised",
]

#: the longest row of a weight whose sums are surely in int32: 255 · 127 · LONGEST < 2³¹
LONGEST: Final = 66_000
#: the smallest scale
SMALLEST: Final = torch.finfo(torch.float32).smallest_normal
_LARGEST: Final = 127
#: what oneDNN's kernel subtracts from an input in unsigned bytes
_OFFSET: Final = 128


def quantised(weight: Tensor) -> tuple[Tensor, Tensor]:
    """Return q, i8 `(out, in)`, and the scales `(out,)` of a weight `(out, in)` of finite numbers."""
    wide = weight.detach().float().contiguous()
    scale = _scales(wide).to(dtype_of_scales(weight))
    q = (wide / scale).round_().clamp_(-_LARGEST, _LARGEST)
    return q.to(torch.int8), scale.squeeze(1)


def dtype_of_scales(weight: Tensor) -> torch.dtype:
    """Return the dtype of scales: that of kernels for bfloat16, or the one with the widest range."""
    return torch.bfloat16 if weight.dtype is torch.bfloat16 else torch.float32


def _scales(x: Tensor) -> Tensor:
    """Return the scale of each row; a row of zeros has one too."""
    return (x.abs().amax(-1, keepdim=True) / _LARGEST).clamp_(min=SMALLEST)


def dequantised(q: Tensor, scale: Tensor, dtype: torch.dtype) -> Tensor:
    """Return the weight that is stored, `(out, in)`, rounded to `dtype`."""
    return q.to(scale.dtype).mul_(scale.unsqueeze(1)).to(dtype)


def product(x: Tensor, q: Tensor, scale: Tensor) -> Tensor:
    """Return x wᵀ; x: `(rows, in)`, in bfloat16 as the scales are."""
    y: Tensor = torch.ops.aten._weight_int8pack_mm(x, q, scale)
    return y


def packed(q: Tensor) -> Tensor:
    """Return q in the form of oneDNN's kernel, which torch can neither print nor index."""
    form: Tensor = torch.ops.onednn.qlinear_prepack(q, None)
    return form


def exact_product(x: Tensor, q: Tensor, form: Tensor | None, scale: Tensor) -> Tensor:
    """Return x wᵀ in float32, with the rows of x quantised; x: `(rows, in)`.

    `form` is `packed(q)`; without it another kernel computes the same, which is slower for several rows.
    A row with an infinity or a NaN has infinities and NaNs alone as its result.
    """
    x = x.float()
    scale_x = _scales(x)
    p = (x / scale_x).round_().to(torch.int8)
    if form is None:
        sums: Tensor = torch.ops.aten._int_mm(p, q.t()).float()
    else:
        unsigned = p.view(torch.uint8).bitwise_xor_(_OFFSET)
        ones = torch.ones_like(scale, dtype=torch.float32)
        zeros = torch.zeros_like(scale, dtype=torch.int64)
        sums = torch.ops.onednn.qlinear_pointwise(
            unsigned, 1.0, _OFFSET, form, ones, zeros, None, 1.0, 0, torch.float32, "none", [], ""
        )
    return sums.mul_(scale).mul_(scale_x)
