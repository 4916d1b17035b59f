"""Maxima of windows with eager's indices, element by element of the window.

TorchInductor's own indices are outside of the tensor for windows of which every element is -inf.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import torch

from thunder.core.symbol import BoundSymbol

from .operators import MAXIMA

__all__ = ["WITH_INDICES", "returns_indices"]

_aten = torch.ops.aten


def returns_indices(bsym: BoundSymbol) -> bool:
    """Return whether a call computes indices of maxima. Maxima alone are TorchInductor's, which is faster."""
    if bsym.sym.id in MAXIMA:
        return len(bsym.flat_proxy_outs) == 2
    return any(map(returns_indices, bsym.subsymbols))


def _max_pool2d_with_indices(
    x: torch.Tensor,
    kernel_size: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] = (0,),
    dilation: Sequence[int] = (1,),
    ceil_mode: bool = False,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the maxima of windows of ``x (*, H, W)``, and their indices in ``H * W``.

    As in eager's kernel, of equal numbers the first counts, of NaNs the last; where all are -inf, the first
    that is not padding.
    """
    kernels, strides, pads, dilations = map(_pair, (kernel_size, stride or kernel_size, padding, dilation))
    sizes = x.shape[-2:]
    rows, columns = (
        _Windows(sizes[d], kernels[d], strides[d], pads[d], dilations[d], ceil_mode) for d in (0, 1)
    )
    width, dtype = x.shape[-1], x.dtype
    x = x if dtype is torch.float64 else x.to(torch.float32)  # exact, and no rounding after each step
    padded = _aten.constant_pad_nd(x, [*columns.pads, *rows.pads], -math.inf)
    start = rows.starts(x.device)[:, None] * width + columns.starts(x.device)
    offset = rows.first(x.device)[:, None] * width + columns.first(x.device)
    maximum = x.new_full((), -math.inf)
    for i, j in product(range(rows.kernel), range(columns.kernel)):
        element = columns.elements(rows.elements(padded, i, -2), j, -1)
        larger = (element > maximum) | element.isnan()
        maximum = torch.where(larger, element, maximum)
        offset = torch.where(larger, rows.dilation * i * width + columns.dilation * j, offset)
    return maximum.to(dtype), offset.to(torch.int64) + start


@dataclass(frozen=True)
class _Windows:
    """The windows of a pooling along one dimension; all numbers count elements."""

    size: int
    kernel: int
    stride: int
    padding: int
    dilation: int
    ceil_mode: bool

    @property
    def count(self) -> int:
        """The number of windows, by the formula of torch.nn.MaxPool2d's documentation."""
        free = self.size + 2 * self.padding - self.dilation * (self.kernel - 1) - 1
        if not self.ceil_mode:
            return free // self.stride + 1
        count = -(-free // self.stride) + 1  # a window begins within the elements or the padding before them
        return count - 1 if (count - 1) * self.stride >= self.size + self.padding else count

    @property
    def pads(self) -> tuple[int, int]:
        """The padding before and after the elements, so that each window is whole."""
        end = (self.count - 1) * self.stride + (self.kernel - 1) * self.dilation + 1
        return self.padding, max(0, end - self.padding - self.size)

    def elements(self, padded: torch.Tensor, number: int, dim: int) -> torch.Tensor:
        """Return the element of each window that has this number."""
        start = number * self.dilation
        end = start + (self.count - 1) * self.stride + 1
        elements: torch.Tensor = _aten.slice(padded, dim, start, end, self.stride)
        return elements

    def starts(self, device: torch.device) -> torch.Tensor:
        """Return the index of each window's first element, which is negative in the padding."""
        return torch.arange(self.count, device=device) * self.stride - self.padding

    def first(self, device: torch.device) -> torch.Tensor:
        """Return the offset in each window of its first element that is not padding."""
        starts, first = self.starts(device), torch.zeros(self.count, dtype=torch.int64, device=device)
        for number in range(-(-self.padding // self.dilation)):
            first = torch.where(starts + number * self.dilation < 0, (number + 1) * self.dilation, first)
        return first


def _pair(numbers: Sequence[int]) -> tuple[int, int]:
    return numbers[0], numbers[-1]


#: operator → its decomposition in regions that return indices
WITH_INDICES: Mapping[Any, Callable[..., Any]] = {
    _aten.max_pool2d_with_indices.default: _max_pool2d_with_indices
}
