"""Torch's flash attention with what a backward reads, as nvFuser's operations return it.

Dao et al., FlashAttention (2022). On a GPU nvFuser runs the same kernels; on a CPU it is torch's kernel for
the CPU, which has no state of random numbers. Both functions run on tensors without data, which tells the
strides of their results.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.library import custom_op

__all__ = ["flash_attention", "flash_attention_backward"]


def _forward(query: Tensor, key: Tensor, value: Tensor, is_causal: bool, scale: float | None) -> Any:
    """Return attention, the logarithms of its sums, and the seed and offset of random numbers.

    query: ``(b, h, l, e)``, key and value: ``(b, h, s, e)`` → ``(b, h, l, e)``, float32 ``(b, h, l)``, uint64
    ``(2,)`` and ``()``.
    """
    tensors = _as_kernels_take(query, key, value)
    if query.device.type == "cuda":
        kernel: Any = torch.ops.aten._scaled_dot_product_flash_attention
        results = kernel(*tensors, 0.0, is_causal, False, scale=scale)
        return results[0], results[1], results[6], results[7]
    kernel = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
    out, sums = kernel(*tensors, 0.0, is_causal, scale=scale)
    return out, sums, query.new_zeros(2, dtype=torch.uint64), query.new_zeros((), dtype=torch.uint64)


def _backward(
    grad: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    out: Tensor,
    sums: Tensor,
    is_causal: bool,
    seed: Tensor,
    offset: Tensor,
    scale: float | None,
) -> Any:
    """Return the gradients of query, key and value, from the results of `flash_attention`."""
    tensors = _as_kernels_take(grad, query, key, value, out)
    if query.device.type == "cuda":
        kernel: Any = torch.ops.aten._scaled_dot_product_flash_attention_backward
        lengths = (None, None, query.shape[-2], key.shape[-2])
        return kernel(*tensors, sums, *lengths, 0.0, is_causal, seed, offset, scale=scale)
    kernel = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward
    return kernel(*tensors, sums, 0.0, is_causal, scale=scale)


def _as_kernels_take(*tensors: Tensor) -> tuple[Tensor, ...]:
    """Return the tensors with stride 1 in the last dimension, which the kernels assume."""
    return tuple(x if x.stride(-1) == 1 else x.contiguous() for x in tensors)


_INPUTS = "Tensor query, Tensor key, Tensor value"
flash_attention = custom_op(
    "thunder_nvfuser::flash_attention",
    _forward,
    mutates_args=(),
    schema=f"({_INPUTS}, bool is_causal, float? scale) -> (Tensor, Tensor, Tensor, Tensor)",
)
flash_attention_backward = custom_op(
    "thunder_nvfuser::flash_attention_backward",
    _backward,
    mutates_args=(),
    schema=f"(Tensor grad, {_INPUTS}, Tensor out, Tensor sums, bool is_causal, Tensor seed, Tensor offset, "
    "float? scale) -> (Tensor, Tensor, Tensor)",
)
flash_attention.register_fake(_forward)
flash_attention_backward.register_fake(_backward)
