"""Convolutions of channels-last images with packed weights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from thunder import TensorProxy
from thunder.core.proxies import ProxyTag
from thunder.extend import Refusal
from thunder_onednn.activations import NO_ACTIVATION
from thunder_onednn.packed_weights import LIBRARY, PackedWeight, ex, pack_convolution, refusal

__all__ = ["convolution", "convolution_add", "may_take"]

Pair = tuple[int, int]
#: (channels of the result, size of the kernel, padding, stride, dilation, groups)
Geometry = tuple[int, Pair, Pair, Pair, Pair, int]

#: a value whose channels are the innermost dimension, by the stage `channels_last`
ProxyTag.register_tag("CHANNELS_LAST")


def _size(length: Any, kernel: int, padding: int, stride: int, dilation: int) -> Any:
    return (length + 2 * padding - dilation * (kernel - 1) - 1) // stride + 1


def _convolved(x: Any, geometry: Geometry) -> TensorProxy:
    """Return the result of a convolution, whose channels are the innermost dimension."""
    channels, *pairs, _ = geometry
    batch, height, width = x.shape[0], *map(_size, x.shape[2:], *pairs)
    strides = (height * width * channels, 1, width * channels, channels)
    return TensorProxy(like=x, shape=(batch, channels, height, width), strides=strides)


def _convolution_meta(
    x: Any,
    weight: Any,
    bias: Any,
    geometry: Geometry,
    name: str,
    numbers: tuple[float, ...],
    algorithm: str,
) -> TensorProxy:
    return _convolved(x, geometry)


def _convolution(
    x: torch.Tensor,
    weight: PackedWeight,
    bias: torch.Tensor | None,
    geometry: Geometry,
    name: str,
    numbers: tuple[float, ...],
    algorithm: str,
) -> torch.Tensor:
    y: torch.Tensor = LIBRARY._convolution_pointwise(
        x, weight.tensor, bias, *geometry[2:], name, list(numbers), algorithm
    )
    return y


def _convolution_add(
    x: torch.Tensor,
    other: torch.Tensor,
    weight: PackedWeight,
    bias: torch.Tensor | None,
    geometry: Geometry,
    relu: bool,
) -> torch.Tensor:
    last = "relu" if relu else None
    y: torch.Tensor = LIBRARY._convolution_pointwise.binary(
        x, other, weight.tensor, bias, *geometry[2:], "add", None, last, [], None
    )
    return y


convolution = ex.register_operator("onednn_convolution", meta=_convolution_meta, fn=_convolution)
convolution_add = ex.register_operator(
    "onednn_convolution_add",
    meta=lambda x, other, weight, bias, geometry, relu: _convolved(x, geometry),
    fn=_convolution_add,
)


def _pair(x: int | Sequence[int]) -> Pair:
    a, b = (x, x) if isinstance(x, int) else (x[0], x[-1])
    return int(a), int(b)


def may_take(
    input: Any,
    weight: Any,
    bias: Any = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> bool | Refusal:
    """Return whether a convolution of channels-last images can become one with a packed weight."""
    reason = refusal(input, weight, bias)
    if reason is not None:
        return reason
    if input.ndim != 4 or isinstance(padding, str):
        return Refusal("shape", "it takes batches of images, and padding in numbers")
    return True


def _convolution_transform(
    input: Any,
    weight: Any,
    bias: Any = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Any:
    sizes = _pair(padding), _pair(stride), _pair(dilation)
    packed = pack_convolution(weight, *sizes, groups)
    geometry = (weight.shape[0], tuple(weight.shape[2:]), *sizes, groups)
    return convolution(input, packed, bias, geometry, *NO_ACTIVATION.arguments)


def _takes(
    input: Any,
    weight: Any,
    bias: Any = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> bool | Refusal:
    may = may_take(input, weight, bias, stride, padding, dilation, groups)
    if may is True and ProxyTag.CHANNELS_LAST not in input.tags:
        return Refusal("layout", "no stage has made its input channels-last")
    return may


ex.register_implementation(
    "torch.nn.functional.conv2d", checker=_takes, execution_transform=_convolution_transform
)
