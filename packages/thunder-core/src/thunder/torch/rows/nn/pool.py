"""Pooling, resampling and sliding windows.

Most have no decomposition worth fusing, so torch computes both their metadata and their values.
"""

from __future__ import annotations

import math
from typing import Any

from thunder.base.tags import OpTags
from thunder.ir.proxies import TensorProxy
from thunder.ir.symbol import Symbol
from thunder.torch import kernel_shapes
from thunder.torch.batch_rules.batched_kernels import interpolate as batched_interpolation
from thunder.torch.batch_rules.batched_kernels import of_images
from thunder.torch.meta_by_torch import checked_by_torch, meta_by_torch
from thunder.torch.namespace import ltorch
from thunder.torch.registration import torchsymbol
from thunder.torch.rows.nn.conv import each

_F = "torch.nn.functional."
_WINDOW = "input, kernel_size, stride=None, padding=0"
_DIMS = (1, 2, 3)

avg_pool1d = meta_by_torch(
    f"{_F}avg_pool1d",
    f"{_WINDOW}, ceil_mode=False, count_include_pad=True",
    integers="sizes",
    batch=of_images(1),
)
avg_pool2d, avg_pool3d = (
    meta_by_torch(
        f"{_F}avg_pool{n}d",
        f"{_WINDOW}, ceil_mode=False, count_include_pad=True, divisor_override=None",
        integers="sizes",
        batch=of_images(n),
    )
    for n in (2, 3)
)


adaptive_avg_pool1d, adaptive_avg_pool2d, adaptive_avg_pool3d = (
    meta_by_torch(f"{_F}adaptive_avg_pool{n}d", "input, output_size", integers="sizes", batch=of_images(n))
    for n in _DIMS
)


def _power_average(n: int) -> Symbol:
    def lp_pool(
        input: TensorProxy, norm_type: float, kernel_size: Any, stride: Any = None, ceil_mode: bool = False
    ) -> TensorProxy:
        """``sum(x^p)^(1 / p)`` of each window (Gulcehre et al., Learned-Norm Pooling, 2014)."""
        average = getattr(ltorch, f"avg_pool{n}d")
        means = average(ltorch.pow(input, norm_type), kernel_size, stride, 0, ceil_mode)
        positive = ltorch.mul(ltorch.sign(means), ltorch.relu(ltorch.abs(means)))
        return ltorch.pow(ltorch.mul(positive, math.prod(each(kernel_size, n))), 1.0 / norm_type)

    return checked_by_torch(f"{_F}lp_pool{n}d", integers="sizes")(lp_pool)


lp_pool1d, lp_pool2d, lp_pool3d = (_power_average(n) for n in _DIMS)

# torch.nn.functional.max_pool2d and its like dispatch on return_indices to a function of torch or to
# max_pool2d_with_indices, so a program may call any of the three.

_MAX = f"{_WINDOW}, dilation=1, ceil_mode=False, return_indices=False"
#: rules for symbolic sizes, which torch's functions of images do without
_SHAPES = {1: kernel_shapes.largest_of_windows}
max_pool1d, max_pool2d, max_pool3d = (
    meta_by_torch(
        f"{_F}max_pool{n}d",
        _MAX,
        f"torch.max_pool{n}d",
        shape=_SHAPES.get(n),
        integers="sizes",
        batch=of_images(n),
    )
    for n in _DIMS
)
max_pool1d_with_indices, max_pool2d_with_indices, max_pool3d_with_indices = (
    meta_by_torch(f"{_F}max_pool{n}d_with_indices", _MAX, shape=_SHAPES.get(n), batch=of_images(n))
    for n in _DIMS
)
_ADAPTIVE = "input, output_size, return_indices=False"
adaptive_max_pool1d, adaptive_max_pool2d, adaptive_max_pool3d = (
    meta_by_torch(
        f"{_F}adaptive_max_pool{n}d",
        _ADAPTIVE,
        shape=kernel_shapes.adaptive(n),
        integers="sizes",
        batch=of_images(n),
    )
    for n in _DIMS
)
adaptive_max_pool1d_with_indices, adaptive_max_pool2d_with_indices, adaptive_max_pool3d_with_indices = (
    meta_by_torch(
        f"{_F}adaptive_max_pool{n}d_with_indices",
        _ADAPTIVE,
        shape=kernel_shapes.adaptive(n),
        batch=of_images(n),
    )
    for n in _DIMS
)
_FRACTIONAL = (
    "input, kernel_size, output_size=None, output_ratio=None, return_indices=False, _random_samples=None"
)


