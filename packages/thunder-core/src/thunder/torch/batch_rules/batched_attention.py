"""Batching rule of attention."""

from __future__ import annotations

from typing import Any

from thunder.ir.proxies import TensorProxy
from thunder.ops import prims
from thunder.ops.batched_call import BatchedCall
from thunder.torch.namespace import ltorch


def attention(c: BatchedCall) -> Any:
    """Fold the batch into the batch of query, key and value, so that the same kernels take the call."""
    parts = (c.query, c.key, c.value)
    mask = c.attn_mask
    if c.dropout_p > 0.0 or not all(c.rank(x) in (3, 4) for x in parts) or len({*map(c.rank, parts)}) > 1:
        return NotImplemented
    if any(c.shape(x)[:-3] != c.shape(c.query)[:-3] for x in parts):
        return NotImplemented
    rank = c.rank(c.query)
    if mask is not None:
        leading = (*c.shape(c.query)[:-3], *c.shape(c.query)[-3:-1], c.shape(c.key)[-2])
        missing = rank - c.rank(mask)
        mask = c.full(mask)
        mask = prims.reshape(mask, (c.size, *(1,) * missing, *mask.shape[1:]))
        mask = _folded(ltorch.expand(mask, c.size, *leading), rank)
    query, key, value = (_folded(c.full(x), rank) for x in parts)
    out = ltorch.scaled_dot_product_attention(
        query, key, value, mask, 0.0, c.is_causal, scale=c.scale, enable_gqa=c.enable_gqa
    )
    return prims.reshape(out, (c.size, *c.output.shape)) if rank == 4 else out


def _folded(x: TensorProxy, rank: int) -> TensorProxy:
    if rank < 4:
        return x
    return prims.reshape(x, (x.shape[0] * x.shape[1], *x.shape[2:]))
