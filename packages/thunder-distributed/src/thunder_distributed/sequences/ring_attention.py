"""Attention over a sequence that is divided between processes: keys and values go around a ring.

    y = ring_attention(q, k, v, None, '0', 'zigzag', True, 0.125)

Each process has its part of the queries, and sees the keys and values of one process after the other (Liu
et al., Ring attention with blockwise transformers, arXiv:2310.01889). The results of blocks are merged by
their log-sum-exps (Milakov and Gimelshein, Online normalizer calculation for softmax, arXiv:1805.02867), in
float32, or in float64 for float64. The backward computes the probabilities of a block again from the
log-sum-exp of all (Dao et al., FlashAttention, arXiv:2205.14135, algorithm 4); the gradients of keys and
values go around with them.

Causal blocks that are above the diagonal are not computed. With the zigzag arrangement each process computes
as many as the others.

Shapes: q (*, h, m, d), k (*, g, n, d), v (*, g, n, e) with h a multiple of g; mask (*, m or 1, N) for the
rows of this process, and all N keys.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
import torch.distributed as dist

import thunder.torch as ltorch
from thunder import TensorProxy
from thunder.core import dtypes
from thunder.core.symbol import Symbol
from thunder.core.tags import OpTags

from ..collectives import ex
from ..exchanges import rotate
from ..process_groups import group_named, group_size
from .parts import chunks_of

__all__ = ["RINGS", "attention_block", "attention_block_backward", "merge_blocks", "ring_attention"]


_aten: Any = torch.ops.aten


# -- one block -----------------------------------------------------------------------------------------------


def _accumulating(dtype: Any) -> Any:
    return dtypes.to_dtype(torch.float64 if dtype == dtypes.to_dtype(torch.float64) else torch.float32)


def _block_meta(q: Any, k: Any, v: Any, mask: Any, is_causal: bool, scale: float) -> Any:
    dtype = _accumulating(q.dtype)
    out = TensorProxy(like=q, shape=(*q.shape[:-1], v.shape[-1]), dtype=dtype)
    return out, TensorProxy(like=q, shape=tuple(q.shape[:-1]), dtype=dtype)


def _wide(t: torch.Tensor) -> torch.Tensor:
    return t if t.dtype is torch.float64 else t.to(torch.float32)


def _grouped(t: torch.Tensor, groups: int) -> torch.Tensor:
    """Return a tensor (*, h, m, d) as (*, groups, h / groups, m, d)."""
    grouped: torch.Tensor = t.unflatten(-3, (groups, t.shape[-3] // groups))
    return grouped


def _scores(
    q: torch.Tensor, k: torch.Tensor, mask: torch.Tensor | None, is_causal: bool, scale: float
) -> torch.Tensor:
    """Return the scaled and masked products of queries and keys: (*, g, h / g, m, n)."""
    groups = k.shape[-3]
    scores = _grouped(_wide(q), groups) @ _wide(k).unsqueeze(-3).mT * scale
    if is_causal:
        allowed = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).tril()
        scores = scores.masked_fill(~allowed, -math.inf)
    if mask is not None:
        mask = mask.expand(*q.shape[:-1], k.shape[-2]).unflatten(-3, scores.shape[-4:-2])
        scores = scores.masked_fill(~mask, -math.inf) if mask.dtype is torch.bool else scores + mask
    return scores


def _probabilities(scores: torch.Tensor, lse: torch.Tensor) -> torch.Tensor:
    """Return the exponentials relative to the log-sum-exps; 0 in rows where nothing is allowed."""
    return torch.exp(scores - lse.masked_fill(lse == -math.inf, 0.0).unsqueeze(-1))


def _has_kernel(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor | None) -> bool:
    """Return whether torch's kernel of the CPU computes a block.

    It accumulates in its own dtype, so that it is not for narrower ones, and knows heads that share keys.
    """
    return (
        mask is None
        and q.device.type == "cpu"
        and q.dtype in (torch.float32, torch.float64)
        and q.ndim == 4
        and q.shape[-1] == v.shape[-1]
        and all(t.numel() and t.stride(-1) == 1 for t in (q, k, v))
    )


def _block(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    mask: torch.Tensor | None,
    is_causal: bool,
    scale: float,
) -> tuple[torch.Tensor, torch.Tensor]:
    if _has_kernel(q, k, v, mask):
        out, lse = _aten._scaled_dot_product_flash_attention_for_cpu(q, k, v, 0.0, is_causal, scale=scale)
        return out, lse.contiguous()
    scores = _scores(q, k, mask, is_causal, scale)
    lse = torch.logsumexp(scores, -1)
    out = _probabilities(scores, lse) @ _wide(v).unsqueeze(-3)
    return out.flatten(-4, -3), lse.flatten(-3, -2)


def _block_backward_meta(
    g: Any, out: Any, lse: Any, q: Any, k: Any, v: Any, mask: Any, is_causal: bool, scale: float
) -> Any:
    return tuple(TensorProxy(like=t, dtype=_accumulating(q.dtype), requires_grad=False) for t in (q, k, v))


def _block_backward(
    g: torch.Tensor,
    out: torch.Tensor,
    lse: torch.Tensor,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    mask: torch.Tensor | None,
    is_causal: bool,
    scale: float,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    if _has_kernel(q, k, v, mask):
        backward: Any = _aten._scaled_dot_product_flash_attention_for_cpu_backward
        gradients: tuple[torch.Tensor, torch.Tensor, torch.Tensor] = backward(
            g if g.stride(-1) == 1 else g.contiguous(), q, k, v, out, lse, 0.0, is_causal, scale=scale
        )
        return gradients
    groups = k.shape[-3]
    g, out, lse = _grouped(_wide(g), groups), _grouped(_wide(out), groups), lse.unflatten(-2, (groups, -1))
    p = _probabilities(_scores(q, k, mask, is_causal, scale), lse)
    dv = (p.mT @ g).sum(-3)
    dp = g @ _wide(v).unsqueeze(-3).mT
    ds = p * (dp - (g * out).sum(-1, keepdim=True)) * scale
    dq = (ds @ _wide(k).unsqueeze(-3)).flatten(-4, -3)
    dk = (ds.mT @ _grouped(_wide(q), groups)).sum(-3)
    return dq, dk, dv


def _merge_meta(out: Any, lse: Any, other: Any, other_lse: Any) -> Any:
    return TensorProxy(like=out), TensorProxy(like=lse)


def _merge(
    out: torch.Tensor, lse: torch.Tensor, other: torch.Tensor, other_lse: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the attention to the keys of two blocks, from that to each of them."""
    both = torch.logaddexp(lse, other_lse)
    return out * _probabilities(lse.unsqueeze(-1), both) + other * _probabilities(
        other_lse.unsqueeze(-1), both
    ), both


