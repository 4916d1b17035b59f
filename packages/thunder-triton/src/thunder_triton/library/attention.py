"""Attention by blocks: its operators, the claim of torch's function, and attention to a window of keys.

    torch.nn.functional.scaled_dot_product_attention  →  attention, attention_of_queries, attention_of_keys

On a GPU the kernels run where torch has none of its own: where gradients are needed, since a program has the
gradient of the parts of torch's attention, whose weights are whole in memory; else where heads of queries
share heads of keys, and a mask, float32, causality of other lengths or values of another size exclude torch's
flash attention.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch

from thunder import TensorProxy, dtypes
from thunder.core.transforms import get_grad, put_grads
from thunder.extend import Refusal

from ..environment import missing_device
from .declaration import ex, kernel, new

__all__ = ["windowed_attention"]

#: dtype → the greatest size of a head
_SIZES = {dtypes.bfloat16: 256, dtypes.float16: 256, dtypes.float32: 128}

Tensor = TensorProxy


def _forward_meta(
    query: Tensor, key: Tensor, value: Tensor, mask: Any, is_causal: bool, window: int, scale: float
) -> tuple[Tensor, Tensor]:
    result = new(query, (*query.shape[:-1], value.shape[-1]), query.dtype)
    return result, new(query, query.shape[:-1], dtypes.float32)


def _of_queries_meta(
    g: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Any,
    out: Tensor,
    sums: Tensor,
    is_causal: bool,
    window: int,
    scale: float,
) -> tuple[Tensor, Tensor]:
    return new(query, query.shape, query.dtype), new(sums, sums.shape, sums.dtype)


def _of_keys_meta(
    g: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Any,
    sums: Tensor,
    products: Tensor,
    is_causal: bool,
    window: int,
    scale: float,
) -> tuple[Tensor, Tensor]:
    return new(key, key.shape, key.dtype), new(value, value.shape, value.dtype)


#: (result, logarithms of the sums of exponentials)
attention = ex.register_operator("attention", meta=_forward_meta, fn=kernel("attention", "forward"))
#: (gradient of the queries, sums of the result times its gradient)
attention_of_queries = ex.register_operator(
    "attention_of_queries", meta=_of_queries_meta, fn=kernel("attention", "gradient_of_queries")
)
#: (gradient of the keys, gradient of the values)
attention_of_keys = ex.register_operator(
    "attention_of_keys", meta=_of_keys_meta, fn=kernel("attention", "gradient_of_keys")
)


def _attend(query: Any, key: Any, value: Any, mask: Any, is_causal: bool, window: int, scale: Any) -> Any:
    """Compute attention of three or four dimensions, and its gradients."""
    is_batch = len(query.shape) == 4
    q, k, v = (x if is_batch else x.unsqueeze(0) for x in (query, key, value))
    settings = (is_causal, window, 1 / math.sqrt(query.shape[-1]) if scale is None else float(scale))
    out, sums = attention(q, k, v, mask, *settings)
    result = out if is_batch else out.squeeze(0)
    g = get_grad(result)
    g = g if is_batch else g.unsqueeze(0)
    of_query, products = attention_of_queries(g, q, k, v, mask, out, sums, *settings)
    of_key, of_value = attention_of_keys(g, q, k, v, mask, sums, products, *settings)
    gradients = [x if is_batch else x.squeeze(0) for x in (of_query, of_key, of_value)]
    put_grads((query, key, value), tuple(gradients))
    if mask is not None:
        put_grads((mask,), (None,))
    return result


# -- torch's function ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Call:
    """A call of torch's `scaled_dot_product_attention`, with its arguments."""

    query: Tensor
    key: Tensor
    value: Tensor
    attn_mask: Tensor | None = None
    dropout_p: float = 0.0
    is_causal: bool = False
    scale: float | None = None
    enable_gqa: bool = False


def _attention(*args: Any, **kwargs: Any) -> Any:
    """Compute torch's attention and its gradients."""
    call = Call(*args, **kwargs)
    return _attend(call.query, call.key, call.value, call.attn_mask, call.is_causal, 0, call.scale)


