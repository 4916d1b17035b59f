"""Borders around a tensor, and channels exchanged for space."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from thunder.base.attribute_paths import find_torch
from thunder.base.errors import InternalError, OperatorError
from thunder.base.tags import OpTags
from thunder.ir.proxies import TensorProxy
from thunder.ops import prims
from thunder.ops.layout_rules import BY_KERNEL
from thunder.ops.meta_kernels import torch_meta
from thunder.torch.registration import torchsymbol
from thunder.torch.rows.cat_split import narrowed
from thunder.torch.usual_calls import RESULTS

_PAD = "torch.nn.functional.pad"
_pad_by_torch = torch_meta(find_torch(_PAD), usual=RESULTS[_PAD])
_MODES = ("constant", "reflect", "replicate", "circular")


@torchsymbol("torch.constant_pad_nd", tags=(OpTags.SHAPE_OP,))
def constant_pad_nd(input: TensorProxy, pad: Sequence[int], value: Any = 0) -> TensorProxy:
    """``pad`` has (before, after) for the last dimension, then the one before; negative cuts."""
    if len(pad) % 2 or len(pad) > 2 * len(input.shape):
        raise OperatorError(
            f"Padding length must be divisible by 2 and at most twice the number of dimensions, got {pad}"
        )
    rows = [(0, 0, 0)] * (len(input.shape) - len(pad) // 2)
    padded = [(pad[i], pad[i + 1], 0) for i in range(0, len(pad), 2)]
    return prims.pad(input, value, (*rows, *reversed(padded)))


def _border(a: TensorProxy, dim: int, before: int, after: int, mode: str) -> TensorProxy:
    """Pad one dimension with its own elements: mirrored, repeated, or from the other end.

    What is cut off by a negative width is mirrored and repeated at the other side, but comes round at none.
    """
    if mode == "circular":
        a = _without_ends(a, dim, max(0, -before), max(0, -after))
    length, width_before, width_after = a.shape[dim], max(0, before), max(0, after)

    def part(start: int, end: int) -> TensorProxy:
        return narrowed(a, dim, start, end)

    if mode == "circular":
        low, high = part(length - width_before, length), part(0, width_after)
    elif mode == "reflect":
        low = prims.flip(part(1, width_before + 1), (dim,))
        high = prims.flip(part(length - 1 - width_after, length - 1), (dim,))
    else:
        low = _repeated(part(0, 1), dim, width_before)
        high = _repeated(part(length - 1, length), dim, width_after)
    pieces = [p for p, n in ((low, width_before), (a, 1), (high, width_after)) if n]
    padded = prims.cat(pieces, dim) if len(pieces) > 1 else a
    if mode == "circular" or not (before < 0 or after < 0):
        return padded
    return prims.clone(_without_ends(padded, dim, max(0, -before), max(0, -after)))


def _without_ends(a: TensorProxy, dim: int, first: int, last: int) -> TensorProxy:
    return narrowed(a, dim, first, a.shape[dim] - last) if first or last else a


def _repeated(a: TensorProxy, dim: int, times: int) -> TensorProxy:
    shape = (*a.shape[:dim], times, *a.shape[dim + 1 :])
    return prims.broadcast_in_dim(a, shape, tuple(range(len(shape))))


@torchsymbol("torch.nn.functional.pad", layout=BY_KERNEL, integers="sizes", tags=(OpTags.SHAPE_OP,))
def pad(
    input: TensorProxy, pad: Sequence[int], mode: str = "constant", value: float | None = None
) -> TensorProxy:
    """A border of one value, or of the tensor's own elements."""
    if mode not in _MODES or len(pad) % 2 or len(pad) > 2 * len(input.shape):
        raise OperatorError(
            f"Unrecognised padding mode {mode}, or padding {list(pad)} for {input.type_string()}"
        )
    if mode == "constant":
        return constant_pad_nd(input, pad, value or 0)
    shape = _pad_by_torch(input, list(pad), mode, value).shape  # torch's conditions on rank and size
    for i in range(0, len(pad), 2):
        if pad[i] or pad[i + 1]:
            input = _border(input, len(input.shape) - 1 - i // 2, pad[i], pad[i + 1], mode)
    if input.shape != shape:
        raise InternalError(f"pad has shape {input.shape}, and torch's result has shape {shape}")
    return prims.clone(input) if not any(pad) else input


def _require_factor(name: str, factor: int, rank: int) -> None:
    if factor <= 0 or rank < 3:
        raise OperatorError(
            f"{name} expects a positive factor and at least 3 dimensions, got {factor} and {rank}"
        )


@torchsymbol("torch.nn.functional.pixel_shuffle", "torch.pixel_shuffle", tags=(OpTags.SHAPE_OP,))
def pixel_shuffle(input: TensorProxy, upscale_factor: int) -> TensorProxy:
    """``(*, c * r * r, h, w)`` → ``(*, c, h * r, w * r)``."""
    r = upscale_factor
    _require_factor("pixel_shuffle", r, len(input.shape))
    *lead, channels, height, width = input.shape
    if channels % (r * r):
        raise OperatorError(
            f"pixel_shuffle expects its input's 'channel' dimension to be divisible by {r * r}"
        )
    n = len(lead)
    spread = prims.reshape(input, (*lead, channels // (r * r), r, r, height, width))
    turned = prims.transpose(spread, (*range(n), n, n + 3, n + 1, n + 4, n + 2))
    return prims.reshape(turned, (*lead, channels // (r * r), height * r, width * r))


@torchsymbol("torch.nn.functional.pixel_unshuffle", "torch.pixel_unshuffle", tags=(OpTags.SHAPE_OP,))
def pixel_unshuffle(input: TensorProxy, downscale_factor: int) -> TensorProxy:
    """``(*, c, h * r, w * r)`` → ``(*, c * r * r, h, w)``."""
    r = downscale_factor
    _require_factor("pixel_unshuffle", r, len(input.shape))
    *lead, channels, height, width = input.shape
    if height % r or width % r:
        raise OperatorError(f"pixel_unshuffle expects height and width to be divisible by {r}")
    n = len(lead)
    spread = prims.reshape(input, (*lead, channels, height // r, r, width // r, r))
    turned = prims.transpose(spread, (*range(n), n, n + 2, n + 4, n + 1, n + 3))
    return prims.reshape(turned, (*lead, channels * r * r, height // r, width // r))