# The gradient of a ring is that of all its blocks, so those of a block and of a merge are not declared.
_KERNEL = (OpTags.DONT_RECOMPUTE_IN_BACKWARD,)
attention_block: Symbol = ex.register_operator("attention_block", meta=_block_meta, fn=_block, tags=_KERNEL)
attention_block_backward: Symbol = ex.register_operator(
    "attention_block_backward", meta=_block_backward_meta, fn=_block_backward, tags=_KERNEL
)
merge_blocks: Symbol = ex.register_operator("merge_blocks", meta=_merge_meta, fn=_merge)


# -- the ring ------------------------------------------------------------------------------------------------


class _Block(NamedTuple):
    """A record of the halves of queries and keys with which a process computes, for the keys of another one.

    A half is None for all, 0 for the first, 1 for the second.
    """

    queries: int | None
    keys: int | None
    is_causal: bool


def _block_for(rank: int, source: int, arrangement: str, is_causal: bool) -> _Block | None:
    """Return what a process computes with the keys of a source; None if all are after its queries."""
    if not is_causal or source == rank:
        return _Block(None, None, is_causal)
    if arrangement == "plain":
        return _Block(None, None, False) if source < rank else None
    # chunks r and 2n - 1 - r attend to those of s: only to chunk s if s < r, only from the later one if s > r
    return _Block(None, 0, False) if source < rank else _Block(1, None, False)


def _half(t: Any, half: int | None, dim: int = -2) -> Any:
    if half is None:
        return t
    width = t.shape[dim] // 2
    return ltorch.narrow(t, dim, half * width, width)


def _columns(mask: Any, source: int, size: int, arrangement: str) -> Any:
    """Return the columns of a mask for the keys of a source."""
    if mask is None or mask.shape[-1] == 1:
        return mask
    chunks, count = chunks_of(arrangement, source, size)
    width = mask.shape[-1] // count
    parts = [ltorch.narrow(mask, -1, chunk * width, width) for chunk in chunks]
    return parts[0] if len(parts) == 1 else ltorch.cat(parts, -1)


