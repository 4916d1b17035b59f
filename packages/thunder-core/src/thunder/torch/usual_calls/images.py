"""Pooling, resampling, sliding windows and borders."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

from thunder.base import dtypes
from thunder.torch import kernel_shapes
from thunder.torch.usual_calls.conditions import (
    RESULTS,
    alike,
    lengths,
    result_of,
    rule,
)

_F: Final = "torch.nn.functional."


def _space(input: Any, count: int) -> tuple[int, ...] | None:
    """Return the lengths of an image ``(n, c, *space)`` or ``(c, *space)``; None for anything else."""
    return input.shape[-count:] if alike(input) and len(input.shape) - count in (1, 2) else None


def _windows(
    space: tuple[int, ...] | None, kernel: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: Any
) -> tuple[int, ...] | None:
    """Return the numbers of windows along the dimensions of an image, or None."""
    if space is None or type(ceil_mode) is not bool:
        return None
    count = len(space)
    sizes, gaps = lengths(kernel, count), lengths(dilation, count)
    steps = lengths(kernel if stride in (None, (), []) else stride, count)
    before = (padding,) * count if type(padding) is int else padding
    if sizes is None or gaps is None or steps is None or not isinstance(before, tuple | list):
        return None
    if len(before) != count or not all(type(p) is int for p in before):
        return None
    found = []
    for n, k, s, p, d in zip(space, sizes, steps, before, gaps, strict=True):
        if not 0 <= p <= k // 2 or n + 2 * p < d * (k - 1) + 1:
            return None
        room = n + 2 * p - d * (k - 1) - 1
        windows = (room + (s - 1 if ceil_mode else 0)) // s + 1
        found.append(windows - 1 if ceil_mode and (windows - 1) * s >= n + p else windows)
    return tuple(found)


def _largest(count: int, returns_both: bool) -> Callable[..., Any]:
    def result(
        input: Any,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        dilation: Any = 1,
        ceil_mode: Any = False,
        return_indices: Any = False,
    ) -> Any:
        windows = _windows(_space(input, count), kernel_size, stride, padding, dilation, ceil_mode)
        if windows is None or type(return_indices) is not bool:
            return None
        shape = (*input.shape[:-count], *windows)
        out = result_of(input, shape)
        return (out, result_of(input, shape, dtypes.int64)) if returns_both or return_indices else out

    return result


def _average(count: int) -> Callable[..., Any]:
    def result(
        input: Any,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        ceil_mode: Any = False,
        count_include_pad: Any = True,
        divisor_override: Any = None,
    ) -> Any:
        windows = _windows(_space(input, count), kernel_size, stride, padding, 1, ceil_mode)
        if windows is None or divisor_override is not None or type(count_include_pad) is not bool:
            return None
        return result_of(input, (*input.shape[:-count], *windows))

    return result


def _adaptive(count: int, is_largest: bool, returns_both: bool = False) -> Callable[..., Any]:
    def result(input: Any, output_size: Any, return_indices: Any = False) -> Any:
        size = lengths(output_size, count)
        if _space(input, count) is None or size is None or type(return_indices) is not bool:
            return None
        shape = (*input.shape[:-count], *size)
        out = result_of(input, shape)
        return (out, result_of(input, shape, dtypes.int64)) if returns_both or return_indices else out

    return result


for _n in (1, 2, 3):
    RESULTS[f"{_F}avg_pool{_n}d"] = _average(_n)
    RESULTS[f"{_F}max_pool{_n}d"] = _largest(_n, False)
    RESULTS[f"{_F}max_pool{_n}d_with_indices"] = _largest(_n, True)
    RESULTS[f"{_F}adaptive_avg_pool{_n}d"] = _adaptive(_n, False)
    RESULTS[f"{_F}adaptive_max_pool{_n}d"] = _adaptive(_n, True)
    RESULTS[f"{_F}adaptive_max_pool{_n}d_with_indices"] = _adaptive(_n, True, True)

#: modes of interpolation → the numbers of dimensions of space
_MODES: Final = {
    **dict.fromkeys(("nearest", "nearest-exact", "area"), (1, 2, 3)),
    **{"linear": (1,), "bilinear": (2,), "bicubic": (2,), "trilinear": (3,)},
}


@rule(f"{_F}interpolate")
def _interpolated(
    input: Any,
    size: Any = None,
    scale_factor: Any = None,
    mode: Any = "nearest",
    align_corners: Any = None,
    recompute_scale_factor: Any = None,
    antialias: Any = False,
) -> Any:
    if not alike(input) or type(mode) is not str or recompute_scale_factor not in (None, False):
        return None
    count = len(input.shape) - 2
    takes_corners = mode in ("linear", "bilinear", "bicubic", "trilinear")
    if count not in _MODES.get(mode, ()) or type(antialias) is not bool:
        return None
    if type(align_corners) not in ((bool, type(None)) if takes_corners else (type(None),)):
        return None
    if antialias and mode not in ("bilinear", "bicubic"):
        return None
    factors = (scale_factor,) * count if type(scale_factor) in (int, float) else scale_factor
    if (size is None) == (factors is None) or (size is not None and lengths(size, count) is None):
        return None
    if factors is not None and not (
        isinstance(factors, tuple | list)
        and len(factors) == count
        and all(type(f) in (int, float) and 0 < f < 1 << 20 for f in factors)
    ):
        return None
    shape = kernel_shapes.interpolated(input, size, factors)
    return result_of(input, shape) if all(shape) else None


@rule(f"{_F}affine_grid")
def _grid(theta: Any, size: Any, align_corners: Any = None) -> Any:
    if not alike(theta) or type(align_corners) is not bool or not isinstance(size, tuple | list):
        return None
    count = len(size) - 2
    if count not in (2, 3) or lengths(size, count + 2) is None or theta.shape != (size[0], count, count + 1):
        return None
    return result_of(theta, (size[0], *size[2:], count))


def _blocks(space: tuple[int, ...] | None, kernel: Any, dilation: Any, padding: Any, stride: Any) -> Any:
    sizes = lengths(kernel, 2)
    if sizes is None or space is None:
        return None
    before = (padding, padding) if type(padding) is int else padding
    if not isinstance(before, tuple | list) or not all(type(p) is int and p >= 0 for p in before):
        return None
    if len(before) != 2:
        return None
    wide = tuple(n + 2 * p for n, p in zip(space, before, strict=True))
    windows = _windows(wide, kernel, stride, 0, dilation, False)
    return None if windows is None else (math.prod(sizes), math.prod(windows))


@rule(f"{_F}unfold")
def _unfolded(input: Any, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1) -> Any:
    blocks = _blocks(_space(input, 2), kernel_size, dilation, padding, stride)
    if blocks is None or len(input.shape) != 4:
        return None
    return result_of(input, (input.shape[0], input.shape[1] * blocks[0], blocks[1]))


@rule(f"{_F}fold")
def _folded(
    input: Any, output_size: Any, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1
) -> Any:
    space = lengths(output_size, 2)
    blocks = _blocks(space, kernel_size, dilation, padding, stride)
    if blocks is None or space is None or not alike(input) or len(input.shape) != 3:
        return None
    n, width, count = input.shape
    if count != blocks[1] or width % blocks[0]:
        return None
    return result_of(input, (n, width // blocks[0], *space))


@rule(f"{_F}pad")
def _padded(input: Any, pad: Any, mode: Any = "constant", value: Any = None) -> Any:
    count = len(pad) // 2
    space = _space(input, count) if count in (1, 2, 3) and len(pad) == 2 * count else None
    if space is None or mode not in ("reflect", "replicate") or not all(type(p) is int for p in pad):
        return None
    pairs = [(pad[2 * d], pad[2 * d + 1]) for d in reversed(range(count))]
    for n, (before, after) in zip(space, pairs, strict=True):
        if min(before, after) < 0 or (mode == "reflect" and max(before, after) >= n):
            return None
    return result_of(input, (*input.shape[:-count], *(n + sum(p) for n, p in zip(space, pairs, strict=True))))
