"""The gradient of the weight of an embedding: each row is the sum over the places that name it.

The places are sorted by their row. A program sums the gradients of some neighbouring places; a row whose
places several programs share is summed by a second kernel, so that no sum depends on the order in which
programs run. Sums are computed in float32, or float64 for float64, and rounded once.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from ..launching import launch
from .bfloat16 import stored

__all__ = ["backward"]

#: how many places a program sums
LENGTH = 32

#: the most columns of a program
BLOCK = 512


@triton.jit
def sums_kernel(
    g_ptr, rows_ptr, places_ptr, result_ptr, partial_ptr,
    row_stride, column_stride, count, width, height, padding,
    LENGTH: tl.constexpr, BLOCK: tl.constexpr, DTYPE: tl.constexpr,
):  # fmt: skip
    """Sum the gradients of LENGTH places: whole rows into the result, the first and last into partial sums.

    partial: (chunks, 2, width), of a row that began before the chunk, and of one that goes on after it.
    """
    chunk = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = column < width
    first = chunk * LENGTH
    before = tl.load(rows_ptr + first - 1, mask=first > 0, other=-1)
    continued = tl.load(rows_ptr + first) == before
    total = tl.zeros([BLOCK], DTYPE)
    for i in range(0, LENGTH):
        if first + i < count:
            row = tl.load(rows_ptr + first + i)
            place = tl.load(places_ptr + first + i)
            g = tl.load(g_ptr + place * row_stride + column * column_stride, mask=inside, other=0.0)
            total += g.to(DTYPE)
            following = tl.load(rows_ptr + first + i + 1, mask=first + i + 1 < count, other=-1)
            if following != row:
                if continued:
                    tl.store(partial_ptr + chunk * 2 * width + column, total, mask=inside)
                elif (row != padding) & (row >= 0) & (row < height):
                    tl.store(result_ptr + row * width + column, total, mask=inside)
                total = tl.zeros([BLOCK], DTYPE)
                continued = False
            elif i == LENGTH - 1:
                tl.store(partial_ptr + (chunk * 2 + 1) * width + column, total, mask=inside)


@triton.jit
def shared_rows_kernel(
    rows_ptr, ends_ptr, result_ptr, partial_ptr, width, height, padding,
    LENGTH: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Sum the parts of the row that begins in a chunk and goes on after it, if there is one.

    ends: (chunks,), the end of the places of the last row of each chunk.
    """
    chunk = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    row = tl.load(rows_ptr + (chunk + 1) * LENGTH - 1)
    before = tl.load(rows_ptr + chunk * LENGTH - 1, mask=chunk > 0, other=-1)
    end = tl.load(ends_ptr + chunk)
    if (end > (chunk + 1) * LENGTH) & (before != row) & (row != padding) & (row >= 0) & (row < height):
        inside = column < width
        last = (end - 1) // LENGTH
        total = tl.load(partial_ptr + last * 2 * width + column, mask=inside, other=0.0)
        for middle in range(chunk, last):
            total += tl.load(partial_ptr + (middle * 2 + 1) * width + column, mask=inside, other=0.0)
        tl.store(result_ptr + row * width + column, total, mask=inside)


def backward(
    g: torch.Tensor,
    indices: torch.Tensor,
    num_weights: int,
    padding_idx: int,
    scale_grad_by_freq: bool,
) -> torch.Tensor:
    """Return the gradient (num_weights, d) of the weight, in the dtype of `g`.

    g: (*, d); indices: (*), int32 or int64; the row padding_idx has no gradient; scale_grad_by_freq: False.
    """
    count, width = indices.numel(), g.shape[-1]
    result = torch.zeros(num_weights, width, dtype=stored(g.dtype), device=g.device)
    if count and result.numel():
        g = g.reshape(count, width)
        rows, places = indices.reshape(-1).sort()
        block, chunks = min(BLOCK, triton.next_power_of_2(width)), triton.cdiv(count, LENGTH)
        dtype = torch.float64 if g.dtype is torch.float64 else torch.float32
        partial = torch.empty(chunks, 2, width, dtype=dtype, device=g.device)
        parts = triton.cdiv(width, block)
        settings = {"LENGTH": LENGTH, "BLOCK": block, "num_warps": max(1, min(4, block // 128))}
        sizes = (width, num_weights, padding_idx)
        launch(
            sums_kernel[(chunks, parts)],
            settings | {"DTYPE": tl.float64 if dtype is torch.float64 else tl.float32},
            *(g, rows, places, result, partial, *g.stride(), count, *sizes),
        )
        last = rows[LENGTH - 1 :: LENGTH].contiguous()
        if len(last):
            ends = torch.searchsorted(rows, last, right=True)
            launch(shared_rows_kernel[(len(last), parts)], settings, rows, ends, result, partial, *sizes)
    return result.to(g.dtype)
