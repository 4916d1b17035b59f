"""Multi-head attention with projections, as ``torch.nn.MultiheadAttention`` computes it.

Vaswani et al., Attention Is All You Need (2017), 3.2.2.
"""

from __future__ import annotations

import math
from typing import Any

from thunder.base import dtypes
from thunder.base.tags import OpTags
from thunder.ir.proxies import TensorProxy
from thunder.ops.operator import NONDIFFERENTIABLE
from thunder.torch.meta_by_torch import checked_by_torch
from thunder.torch.namespace import ltorch
from thunder.torch.registration import torchsymbol

_F = "torch.nn.functional."

Tensors = tuple[TensorProxy, ...]


@checked_by_torch(f"{_F}multi_head_attention_forward", tags=(OpTags.RANDOM_OP,))
def multi_head_attention_forward(
    query: TensorProxy,
    key: TensorProxy,
    value: TensorProxy,
    embed_dim_to_check: int,
    num_heads: int,
    in_proj_weight: TensorProxy | None,
    in_proj_bias: TensorProxy | None,
    bias_k: TensorProxy | None,
    bias_v: TensorProxy | None,
    add_zero_attn: bool,
    dropout_p: float,
    out_proj_weight: TensorProxy,
    out_proj_bias: TensorProxy | None,
    training: bool = True,
    key_padding_mask: TensorProxy | None = None,
    need_weights: bool = True,
    attn_mask: TensorProxy | None = None,
    use_separate_proj_weight: bool = False,
    q_proj_weight: TensorProxy | None = None,
    k_proj_weight: TensorProxy | None = None,
    v_proj_weight: TensorProxy | None = None,
    static_k: TensorProxy | None = None,
    static_v: TensorProxy | None = None,
    average_attn_weights: bool = True,
    is_causal: bool = False,
) -> tuple[TensorProxy, TensorProxy | None]:
    """``query: (l, b, e)``, ``key`` and ``value: (s, b, e)`` → ``(l, b, e)``, and the weights.

    ``b`` may be absent. Weights are ``(b, l, s)``, by heads ``(b, h, l, s)``, or None if not requested.
    """
    batched = len(query.shape) == 3
    if not batched:
        query, key, value = (ltorch.unsqueeze(x, 1) for x in (query, key, value))
        key_padding_mask = None if key_padding_mask is None else ltorch.unsqueeze(key_padding_mask, 0)
    padding = _additive(key_padding_mask, query)
    batch = query.shape[1]
    separate = (q_proj_weight, k_proj_weight, v_proj_weight) if use_separate_proj_weight else None
    q, k, v = _projected((query, key, value), in_proj_weight, separate, in_proj_bias)
    mask, causal = _masks(attn_mask, padding, query, is_causal, need_weights)
    added = 0
    if bias_k is not None and bias_v is not None:
        k, v = (ltorch.cat([x, ltorch.repeat(b, (1, batch, 1))]) for x, b in ((k, bias_k), (v, bias_v)))
        added += 1
    q, k, v = (_by_heads(x, num_heads) for x in (q, k, v))
    k, v = (static if static is not None else x for x, static in ((k, static_k), (v, static_v)))
    if add_zero_attn:
        k, v = (ltorch.pad(x, (0, 0, 0, 1)) for x in (k, v))
        added += 1
    mask = _merged(mask, padding, added, batch, num_heads, k.shape[1])
    dropout_p = dropout_p if training else 0.0
    attend = _attended_with_weights if need_weights else _attended
    heads, weights = attend(q, k, v, mask, dropout_p, causal, (batch, num_heads))
    out = ltorch.linear(heads, out_proj_weight, out_proj_bias)
    if weights is not None and average_attn_weights:
        weights = ltorch.mean(weights, 1)
    if not batched:
        out = ltorch.squeeze(out, 1)
        weights = None if weights is None else ltorch.squeeze(weights, 0)
    return out, weights


def _projected(
    inputs: Tensors, packed: TensorProxy | None, separate: Any, bias: TensorProxy | None
) -> list[TensorProxy]:
    """Project the three inputs, each by its weight; ``packed`` are the three in one tensor.

    The bias is always packed.
    """
    weights = separate if separate is not None else ltorch.chunk(packed, 3)
    biases = ltorch.chunk(bias, 3) if bias is not None else (None, None, None)
    return [ltorch.linear(x, w, b) for x, w, b in zip(inputs, weights, biases, strict=True)]


