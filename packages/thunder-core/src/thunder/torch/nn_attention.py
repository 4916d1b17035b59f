"""Attention."""

from __future__ import annotations

import math

from thunder.core import dtypes
from thunder.core.errors import OperatorError
from thunder.core.proxies import TensorProxy
from thunder.core.tags import OpTags
from thunder.torch.by_torch import by_torch
from thunder.torch.namespace import ltorch
from thunder.torch.registration import torchsymbol

_F = "torch.nn.functional."


@torchsymbol(f"{_F}scaled_dot_product_attention", autocast="lower", tags=(OpTags.MATMUL_OP,))
def scaled_dot_product_attention(
    query: TensorProxy,
    key: TensorProxy,
    value: TensorProxy,
    attn_mask: TensorProxy | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> TensorProxy:
    """Vaswani et al., Attention Is All You Need (2017): ``softmax(q @ k.T * scale + mask) @ v``.

    ``query: (*, h, l, e)``, ``key: (*, h, s, e)``, ``value: (*, h, s, v)`` → ``(*, h, l, v)``; ``attn_mask``
    broadcasts to ``(*, h, l, s)``. With ``enable_gqa`` the number of query heads is a multiple of that of the
    others. Half precision is not widened here; a kernel that claims the whole does so inside.
    """
    if is_causal and attn_mask is not None:
        raise OperatorError(
            "_scaled_dot_product_attention: Explicit attn_mask should not be set when is_causal=True"
        )
    if len(query.shape) < 2 or query.dtype is not key.dtype or query.dtype is not value.dtype:
        raise OperatorError("Expected query, key, and value to have the same dtype and at least 2 dimensions")
    if enable_gqa:
        key, value = (ltorch.repeat_interleave(x, query.shape[-3] // x.shape[-3], -3) for x in (key, value))
    scale = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    scores = ltorch.mul(ltorch.matmul(query, ltorch.transpose(key, -2, -1)), scale)
    scores = _masked(scores, attn_mask, is_causal)
    weights = ltorch.softmax(scores, -1)
    if dropout_p > 0.0:
        weights = ltorch.dropout(weights, dropout_p)
    return ltorch.matmul(weights, value)


def _masked(scores: TensorProxy, mask: TensorProxy | None, is_causal: bool) -> TensorProxy:
    if is_causal:
        ones = ltorch.ones(scores.shape[-2:], dtype=dtypes.bool8.torch_dtype, device=scores.device)
        mask = ltorch.tril(ones)
    if mask is None:
        return scores
    if mask.dtype is dtypes.bool8:
        return ltorch.where(mask, scores, -math.inf)
    return ltorch.add(scores, mask)


#: torch's nn.MultiheadAttention; its output and, if ``need_weights``, the weights (else None)
multi_head_attention_forward = by_torch(
    f"{_F}multi_head_attention_forward",
    "query, key, value, embed_dim_to_check, num_heads, in_proj_weight, in_proj_bias, bias_k, bias_v, "
    "add_zero_attn, dropout_p, out_proj_weight, out_proj_bias, training=True, key_padding_mask=None, "
    "need_weights=True, attn_mask=None, use_separate_proj_weight=False, q_proj_weight=None, "
    "k_proj_weight=None, v_proj_weight=None, static_k=None, static_v=None, average_attn_weights=True, "
    "is_causal=False",
    tags=(OpTags.RANDOM_OP,),
)
