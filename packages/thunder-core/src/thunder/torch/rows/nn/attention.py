"""Attention."""

from __future__ import annotations

import itertools
import math
from typing import Any

import torch

from thunder.base import dtypes
from thunder.base.errors import OperatorError
from thunder.base.tags import OpTags
from thunder.ir.proxies import TensorProxy
from thunder.ir.symbolic_floats import square_root
from thunder.ir.symbolic_numbers import SymbolicNumber
from thunder.ir.symbolic_sizes import has_symbols, hint_of
from thunder.ops import prims
from thunder.ops.layout_rules import BY_DEVICE
from thunder.ops.meta_kernels import without_checks
from thunder.ops.stand_ins import stand_in_tensor
from thunder.torch.attention_kernels import FLASH, KERNELS_ON_CUDA, MATH, additive_mask, as_kernels_take
from thunder.torch.batch_rules.batched_attention import attention as batched_attention
from thunder.torch.mixed_precision import computed_in
from thunder.torch.namespace import ltorch
from thunder.torch.registration import torchsymbol

_F = "torch.nn.functional."


@torchsymbol(
    f"{_F}scaled_dot_product_attention", layout=BY_DEVICE, tags=(OpTags.MATMUL_OP,), batch=batched_attention
)
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
    """``softmax(q @ k.T * scale + mask) @ v``: Vaswani et al., Attention Is All You Need, 2017

    ``query: (*, h, l, e)``, ``key: (*, h, s, e)``, ``value: (*, h, s, v)`` → ``(*, h, l, v)``; ``attn_mask``
    broadcasts to ``(*, h, l, s)``. With ``enable_gqa`` the number of query heads is a multiple of that of the
    others. Half precision is not widened here; a kernel that claims the whole operator does so inside.
    """
    if is_causal and attn_mask is not None:
        raise OperatorError(
            "_scaled_dot_product_attention: Explicit attn_mask should not be set when is_causal=True"
        )
    if len(query.shape) < 2 or query.dtype is not key.dtype or query.dtype is not value.dtype:
        raise OperatorError("Expected query, key, and value to have the same dtype and at least 2 dimensions")
    if isinstance(scale, SymbolicNumber):  # torch chooses a kernel by numbers alone
        scale = scale.value
    if isinstance(dropout_p, SymbolicNumber) and not dropout_p > 0.0:
        dropout_p = 0.0
    chosen = _chosen_kernel(query, key, value, dropout_p, is_causal, attn_mask, scale, enable_gqa)
    if chosen == FLASH and query.device.type == "cpu":
        return _by_flash_kernel(query, key, value, attn_mask, dropout_p, is_causal, scale)
    kernel = KERNELS_ON_CUDA.get(chosen) if query.device.type == "cuda" else None
    if kernel is not None and kernel.takes(query, key, value, attn_mask):
        return fused_attention(query, key, value, is_causal, attn_mask=attn_mask, scale=scale, kernel=chosen)[
            0
        ]
    if enable_gqa:
        key, value = by_query_head(key, query), by_query_head(value, query)
    weights = _safe_softmax(masked_scores(query, key, attn_mask, is_causal, scale))
    if dropout_p > 0.0:
        weights = ltorch.dropout(weights, dropout_p)
    return ltorch.matmul(weights, value)