def _check(*args: Any, **kwargs: Any) -> bool | Refusal:
    """Refuse dropout, gradients of masks, and what torch has a kernel for."""
    call = Call(*args, **kwargs)
    refusal = _unfit_tensors(call.query, call.key, call.value)
    if refusal is not None:
        return refusal
    if call.dropout_p != 0.0:
        return Refusal("random", "the kernel has no dropout", dropout_p=call.dropout_p)
    if call.attn_mask is not None:
        if call.attn_mask.requires_grad:
            return Refusal("gradient", "the kernel computes no gradient of the mask")
        if call.attn_mask.dtype is dtypes.float64 or call.attn_mask.device != call.query.device:
            return Refusal(
                "mask", "the kernel takes masks of 32 bits or less", mask=call.attn_mask.type_string()
            )
    shares_heads = call.query.shape[-3] != call.key.shape[-3]
    if shares_heads and not call.enable_gqa:
        return Refusal("heads", "heads are shared under enable_gqa=True alone")
    of_torch = _kernel_of_torch(call, shares_heads=shares_heads)
    if of_torch is not None:
        return Refusal("torch", f"torch's {of_torch} computes this call")
    return True


def _unfit_tensors(query: Tensor, key: Tensor, value: Tensor) -> Refusal | None:
    """Return why the kernels do not take tensors, or None."""
    missing = missing_device(query.device.type)
    if missing is not None:
        return missing
    if {query.device} != {key.device, value.device} or {query.dtype} != {key.dtype, value.dtype}:
        return Refusal("tensors", "queries, keys and values have one device and one dtype")
    largest = _SIZES.get(query.dtype)
    if largest is None:
        return Refusal("dtype", "the kernels compute in float32, bfloat16 and float16", dtype=query.dtype)
    shapes = [tuple(x.shape) for x in (query, key, value)]
    if len({len(shape) for shape in shapes}) != 1 or len(shapes[0]) not in (3, 4):
        return Refusal("dims", "the kernels take (batch, heads, length, size)", shapes=shapes)
    q, k, v = shapes
    if q[:-3] != k[:-3] or k[:-1] != v[:-1] or q[-1] != k[-1]:
        return Refusal("shapes", "the kernels do not broadcast", shapes=shapes)
    if k[-3] == 0 or q[-3] % k[-3] != 0:
        return Refusal("heads", "each head of keys has equally many heads of queries", shapes=shapes)
    if not 0 < q[-1] <= largest or not 0 < v[-1] <= largest:
        return Refusal("size", f"the kernels take heads of at most {largest} elements", shapes=shapes)
    return None


def _kernel_of_torch(call: Call, *, shares_heads: bool) -> str | None:
    """Return which of torch's kernels for CUDA would run a call, or None (`sdp_utils.cpp`)."""
    if call.query.device.type != "cuda" or any(x.requires_grad for x in (call.query, call.key, call.value)):
        return None
    is_square = call.query.shape[-2] == call.key.shape[-2]
    same_sizes = call.query.shape[-1] == call.value.shape[-1]
    is_half = call.query.dtype in (dtypes.bfloat16, dtypes.float16)
    if is_half and same_sizes and call.attn_mask is None and (is_square or not call.is_causal):
        return "flash attention"
    return None if shares_heads else "memory-efficient attention"


ex.register_implementation(
    "torch.nn.functional.scaled_dot_product_attention",
    checker=_check,
    execution_transform=_attention,
    grad_transform=_attention,
)


# -- windows -------------------------------------------------------------------------------------------------


def windowed_attention(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, window: int, scale: float | None = None
) -> torch.Tensor:
    """Return causal attention in which a query reads the last `window` keys, the one at its place included.

    query: (*, h, l, e); key: (*, n, s, e); value: (*, n, s, v), where n divides h → (*, h, l, v). In programs
    with the executor `triton_kernels` the kernels compute it, and read no other keys; elsewhere torch does,
    with a mask.
    """
    i = torch.arange(query.shape[-2], device=query.device).unsqueeze(1)
    j = torch.arange(key.shape[-2], device=query.device)
    mask = (j <= i) & (i - j < window)
    return torch.nn.functional.scaled_dot_product_attention(
        query, key, value, attn_mask=mask, scale=scale, enable_gqa=True
    )


def _check_windowed(
    query: Tensor, key: Tensor, value: Tensor, window: int, scale: float | None = None
) -> bool | Refusal:
    """Refuse windows without keys, and tensors that the kernels do not take."""
    if window < 1:
        return Refusal("window", "a window has at least one key", window=window)
    refusal = _unfit_tensors(query, key, value)
    return True if refusal is None else refusal


def _windowed(query: Any, key: Any, value: Any, window: int, scale: float | None = None) -> Any:
    return _attend(query, key, value, None, True, window, scale)


_windowed_operator = ex.register_operator(
    "windowed_attention", like=windowed_attention, replaces=windowed_attention
)
ex.register_implementation(
    _windowed_operator, checker=_check_windowed, execution_transform=_windowed, grad_transform=_windowed
)