def _by_heads(x: TensorProxy, num_heads: int) -> TensorProxy:
    """``(s, b, e)`` → ``(b * h, s, e / h)``."""
    length, batch, width = x.shape
    return ltorch.transpose(ltorch.reshape(x, (length, batch * num_heads, width // num_heads)), 0, 1)


# -- masks -----------------------------------------------------------------------------------------


def _additive(mask: TensorProxy | None, like: TensorProxy) -> TensorProxy | None:
    """Convert a boolean mask to an additive one."""
    if mask is None or mask.dtype is not dtypes.bool8:
        return mask
    zeros = ltorch.zeros_like(mask, dtype=like.dtype.torch_dtype)
    return ltorch.masked_fill(zeros, mask, -math.inf)


def _masks(
    mask: TensorProxy | None,
    padding: TensorProxy | None,
    query: TensorProxy,
    is_causal: bool,
    need_weights: bool,
) -> tuple[TensorProxy | None, bool]:
    """Return the additive mask ``(b * h or 1, l, s)``, and whether ``is_causal`` remains."""
    if is_causal and padding is None and not need_weights:
        return None, True
    mask = _additive(mask, query)
    if mask is not None and len(mask.shape) == 2:
        mask = ltorch.unsqueeze(mask, 0)
    return mask, is_causal and padding is None


def _merged(
    mask: TensorProxy | None, padding: TensorProxy | None, added: int, batch: int, num_heads: int, length: int
) -> TensorProxy | None:
    """Return the mask merged with that of padded keys, ``(b, s)``; added keys are not masked."""
    if mask is not None and added:
        mask = ltorch.pad(mask, (0, added))
    if padding is None:
        return mask
    padding = ltorch.pad(padding, (0, added)) if added else padding
    rows = ltorch.expand(ltorch.reshape(padding, (batch, 1, 1, length)), (batch, num_heads, 1, length))
    rows = ltorch.reshape(rows, (batch * num_heads, 1, length))
    return rows if mask is None else ltorch.add(mask, rows)


# -- attention -------------------------------------------------------------------------------------


def _attended_with_weights(
    q: TensorProxy,
    k: TensorProxy,
    v: TensorProxy,
    mask: TensorProxy | None,
    dropout_p: float,
    causal: bool,
    sizes: tuple[int, int],
) -> tuple[TensorProxy, TensorProxy]:
    """``(l, b, e)``, and the weights ``(b, h, l, s)``; ``sizes`` are those of batch and heads."""
    (batch, heads), (_, length, width) = sizes, q.shape
    q, k = ltorch.mul(q, math.sqrt(1.0 / width)), ltorch.transpose(k, -2, -1)
    scores = ltorch.bmm(q, k) if mask is None else ltorch.baddbmm(mask, q, k)
    weights = ltorch.softmax(scores, -1)
    if dropout_p > 0.0:
        weights = ltorch.dropout(weights, dropout_p)
    out = ltorch.transpose(ltorch.bmm(weights, v), 0, 1)
    weights = ltorch.reshape(weights, (batch, heads, length, k.shape[-1]))
    return ltorch.reshape(out, (length, batch, heads * v.shape[-1])), weights


def _attended(
    q: TensorProxy,
    k: TensorProxy,
    v: TensorProxy,
    mask: TensorProxy | None,
    dropout_p: float,
    causal: bool,
    sizes: tuple[int, int],
) -> tuple[TensorProxy, None]:
    """``(l, b, e)`` by scaled_dot_product_attention; ``sizes`` are those of batch and heads."""
    (batch, heads), length = sizes, q.shape[1]
    if mask is not None:
        mask = ltorch.reshape(mask, (1 if mask.shape[0] == 1 else batch, -1, mask.shape[-2], k.shape[1]))
    q, k, v = (ltorch.reshape(x, (batch, heads, *x.shape[1:])) for x in (q, k, v))
    out = ltorch.scaled_dot_product_attention(q, k, v, mask, dropout_p, causal)
    out = ltorch.permute(out, (2, 0, 1, 3))
    return ltorch.reshape(out, (length, batch, heads * v.shape[-1])), None


@torchsymbol("torch._native_multi_head_attention", prim=True, vjp=NONDIFFERENTIABLE)
def native_multi_head_attention(
    query: TensorProxy,
    key: TensorProxy,
    value: TensorProxy,
    embed_dim: int,
    num_head: int,
    qkv_weight: TensorProxy,
    qkv_bias: TensorProxy,
    proj_weight: TensorProxy,
    proj_bias: TensorProxy,
    mask: TensorProxy | None = None,
    need_weights: bool = True,
    average_attn_weights: bool = True,
    mask_type: int | None = None,
) -> tuple[TensorProxy, TensorProxy | None]:
    """The kernel of ``torch.nn.MultiheadAttention`` where no argument requires grad.

    ``query: (b, l, e)``, ``key`` and ``value: (b, s, e)`` → ``(b, l, e)``, and the weights ``(b, l, s)``, or
    by heads ``(b, h, l, s)``.
    """
    batch, length, _ = query.shape
    out = TensorProxy(like=query)
    if not need_weights:  # torch's kernel for meta tensors returns some
        return out, None
    heads = () if average_attn_weights else (num_head,)
    shape = (batch, *heads, length, key.shape[1])
    return out, TensorProxy(like=query, shape=shape)