def _steps(k: Any, v: Any, group: str) -> Iterator[tuple[int, Any, Any]]:
    """Yield each process with its keys and values, this one first; the next ones are on their way."""
    size, rank = group_size(group), dist.get_rank(group_named(group))
    packed = ltorch.cat((ltorch.reshape(k, (-1,)), ltorch.reshape(v, (-1,)))) if size > 1 else None
    for step in range(size):
        following = rotate(packed, group) if step + 1 < size else None
        if step:
            keys = k.numel()
            k = ltorch.reshape(ltorch.narrow(packed, 0, 0, keys), tuple(k.shape))
            v = ltorch.reshape(ltorch.narrow(packed, 0, keys, v.numel()), tuple(v.shape))
        yield (rank - step) % size, k, v
        packed = following


def _forward(
    q: Any, k: Any, v: Any, mask: Any, group: str, arrangement: str, is_causal: bool, scale: float
) -> Any:
    size, rank = group_size(group), dist.get_rank(group_named(group))
    out = lse = None
    for source, keys, values in _steps(k, v, group):
        block = _block_for(rank, source, arrangement, is_causal)
        if block is None:
            continue
        some, some_lse = attention_block(
            _half(q, block.queries),
            _half(keys, block.keys),
            _half(values, block.keys),
            _columns(mask, source, size, arrangement),
            block.is_causal,
            scale,
        )
        if out is None:
            out, lse = some, some_lse
        elif block.queries is None:
            out, lse = merge_blocks(out, lse, some, some_lse)
        else:
            late, late_lse = merge_blocks(_half(out, 1), _half(lse, 1, -1), some, some_lse)
            out = ltorch.cat((_half(out, 0), late), -2)
            lse = ltorch.cat((_half(lse, 0, -1), late_lse), -1)
    return ltorch.to(out, q.dtype), lse


def _padded(t: Any, half: int | None, like: Any) -> Any:
    """Return a gradient of one half as one of all, with zeros."""
    if half is None:
        return t
    zeros = ltorch.zeros_like(t)
    return ltorch.cat((zeros, t) if half else (t, zeros), -2)


def _backward(
    g: Any,
    out: Any,
    lse: Any,
    q: Any,
    k: Any,
    v: Any,
    mask: Any,
    group: str,
    arrangement: str,
    is_causal: bool,
    scale: float,
) -> Any:
    size, rank = group_size(group), dist.get_rank(group_named(group))
    dq = carried = None
    for source, keys, values in _steps(k, v, group):
        if carried is not None:
            carried = rotate(carried, group)
        block = _block_for(rank, source, arrangement, is_causal)
        if block is None:
            continue
        queries = block.queries
        more, dk, dv = attention_block_backward(
            *(_half(t, queries) for t in (g, out)),
            _half(lse, queries, -1),
            _half(q, queries),
            _half(keys, block.keys),
            _half(values, block.keys),
            _columns(mask, source, size, arrangement),
            block.is_causal,
            scale,
        )
        more = _padded(more, queries, q)
        dq = more if dq is None else dq + more
        flat = [ltorch.reshape(_padded(t, block.keys, t), (-1,)) for t in (dk, dv)]
        packed = ltorch.cat(flat)
        carried = packed if carried is None else carried + packed
    if size > 1:
        carried = rotate(carried, group)
    keys = k.numel()
    dk = ltorch.reshape(ltorch.narrow(carried, 0, 0, keys), tuple(k.shape))
    dv = ltorch.reshape(ltorch.narrow(carried, 0, keys, v.numel()), tuple(v.shape))
    return ltorch.to(dq, q.dtype), ltorch.to(dk, k.dtype), ltorch.to(dv, v.dtype)


def _gradient(c: Any) -> dict[str, Any]:
    out, lse = c.out
    dq, dk, dv = ring_attention_backward(
        c.g[0], out, lse, c.q, c.k, c.v, c.mask, c.group, c.arrangement, c.is_causal, c.scale
    )
    return {"q": dq, "k": dk, "v": dv}


ring_attention_backward: Symbol = ex.register_operator(
    "ring_attention_backward", like=_backward, tags=(OpTags.NONDIFFERENTIABLE,)
)
ring_attention: Symbol = ex.register_operator("ring_attention", like=_forward, tags=_KERNEL, vjp=_gradient)

#: the operators that consist of collectives and blocks
RINGS = frozenset({ring_attention.id, ring_attention_backward.id})