def _fractional(n: int, suffix: str = "") -> Symbol:
    """Return the symbol of fractional pooling over ``n`` dimensions."""
    return meta_by_torch(
        f"{_F}fractional_max_pool{n}d{suffix}",
        _FRACTIONAL,
        shape=kernel_shapes.fractional(n),
        tags=(OpTags.RANDOM_OP,),
    )


fractional_max_pool2d, fractional_max_pool3d = (_fractional(n) for n in (2, 3))
fractional_max_pool2d_with_indices, fractional_max_pool3d_with_indices = (
    _fractional(n, "_with_indices") for n in (2, 3)
)
max_unpool1d, max_unpool2d, max_unpool3d = (
    meta_by_torch(
        f"{_F}max_unpool{n}d",
        "input, indices, kernel_size, stride=None, padding=0, output_size=None",
        tags=(OpTags.OTHER_TANGENTS, OpTags.RAISES_ON_DATA),
        batch=of_images(n),
    )
    for n in _DIMS
)

# -- resampling ------------------------------------------------------------------------------------

interpolate = meta_by_torch(
    f"{_F}interpolate",
    "input, size=None, scale_factor=None, mode='nearest', align_corners=None, recompute_scale_factor=None, "
    "antialias=False",
    shape=kernel_shapes.interpolated,
    integers="sizes",
    batch=batched_interpolation,
)


@torchsymbol(f"{_F}upsample", integers="sizes")
def upsample(
    input: TensorProxy,
    size: Any = None,
    scale_factor: Any = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
) -> TensorProxy:
    """The older name of ``interpolate``."""
    return interpolate(input, size, scale_factor, mode, align_corners)


@torchsymbol(f"{_F}upsample_nearest")
def upsample_nearest(input: TensorProxy, size: Any = None, scale_factor: Any = None) -> TensorProxy:
    """``interpolate`` by the nearest element."""
    return interpolate(input, size, scale_factor, "nearest")


@torchsymbol(f"{_F}upsample_bilinear")
def upsample_bilinear(input: TensorProxy, size: Any = None, scale_factor: Any = None) -> TensorProxy:
    """``interpolate`` by bilinear interpolation, with the corners aligned."""
    return interpolate(input, size, scale_factor, "bilinear", True)


affine_grid = meta_by_torch(f"{_F}affine_grid", "theta, size, align_corners=None")

# -- sliding windows -------------------------------------------------------------------------------

fold = meta_by_torch(
    f"{_F}fold",
    "input, output_size, kernel_size, dilation=1, padding=0, stride=1",
    integers="sizes",
    batch=of_images(1),
)
unfold = meta_by_torch(
    f"{_F}unfold", "input, kernel_size, dilation=1, padding=0, stride=1", integers="sizes", batch=of_images(2)
)


@checked_by_torch("torch.channel_shuffle", f"{_F}channel_shuffle", "torch.native_channel_shuffle")
def channel_shuffle(input: TensorProxy, groups: int) -> TensorProxy:
    """Zhang et al., ShuffleNet (2018): channels ``(groups, c / groups)`` transposed."""
    n, c, *space = input.shape
    grouped = ltorch.reshape(input, (n, groups, c // groups, *space))
    return ltorch.reshape(ltorch.transpose(grouped, 1, 2), input.shape)
