"""A linear layer with its bias and activation in the epilogue of the matrix product: `act(x wᵀ + b)`.

The product is summed in float32; bias and activation are computed from that sum, and the result is rounded
once. For a backward the kernel also stores `x wᵀ + b`, rounded to the inputs' dtype. Programs are numbered
in groups of rows of blocks, so that neighbours read the same blocks (Triton's tutorial on matrix products).
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

from ..environment import is_interpreted
from ..launching import launch
from .bfloat16 import as_factor, stored

__all__ = ["forward"]

#: how many rows of blocks are a group
GROUP = tl.constexpr(8)


@triton.jit
def activated(x, ACTIVATION: tl.constexpr):
    """Return an activation of a block; "gelu_tanh" is GELU's approximation by tanh."""
    if ACTIVATION == "relu":
        result = tl.maximum(x, 0.0, propagate_nan=tl.PropagateNan.ALL)
    elif ACTIVATION == "silu":
        result = x / (1.0 + tl.exp(-x))
    elif ACTIVATION == "gelu":
        result = 0.5 * x * (1.0 + tl.erf(x * 0.7071067811865476))
    else:
        tl.static_assert(ACTIVATION == "gelu_tanh")
        inner = 0.7978845608028654 * (x + 0.044715 * x * x * x)
        result = x / (1.0 + tl.exp(-2.0 * inner))  # tanh(t) = 2 sigmoid(2 t) - 1
    return result


@triton.jit
def linear_kernel(
    x_ptr, w_ptr, b_ptr, result_ptr, sums_ptr, x_row, w_row, rows, features, size,
    ACTIVATION: tl.constexpr, BIAS: tl.constexpr, SAVES: tl.constexpr,
    M: tl.constexpr, N: tl.constexpr, K: tl.constexpr,
):  # fmt: skip
    """Compute a block (M, N) of `act(x wᵀ + b)`. x: (rows, size); w: (features, size)."""
    program = tl.program_id(0)
    down, across = tl.cdiv(rows, M), tl.cdiv(features, N)
    group = program // (GROUP * across)
    height = tl.minimum(down - group * GROUP, GROUP)
    within = program % (GROUP * across)
    first_row = (group * GROUP + within % height) * M
    first_column = (within // height) * N
    row, column = first_row + tl.arange(0, M), first_column + tl.arange(0, N)
    k = tl.arange(0, K)
    # rows beyond the edges are read from the start, and not stored
    x_ptr += (row % rows).to(tl.int64)[:, None] * x_row + k[None, :]
    w_ptr += (column % features).to(tl.int64)[:, None] * w_row + k[None, :]
    total = tl.zeros([M, N], tl.float32)
    for start in range(0, size, K):
        inside = k[None, :] < size - start
        x = tl.load(x_ptr, mask=inside, other=0.0)
        w = tl.load(w_ptr, mask=inside, other=0.0)
        total = tl.dot(x, tl.trans(w), total, input_precision="ieee")
        x_ptr += K
        w_ptr += K
    if BIAS:
        b = tl.load(b_ptr + column, mask=column < features, other=0.0)
        total += b.to(tl.float32)[None, :]
    places = row.to(tl.int64)[:, None] * features + column[None, :]
    inside = (row < rows)[:, None] & (column < features)[None, :]
    if SAVES:
        tl.store(sums_ptr + places, total.to(sums_ptr.dtype.element_ty), mask=inside)
    result = activated(total, ACTIVATION)
    tl.store(result_ptr + places, result.to(result_ptr.dtype.element_ty), mask=inside)


def forward(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, activation: str, saves: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return `act(x wᵀ + b)` and `x wᵀ + b` (*, features), which is empty unless `saves`, in x's dtype.

    x: (*, size); weight: (features, size); bias: (features,) or None; activation: see `activated`.
    """
    dtype, shape = x.dtype, (*x.shape[:-1], weight.shape[0])
    rows, size, features = x.shape[:-1].numel(), x.shape[-1], weight.shape[0]
    result = torch.empty(shape, dtype=stored(dtype), device=x.device)
    sums = torch.empty(shape if saves else (0,), dtype=stored(dtype), device=x.device)
    if result.numel():
        x, weight = (
            as_factor(t if t.stride(-1) == 1 else t.contiguous()) for t in (x.reshape(rows, size), weight)
        )
        settings = _settings(rows, features)
        programs = triton.cdiv(rows, settings["M"]) * triton.cdiv(features, settings["N"])
        launch(
            linear_kernel[(programs,)],
            settings | {"ACTIVATION": activation, "BIAS": bias is not None, "SAVES": saves},
            *(x, weight, x if bias is None else bias.contiguous(), result, sums),
            *(x.stride(0), weight.stride(0), rows, features, size),
        )
    return result.to(dtype), sums.to(dtype)


def _settings(rows: int, features: int) -> dict[str, Any]:
    """Return the blocks: large ones for large results, whose blocks are enough for all processors."""
    if is_interpreted() or rows <= 64 or features <= 64:
        return {"M": 64, "N": 64, "K": 64, "num_warps": 4, "num_stages": 3}
    return {"M": 128, "N": 128, "K": 64, "num_warps": 8, "num_stages": 3}
