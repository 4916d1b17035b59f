"""Weights in int8, and products with them as in LLM.int8(), by bitsandbytes.

w = q · absmax / 127 with int8 q and the largest magnitude of each row. A product quantises the rows of x in
the same way; columns of x with an element of magnitude `threshold` or more are multiplied in the dtype of x.
Dettmers et al., "LLM.int8()", 2022.
"""

from __future__ import annotations

import torch
from torch import Tensor

from thunder.core.errors import InvalidArgument

from .library import kernels

__all__ = ["dequantised", "product", "quantised"]

#: rows that are quantised at a time have at most so many elements
CHUNK = 1 << 18


def quantised(weight: Tensor) -> tuple[Tensor, Tensor]:
    """Return q, i8 `(out, in)`, and absmax, f32 `(out,)`, of a weight `(out, in)`.

    bitsandbytes converts the weight to float16 first. Raises InvalidArgument if it overflows there.
    """
    weight = weight.detach()
    rows, columns = weight.shape
    if weight.is_meta:
        empty = weight.new_empty
        return empty((rows, columns), dtype=torch.int8), empty((rows,), dtype=torch.float32)
    size = max(1, CHUNK // columns)
    parts = [kernels().int8_vectorwise_quant(part.half())[:2] for part in weight.split(size)]
    q, absmax = (torch.cat(tensors) for tensors in zip(*parts, strict=True))
    if bool(absmax.isinf().any()) and bool(weight.isfinite().all()):
        raise InvalidArgument(
            "the weight has values beyond the range of float16, through which bitsandbytes quantises to int8",
            found={"largest magnitude": weight.abs().max().item()},
        )
    return q, absmax


def dequantised(q: Tensor, absmax: Tensor, dtype: torch.dtype) -> Tensor:
    """Return q · absmax / 127, `(out, in)`, rounded to `dtype`."""
    return q.to(dtype, copy=True).mul_(absmax.unsqueeze(1).mul(1.0 / 127.0))


def product(x: Tensor, q: Tensor, bias: Tensor | None, absmax: Tensor, threshold: float) -> Tensor:
    """Return x wᵀ + bias; x: `(*, in)`, the result has its dtype."""
    rows = x.reshape(-1, x.shape[-1])
    if rows.shape[0] == 0:
        return x.new_empty((*x.shape[:-1], q.shape[0]))
    # the kernel writes to its argument while it looks for outliers
    half = rows.to(torch.float16, copy=threshold > 0)
    xq, xmax, outliers = kernels().int8_vectorwise_quant(half, threshold=threshold)
    if threshold > 0:
        out, _ = kernels().int8_mixed_scaled_mm(rows, xq, q, xmax, absmax, outliers, bias)
    else:
        out = kernels().int8_scaled_mm(xq, q, xmax, absmax, bias=bias, dtype=x.dtype)
    result: Tensor = out.view(*x.shape[:-1], q.shape[0])
    return result
