"""Strided layouts: which elements of a storage belong to a tensor.

Element ``(i, j, …)`` of a tensor is at ``offset + i * strides[0] + j * strides[1] + …`` of its storage.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch


def contiguous_strides(shape: Sequence[int]) -> tuple[int, ...]:
    """Return the strides (elements) of a contiguous tensor.

    A dimension of length 0 counts as one of length 1, as in torch.
    """
    return tuple(math.prod(max(n, 1) for n in shape[d + 1 :]) for d in range(len(shape)))


def is_dense_in_order(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Return whether a tensor is contiguous, as torch says: the stride of a single element does not count."""
    if any(n == 0 for n in shape):
        return True
    expected = 1
    for n, stride in zip(reversed(shape), reversed(strides), strict=True):
        if n != 1:
            if stride != expected:
                return False
            expected = expected * n
    return True


def order_of_strides(shape: Sequence[int], strides: Sequence[int]) -> tuple[int, ...] | None:
    """Return the rank of each dimension's stride, 0 for the innermost; None for a layout with gaps."""
    inner_first = sorted(range(len(shape)), key=lambda d: (strides[d], shape[d], -d))
    expected = contiguous_strides([shape[d] for d in reversed(inner_first)])
    if [strides[d] for d in reversed(inner_first)] != list(expected):
        return None
    return tuple(inner_first.index(d) for d in range(len(shape)))


def element_span(shape: Sequence[int], strides: Sequence[int]) -> int:
    """Return the number of elements of a storage between a tensor's first and last element.

    Both are included. Elements between them that do not belong to the tensor are counted, repeated ones are
    counted once.
    """
    if 0 in shape:
        return 0
    return 1 + sum((n - 1) * s for n, s in zip(shape, strides, strict=True))


def may_repeat(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Return whether a layout may have an element of the storage at several indices.

    False is certain: ordered by stride, each dimension steps over all that the smaller ones reach.
    """
    reach = 1
    for stride, n in sorted((abs(s), n) for n, s in zip(shape, strides, strict=True) if n > 1):
        if stride < reach:
            return 0 not in shape
        reach += (n - 1) * stride
    return False


def byte_span(tensor: torch.Tensor) -> tuple[int, int]:
    """Return the first byte of its storage that belongs to a tensor, and one past the last.

    Both are 0 for a tensor without elements, and symbolic where sizes are.
    """
    span = element_span(tensor.shape, tensor.stride())
    if span == 0:
        return 0, 0
    start: Any = tensor.storage_offset()
    size = tensor.element_size()
    return start * size, (start + span) * size
