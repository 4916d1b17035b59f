"""The gradient of attention by torch's fused kernel; otherwise it is that of the parts.

With ``P = softmax(q kᵀ s + mask)`` and ``D = sum(P * dP)`` along the keys (Dao et al., FlashAttention, 2022,
appendix B):

    dv = Pᵀ g        dP = g vᵀ        dS = P * (dP - D)        dq = dS k s        dk = dSᵀ q s
"""

from __future__ import annotations

from typing import Any

import torch

from thunder.base.errors import OperatorError
from thunder.base.tags import OpTags
from thunder.ir.proxies import TensorProxy
from thunder.ops.gradient_rules import VjpCall, vjp
from thunder.ops.layout_rules import BY_DEVICE
from thunder.ops.meta_kernels import without_checks
from thunder.torch.attention_kernels import KERNELS_ON_CUDA, additive_mask, as_kernels_take
from thunder.torch.namespace import ltorch
from thunder.torch.registration import torchsymbol
from thunder.torch.rows.nn.attention import (
    attention_weights,
    by_query_head,
    check_attention_shapes,
    default_scale,
)


@without_checks
def _flash_attention_for_cpu_backward(
    grad_output: torch.Tensor,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    out: torch.Tensor,
    logsumexp: torch.Tensor,
    dropout_p: float,
    is_causal: bool,
    *,
    attn_mask: torch.Tensor | None,
    scale: float | None,
) -> Any:
    tensors = as_kernels_take(grad_output, query, key, value, out)
    kernel = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward.default
    mask = additive_mask(attn_mask, query)
    return kernel(*tensors, logsumexp, dropout_p, is_causal, attn_mask=mask, scale=scale)


@torchsymbol(
    id="ltorch.flash_attention_for_cpu_backward",
    tags=(OpTags.MATMUL_OP,),
    eager=_flash_attention_for_cpu_backward,
)
def flash_attention_for_cpu_backward(
    grad_output: TensorProxy,
    query: TensorProxy,
    key: TensorProxy,
    value: TensorProxy,
    out: TensorProxy,
    logsumexp: TensorProxy,
    dropout_p: float,
    is_causal: bool,
    *,
    attn_mask: TensorProxy | None,
    scale: float | None,
) -> tuple[TensorProxy, TensorProxy, TensorProxy]:
    """Gradients of query, key and value.

    The kernel takes ``out`` and ``logsumexp`` in place of the weights. The decomposition recomputes the
    weights, so that its derivatives depend on the inputs.
    """
    check_attention_shapes(query, key, value, attn_mask)
    _check_saved(grad_output, query, value, out, logsumexp, query.shape[:-1])
    return _gradients(grad_output, query, key, value, attn_mask, is_causal, scale)


def _gradients(
    grad_output: TensorProxy,
    query: TensorProxy,
    key: TensorProxy,
    value: TensorProxy,
    attn_mask: TensorProxy | None,
    is_causal: bool,
    scale: float | None,
) -> tuple[TensorProxy, TensorProxy, TensorProxy]:
    """Return the gradients of query, key and value, from weights that are computed again."""
    keys, values = by_query_head(key, query), by_query_head(value, query)
    weights = attention_weights(query, keys, attn_mask, is_causal, scale)
    scale = default_scale(query) if scale is None else scale
    products = ltorch.mul(weights, ltorch.matmul(grad_output, ltorch.transpose(values, -2, -1)))
    along = ltorch.mul(weights, ltorch.sum(products, -1, True))
    scores = ltorch.mul(ltorch.sub(products, along), scale)
    dq = ltorch.matmul(scores, keys)
    dk = ltorch.matmul(ltorch.transpose(scores, -2, -1), query)
    dv = ltorch.matmul(ltorch.transpose(weights, -2, -1), grad_output)
    return dq, _by_group(dk, key), _by_group(dv, value)


def _check_saved(
    grad_output: TensorProxy,
    query: TensorProxy,
    value: TensorProxy,
    out: TensorProxy,
    logsumexp: TensorProxy,
    sums: tuple[int, ...],
) -> None:
    """Raise OperatorError unless what a forward saved has the shapes of its results."""
    shape = (*query.shape[:-1], value.shape[-1])
    saved = {"grad_output": (grad_output, shape), "out": (out, shape), "logsumexp": (logsumexp, sums)}
    for name, (x, expected) in saved.items():
        if x.shape != expected:
            raise OperatorError(f"{name} has shape {x.shape}; for these queries and values it is {expected}")


def _by_group(g: TensorProxy, like: TensorProxy) -> TensorProxy:
    """Return the sum over the heads of the query that share a head of the keys."""
    if g.shape == like.shape:
        return g
    heads = like.shape[-3]
    grouped = ltorch.reshape(g, (*g.shape[:-3], heads, g.shape[-3] // heads, *g.shape[-2:]))
    return ltorch.sum(grouped, -3)


@vjp("ltorch.flash_attention_for_cpu")
def _of_flash_attention_for_cpu(c: VjpCall) -> dict[str, TensorProxy]:
    arguments = (c.query, c.key, c.value, *c.out, c.dropout_p, c.is_causal)
    mask, scale = c.attn_mask, c.scale
    gradients = flash_attention_for_cpu_backward(c.g[0], *arguments, attn_mask=mask, scale=scale)
    return dict(zip(("query", "key", "value"), gradients, strict=True))


@without_checks
def _fused_attention_backward(
    grad_output: torch.Tensor,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    out: torch.Tensor,
    logsumexp: torch.Tensor,
    is_causal: bool,
    *,
    attn_mask: torch.Tensor | None,
    scale: float | None,
    kernel: int,
) -> Any:
    tensors = as_kernels_take(grad_output, query, key, value, out)
    added = additive_mask(attn_mask, query)
    return KERNELS_ON_CUDA[kernel].backward(*tensors, logsumexp, added, is_causal, scale)


@torchsymbol(
    id="ltorch.fused_attention_backward",
    layout=BY_DEVICE,
    tags=(OpTags.MATMUL_OP,),
    eager=_fused_attention_backward,
)
def fused_attention_backward(
    grad_output: TensorProxy,
    query: TensorProxy,
    key: TensorProxy,
    value: TensorProxy,
    out: TensorProxy,
    logsumexp: TensorProxy,
    is_causal: bool,
    *,
    attn_mask: TensorProxy | None,
    scale: float | None,
    kernel: int,
) -> tuple[TensorProxy, TensorProxy, TensorProxy]:
    """Gradients of query, key and value on a GPU, by the kernel of the forward.

    The decomposition recomputes the weights, so that its derivatives depend on the inputs.
    """
    check_attention_shapes(query, key, value, attn_mask)
    sums = KERNELS_ON_CUDA[kernel].sums(query.shape)
    _check_saved(grad_output, query, value, out, logsumexp, sums)
    return _gradients(grad_output, query, key, value, attn_mask, is_causal, scale)


@vjp("ltorch.fused_attention")
def _of_fused_attention(c: VjpCall) -> dict[str, TensorProxy]:
    gradients = fused_attention_backward(
        c.g[0],
        c.query,
        c.key,
        c.value,
        *c.out,
        c.is_causal,
        attn_mask=c.attn_mask,
        scale=c.scale,
        kernel=c.kernel,
    )
    return dict(zip(("query", "key", "value"), gradients, strict=True))