def by_query_head(x: TensorProxy, query: TensorProxy) -> TensorProxy:
    """Return keys or values repeated for each head of the query (Ainslie et al., GQA, 2023)."""
    heads, of_query = x.shape[-3], query.shape[-3]
    return x if heads == of_query else ltorch.repeat_interleave(x, of_query // heads, -3)


def attention_weights(
    query: TensorProxy, key: TensorProxy, mask: TensorProxy | None, is_causal: bool, scale: float | None
) -> TensorProxy:
    """Return ``softmax(q @ k.T * scale + mask)``; a row with no unmasked key has weights 0."""
    scores = masked_scores(query, key, mask, is_causal, scale)
    return ltorch.softmax(scores, -1) if mask is None else _safe_softmax(scores)


def _safe_softmax(scores: TensorProxy) -> TensorProxy:
    """Return the softmax of each row; zeros for a row of ``-inf``, whatever made it one."""
    weights = ltorch.softmax(scores, -1)
    nothing = ltorch.all(ltorch.eq(scores, -math.inf), -1, True)
    return ltorch.where(nothing, 0, weights)


def default_scale(query: TensorProxy) -> float:
    """Return ``1 / sqrt(e)``; 1 for vectors without elements, whose products are 0."""
    return 1 / square_root(max(query.shape[-1], 1))


def masked_scores(
    query: TensorProxy, key: TensorProxy, mask: TensorProxy | None, is_causal: bool, scale: float | None
) -> TensorProxy:
    """Return ``q @ k.T * scale + mask: (*, h, l, s)``, where False in a mask means ``-inf``."""
    scale = default_scale(query) if scale is None else scale
    scores = ltorch.mul(ltorch.matmul(query, ltorch.transpose(key, -2, -1)), scale)
    if is_causal:
        ones = ltorch.ones(scores.shape[-2:], dtype=dtypes.bool8.torch_dtype, device=scores.device)
        mask = ltorch.tril(ones)
    if mask is None:
        return scores
    if mask.dtype is dtypes.bool8:
        return ltorch.where(mask, scores, -math.inf)
    return ltorch.add(scores, mask)


# -- torch's kernel ------------------------------------------------------------------------------------------


def _chosen_kernel(
    query: TensorProxy,
    key: TensorProxy,
    value: TensorProxy,
    dropout_p: float,
    is_causal: bool,
    mask: TensorProxy | None,
    scale: float | None,
    enable_gqa: bool,
) -> int:
    """Return the number of the kernel by which torch would compute the attention; 0 for none that is fused.

    Torch decides for tensors with the same metadata. Empty tensors are left out: the decision divides by the
    number of heads, among others. So are, on a GPU, symbolic sizes, attention with dropout, whose draws the
    kernels make, and a program that is planned for a device which is not here.
    """
    tensors = (query, key, value, *([mask] if mask is not None else []))
    if not all(x.numel() for x in (query, key, value)):
        return MATH
    if query.device.type == "cuda":
        if dropout_p > 0.0 or not _is_here(query) or any(has_symbols(x.shape) for x in tensors):
            return MATH
    elif query.device.type != "cpu":
        return MATH
    _ask_relations(query, key, value, mask)
    drops = float(dropout_p > 0.0)  # how much is dropped makes no difference
    with torch._C.DisableTorchFunction():
        q, k, v = (_stand_in(x) for x in (query, key, value))
        added = _stand_in(mask) if mask is not None else None
        choice = torch._fused_sdp_choice(q, k, v, added, drops, is_causal, scale=scale, enable_gqa=enable_gqa)
    return int(choice)


def _is_here(x: TensorProxy) -> bool:
    """Return whether the CUDA device of a proxy is in this machine."""
    return torch.cuda.is_available() and (x.device.index or 0) < torch.cuda.device_count()


def _ask_relations(
    query: TensorProxy, key: TensorProxy, value: TensorProxy, mask: TensorProxy | None
) -> None:
    """Make facts of what torch's choice of a kernel depends on, where sizes are symbols.

    It compares batches, heads, head dimensions and the dimensions of the mask, and refuses empty tensors;
    see ``use_flash_attention_cpp`` in torch's ``sdp_utils_cpp.cpp``.
    """
    for x in (query, key, value):
        if has_symbols(x.shape[-1:]):
            int(x.shape[-1])
    for a, b in itertools.pairwise((query, key, value)):
        for m, n in zip(a.shape[:-2], b.shape[:-2], strict=False):
            bool(m == n)
    if mask is not None:
        full = (*query.shape[:-1], key.shape[-2])
        for n, whole in zip(reversed(mask.shape), reversed(full), strict=False):
            bool(n == whole or n == 1)
    bool(key.shape[-2] == value.shape[-2])


def _by_flash_kernel(
    query: TensorProxy,
    key: TensorProxy,
    value: TensorProxy,
    mask: TensorProxy | None,
    dropout_p: float,
    is_causal: bool,
    scale: float | None,
) -> TensorProxy:
    """Return the attention by torch's kernel for four dimensions.

    Torch 2.15 calls it for three.
    """
    if len(query.shape) == 4:
        return flash_attention_for_cpu(query, key, value, dropout_p, is_causal, attn_mask=mask, scale=scale)[
            0
        ]
    batch = [ltorch.unsqueeze(x, 0) for x in (query, key, value)]
    if mask is not None and len(mask.shape) == 3:
        mask = ltorch.unsqueeze(mask, 0)
    result = flash_attention_for_cpu(*batch, dropout_p, is_causal, attn_mask=mask, scale=scale)[0]
    return ltorch.squeeze(result, 0)


def _stand_in(x: TensorProxy) -> torch.Tensor:
    """Return a tensor of the proxy's shape, on its device, whose rows share the memory of one row."""
    strides = ((0,) * (len(x.shape) - 1) + (1,))[: len(x.shape)]
    return stand_in_tensor(x, str(x.device), size=hint_of, strides=strides, requires_grad=True)


def check_attention_shapes(
    query: TensorProxy, key: TensorProxy, value: TensorProxy, mask: TensorProxy | None
) -> None:
    """Raise OperatorError unless torch's fused kernel takes tensors of these shapes: ``(b, h, l, e)``.

    The heads of the query share the heads of the key and of the value, which have one length ``s``. A mask
    broadcasts to ``(b, h, l, s)``.
    """
    shapes = query.shape, key.shape, value.shape
    if all(len(shape) == 4 for shape in shapes):
        (b, h, n, e), (bk, hk, s, ek), (bv, hv, sv, ev) = shapes
        same = b == bk == bv and hk == hv and s == sv and e == ek == ev
        of_mask = (b, h, n, s)[-len(mask.shape) :] if mask is not None and len(mask.shape) in (2, 4) else ()
        fits = mask is None or (
            len(of_mask) > 0 and all(x in (1, y) for x, y in zip(mask.shape, of_mask, strict=True))
        )
        if same and fits and (h == hk or (hk > 0 and h % hk == 0)):
            return
    tensors = [query, key, value, *([mask] if mask is not None else [])]
    raise OperatorError(f"attention takes no tensors of shapes {', '.join(str(x.shape) for x in tensors)}")


@without_checks
def _flash_attention_for_cpu(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    dropout_p: float,
    is_causal: bool,
    *,
    attn_mask: torch.Tensor | None,
    scale: float | None,
) -> Any:
    tensors = as_kernels_take(query, key, value)
    kernel = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default
    mask = additive_mask(attn_mask, query)
    return kernel(*tensors, dropout_p, is_causal, attn_mask=mask, scale=scale)


@torchsymbol(id="ltorch.flash_attention_for_cpu", tags=(OpTags.MATMUL_OP,), eager=_flash_attention_for_cpu)
def flash_attention_for_cpu(
    query: TensorProxy,
    key: TensorProxy,
    value: TensorProxy,
    dropout_p: float,
    is_causal: bool,
    *,
    attn_mask: TensorProxy | None,
    scale: float | None,
) -> tuple[TensorProxy, TensorProxy]:
    """Attention, and the logarithms of the sums that softmax divides by, ``(b, h, l)``.

    Dao et al., FlashAttention (2022).
    """
    return _with_sums(query, key, value, attn_mask, is_causal, scale)


def _with_sums(
    query: TensorProxy,
    key: TensorProxy,
    value: TensorProxy,
    attn_mask: TensorProxy | None,
    is_causal: bool,
    scale: float | None,
) -> tuple[TensorProxy, TensorProxy]:
    """Return the attention of four dimensions, and the logarithms of the sums, ``(b, h, l)``."""
    check_attention_shapes(query, key, value, attn_mask)
    key, value = by_query_head(key, query), by_query_head(value, query)
    weights = attention_weights(query, key, attn_mask, is_causal, scale)
    scores = masked_scores(computed_in(query), computed_in(key), attn_mask, is_causal, scale)
    return ltorch.matmul(weights, value), prims.detach(ltorch.logsumexp(scores, -1))


@without_checks
def _fused_attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    is_causal: bool,
    *,
    attn_mask: torch.Tensor | None,
    scale: float | None,
    kernel: int,
) -> Any:
    tensors = as_kernels_take(query, key, value)
    return KERNELS_ON_CUDA[kernel].forward(*tensors, additive_mask(attn_mask, query), is_causal, scale)


@torchsymbol(id="ltorch.fused_attention", layout=BY_DEVICE, tags=(OpTags.MATMUL_OP,), eager=_fused_attention)
def fused_attention(
    query: TensorProxy,
    key: TensorProxy,
    value: TensorProxy,
    is_causal: bool,
    *,
    attn_mask: TensorProxy | None,
    scale: float | None,
    kernel: int,
) -> tuple[TensorProxy, TensorProxy]:
    """Attention on a GPU, and the logarithms of the sums that softmax divides by, float32.

    ``query: (b, h, l, e)``, ``key`` and ``value: (b, k, s, e)``. ``kernel`` is one of `KERNELS_ON_CUDA`,
    which says the shape of the logarithms. Dao et al., FlashAttention (2022); Rabe and Staats, Self-attention
    Does Not Need O(n²) Memory (2021).
    """
    result, sums = _with_sums(query, key, value, attn_mask, is_causal, scale)
    sums = ltorch.to(sums, dtypes.float32.torch_dtype)
    shape = KERNELS_ON_CUDA[kernel].sums(query.shape)
    if len(shape) == 3:
        sums = ltorch.pad(sums, (0, shape[-1] - sums.shape[-1]))
    return result, ltorch.reshape(sums, shape)
