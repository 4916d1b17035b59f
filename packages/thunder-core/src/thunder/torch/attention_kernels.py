"""Torch's fused kernels of attention: what they take, what they return, and how their backward is called.

Dao et al., FlashAttention (2022); Rabe and Staats, Self-attention Does Not Need O(n²) Memory (2021).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import torch

from thunder.base import dtypes
from thunder.ir.proxies import TensorProxy

__all__ = ["FLASH", "KERNELS_ON_CUDA", "MATH", "KernelOnCUDA", "additive_mask", "as_kernels_take"]

#: what torch's ``_fused_sdp_choice`` answers (``torch.nn.attention.SDPBackend``)
MATH: Final = 0
FLASH: Final = 1

_aten = torch.ops.aten


def as_kernels_take(*tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Return the tensors with stride 1 in the last dimension, which the kernels assume."""
    return tuple(x if x.stride(-1) == 1 else x.contiguous() for x in tensors)


def additive_mask(mask: torch.Tensor | None, like: torch.Tensor) -> torch.Tensor | None:
    """Return the mask to be added, as the kernels take it."""
    if mask is None or mask.dtype != torch.bool:
        return mask
    return torch.zeros_like(mask, dtype=like.dtype).masked_fill_(mask.logical_not(), -math.inf)


@dataclass(frozen=True)
class KernelOnCUDA:
    """A fused kernel of torch for attention on a GPU, without dropout.

    ``forward`` is a function of the query, the key, the value, what is added to the scores, ``is_causal`` and
    ``scale``, and returns the attention with the logarithms of the sums; ``backward`` takes before these the
    cotangent, and after the three tensors what the forward returned. ``sums`` is the shape of the logarithms,
    float32, for that of the query.
    """

    forward: Callable[..., Any]
    backward: Callable[..., Any]
    sums: Callable[[tuple[int, ...]], tuple[int, ...]]
    takes_mask: bool
    #: whether heads of the query may share those of the key and the value
    takes_groups: bool

    def takes(
        self, query: TensorProxy, key: TensorProxy, value: TensorProxy, mask: TensorProxy | None
    ) -> bool:
        """Return whether the kernel takes the tensors as they are: other vectors torch pads before it.

        The gradient of a mask is left to that of the parts.
        """
        e = query.shape[-1]
        if len(query.shape) != 4 or e % 8 or not (key.shape[-1] == value.shape[-1] == e):
            return False
        if query.shape[1] != key.shape[1] and not self.takes_groups:
            return False
        if mask is None:
            return True
        fits = len(mask.shape) in (2, 4) and mask.dtype in (dtypes.bool8, query.dtype)
        return self.takes_mask and fits and not mask.requires_grad


def _flash(q: Any, k: Any, v: Any, added: Any, is_causal: bool, scale: float | None) -> Any:
    return _aten._scaled_dot_product_flash_attention.default(q, k, v, 0.0, is_causal, scale=scale)[:2]


def _flash_backward(
    g: Any, q: Any, k: Any, v: Any, out: Any, sums: Any, added: Any, is_causal: bool, scale: float | None
) -> Any:
    unread = (q.new_empty(2, dtype=torch.uint64), q.new_empty((), dtype=torch.uint64))
    lengths = (None, None, q.shape[-2], k.shape[-2])
    kernel = _aten._scaled_dot_product_flash_attention_backward.default
    return kernel(g, q, k, v, out, sums, *lengths, 0.0, is_causal, *unread, scale=scale)


def _efficient(q: Any, k: Any, v: Any, added: Any, is_causal: bool, scale: float | None) -> Any:
    kernel = _aten._scaled_dot_product_efficient_attention.default
    return kernel(q, k, v, _aligned(added, q, k), True, 0.0, is_causal, scale=scale)[:2]


def _efficient_backward(
    g: Any, q: Any, k: Any, v: Any, out: Any, sums: Any, added: Any, is_causal: bool, scale: float | None
) -> Any:
    unread = (q.new_empty((), dtype=torch.int64), q.new_empty((), dtype=torch.int64))
    wanted = [True, True, True, False]
    kernel = _aten._scaled_dot_product_efficient_attention_backward.default
    added = _aligned(added, q, k)
    return kernel(g, q, k, v, added, out, sums, *unread, 0.0, wanted, is_causal, scale=scale)[:3]


def _aligned(added: torch.Tensor | None, q: torch.Tensor, k: torch.Tensor) -> torch.Tensor | None:
    """Return what is added to the scores in their shape, its rows 16 elements apart or a multiple of it."""
    if added is None:
        return None
    length = added.shape[-1]
    padded = torch.nn.functional.pad(added, (0, -length % 16))[..., :length] if length % 16 else added
    return padded.expand(*q.shape[:-1], k.shape[-2])


def _cudnn(q: Any, k: Any, v: Any, added: Any, is_causal: bool, scale: float | None) -> Any:
    kernel = _aten._scaled_dot_product_cudnn_attention.default
    return kernel(q, k, v, added, True, 0.0, is_causal, scale=scale)[:2]


def _cudnn_backward(
    g: Any, q: Any, k: Any, v: Any, out: Any, sums: Any, added: Any, is_causal: bool, scale: float | None
) -> Any:
    unread = (q.new_empty((), dtype=torch.int64), q.new_empty((), dtype=torch.int64))
    lengths = (None, None, q.shape[-2], k.shape[-2])
    kernel = _aten._scaled_dot_product_cudnn_attention_backward.default
    return kernel(g, q, k, v, out, sums, *unread, added, *lengths, 0.0, is_causal, scale=scale)


#: what torch's choice answers → the kernel
KERNELS_ON_CUDA: Final = {
    FLASH: KernelOnCUDA(_flash, _flash_backward, lambda q: q[:-1], takes_mask=False, takes_groups=True),
    2: KernelOnCUDA(
        _efficient,
        _efficient_backward,
        lambda q: (*q[:-2], -(-q[-2] // 32) * 32),
        takes_mask=True,
        takes_groups=False,
    ),
    3: KernelOnCUDA(_cudnn, _cudnn_backward, lambda q: (*q[:-1], 1), takes_mask=False, takes_groups=False),
}
