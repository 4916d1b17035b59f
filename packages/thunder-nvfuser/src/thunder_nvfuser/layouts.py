"""The layout of an input tensor as a definition states it: contiguity and stride order.

`contiguity` has a flag for each dimension: whether its stride is the product of the size and stride of the
faster dimension; None for a dimension of size 1. `stride_order` has the rank of each dimension's stride,
0 for the smallest; empty means that strides decrease from the first dimension to the last.
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import torch

__all__ = ["Layout", "layout_of"]


class Layout(NamedTuple):
    """The sizes of an input, -1 or 1, its contiguity and its stride order."""

    shape: tuple[int, ...]
    contiguity: tuple[bool | None, ...]
    stride_order: tuple[int, ...] = ()


def layout_of(tensor: torch.Tensor) -> Layout:
    """Return the layout of a tensor without zero strides.

    A permuted layout is stated if it is dense and no size is 1; else no dimension counts as contiguous, which
    holds for any strides.
    """
    sizes, strides = tensor.shape, tensor.stride()
    shape = tuple(1 if size == 1 else -1 for size in sizes)
    dims = [d for d in range(tensor.ndim) if sizes[d] != 1]
    if all(strides[a] >= strides[b] for a, b in pairwise(dims)):
        return Layout(shape, _flags(sizes, strides))
    ranked = sorted(range(tensor.ndim), key=lambda d: strides[d])
    expected, dense = 1, len(dims) == tensor.ndim
    for d in ranked:
        dense = dense and strides[d] == expected
        expected *= sizes[d]
    if dense:
        return Layout(shape, (True,) * tensor.ndim, tuple(ranked.index(d) for d in range(tensor.ndim)))
    return Layout(shape, tuple(None if size == 1 else False for size in sizes))


def _flags(sizes: torch.Size, strides: tuple[int, ...]) -> tuple[bool | None, ...]:
    flags: list[bool | None] = []
    expected = 1
    for size, stride in zip(reversed(sizes), reversed(strides), strict=True):
        flags.append(None if size == 1 else stride == expected)
        if size != 1:
            expected = stride * size
    return tuple(reversed(flags))
