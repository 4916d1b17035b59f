"""Attention in blocks of queries and keys, whose weights are never whole in memory.

The forward keeps a running maximum and sum for each query (Dao et al., FlashAttention, 2022; Milakov and
Gimelshein, Online normalizer calculation for softmax, 2018), the backward computes the weights of a block
again from the saved logarithms of the sums. Blocks that causality or a window excludes are not read.

    s = scale q kᵀ + mask     p = softmax(s)     out = p v
    dv = pᵀ g     dp = g vᵀ     ds = p (dp - D), D = sum(out g)     dq = scale ds k     dk = scale dsᵀ q

Products are accumulated in float32 from factors in the inputs' dtype, as torch's kernels do; `p` and `ds`
are rounded to that dtype as factors. Query i reads key j if j <= i (CAUSAL) and i - j < WINDOW (WINDOW > 0).
A query that reads no key has the result 0, and so have its gradients.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from ..launching import launch
from .bfloat16 import as_factor, stored

__all__ = ["forward", "gradient_of_keys", "gradient_of_queries"]

#: log2(e), since GPUs compute powers of 2
LOG2_E = tl.constexpr(1.4426950408889634)


@triton.jit
def places_of(pointer, first, stride, length, ROWS: tl.constexpr, WIDTH: tl.constexpr, BLOCK: tl.constexpr):
    """Return pointers to a block (ROWS, BLOCK) of a matrix (length, WIDTH) with adjacent columns, and a mask.

    The offset of the first row has 64 bits.
    """
    rows, columns = tl.arange(0, ROWS)[:, None], tl.arange(0, BLOCK)[None, :]
    inside = first + rows < length
    if WIDTH != BLOCK:
        inside = inside & (columns < WIDTH)
    return pointer + tl.cast(first, tl.int64) * stride + (rows * stride + columns), inside


@triton.jit
def read(pointer, first, stride, length, ROWS: tl.constexpr, WIDTH: tl.constexpr, BLOCK: tl.constexpr):
    """Return a block (ROWS, BLOCK) of a matrix (length, WIDTH) with adjacent columns; 0 beyond its edges."""
    places, inside = places_of(pointer, first, stride, length, ROWS, WIDTH, BLOCK)
    return tl.load(places, mask=inside, other=0.0)


@triton.jit
def write(pointer, first, length, values, ROWS: tl.constexpr, WIDTH: tl.constexpr, BLOCK: tl.constexpr):
    """Store a block (ROWS, BLOCK) into a contiguous matrix (length, WIDTH), in its dtype."""
    places, inside = places_of(pointer, first, WIDTH, length, ROWS, WIDTH, BLOCK)
    tl.store(places, values.to(pointer.dtype.element_ty), mask=inside)


@triton.jit
def scores_of(
    q, k, scale, m, n, queries, keys, mask_ptr, mask_row, mask_column,
    MASK: tl.constexpr, CAUSAL: tl.constexpr, WINDOW: tl.constexpr, M: tl.constexpr, N: tl.constexpr,
):  # fmt: skip
    """Return the scores (M, N) of a block, times log2(e), -inf where a query does not read a key.

    m, n: the first query and key; MASK: 0 for none, 1 for bools, which are True where a query reads a key,
    2 for numbers that are added.
    """
    scores = tl.dot(q, tl.trans(k), input_precision="ieee") * (scale * LOG2_E)
    row, column = tl.arange(0, M)[:, None], tl.arange(0, N)[None, :]
    i, j = m + row, n + column
    inside = (i < queries) & (j < keys)
    if MASK != 0:
        mask_ptr += tl.cast(m, tl.int64) * mask_row + tl.cast(n, tl.int64) * mask_column
        values = tl.load(mask_ptr + row * mask_row + column * mask_column, mask=inside, other=0)
        if MASK == 1:
            inside = inside & (values != 0)
        else:
            scores += values.to(tl.float32) * LOG2_E
    if CAUSAL:
        inside = inside & (j <= i)
    if WINDOW > 0:
        inside = inside & (i - j < WINDOW)
    return tl.where(inside, scores, float("-inf"))


@triton.jit
def keys_read(m, keys, CAUSAL: tl.constexpr, WINDOW: tl.constexpr, M: tl.constexpr, N: tl.constexpr):
    """Return the first key, a multiple of N, that a block of M queries reads, and the end of its keys."""
    start, end = 0, keys
    if WINDOW > 0:
        start = tl.maximum(m - WINDOW + 1, 0) // N * N
    if CAUSAL:
        end = tl.minimum(keys, m + M)
    return start, end


@triton.jit
def forward_kernel(
    q_ptr, k_ptr, v_ptr, mask_ptr, out_ptr, sums_ptr, scale,
    q_batch, q_head, q_row, k_batch, k_head, k_row, v_batch, v_head, v_row,
    mask_batch, mask_head, mask_row, mask_column, heads, group, queries, keys,
    MASK: tl.constexpr, CAUSAL: tl.constexpr, WINDOW: tl.constexpr, WIDTH: tl.constexpr, VALUES: tl.constexpr,
    M: tl.constexpr, N: tl.constexpr, E: tl.constexpr, V: tl.constexpr,
):  # fmt: skip
    """Compute M queries of a head: the results, and the logarithms of the sums of exponentials."""
    m, place = tl.program_id(0) * M, tl.program_id(1).to(tl.int64)
    batch, head = place // heads, place % heads
    q = read(q_ptr + batch * q_batch + head * q_head, m, q_row, queries, M, WIDTH, E)
    k_ptr += batch * k_batch + (head // group) * k_head
    v_ptr += batch * v_batch + (head // group) * v_head
    mask_ptr += batch * mask_batch + head * mask_head
    largest = tl.full([M], float("-inf"), tl.float32)
    total = tl.zeros([M], tl.float32)
    result = tl.zeros([M, V], tl.float32)
    start, end = keys_read(m, keys, CAUSAL, WINDOW, M, N)
    for n in range(start, end, N):
        k = read(k_ptr, n, k_row, keys, N, WIDTH, E)
        s = scores_of(
            q, k, scale, m, n, queries, keys, mask_ptr, mask_row, mask_column, MASK, CAUSAL, WINDOW, M, N
        )
        new = tl.maximum(largest, tl.max(s, 1))
        shift = tl.where(new == float("-inf"), 0.0, new)
        p = tl.exp2(s - shift[:, None])
        decay = tl.exp2(largest - shift)
        total = total * decay + tl.sum(p, 1)
        v = read(v_ptr, n, v_row, keys, N, VALUES, V)
        result = tl.dot(p.to(v.dtype), v, result * decay[:, None], input_precision="ieee")
        largest = new
    logarithm = tl.where(largest == float("-inf"), 0.0, largest) + tl.log2(total)
    query = m + tl.arange(0, M)
    tl.store(sums_ptr + place * queries + query, logarithm / LOG2_E, mask=query < queries)
    result = result / tl.where(total == 0.0, 1.0, total)[:, None]
    write(out_ptr + place * queries * VALUES, m, queries, result, M, VALUES, V)


@triton.jit
def weights_of(scores, sums):
    """Return the weights (m, n) from scores times log2(e), and the logarithms of their sums (m,)."""
    return tl.exp2(scores - tl.where(sums == float("-inf"), 0.0, sums * LOG2_E)[:, None])


@triton.jit
def gradient_of_queries_kernel(
    g_ptr, q_ptr, k_ptr, v_ptr, mask_ptr, out_ptr, sums_ptr, dq_ptr, products_ptr, scale,
    g_batch, g_head, g_row, q_batch, q_head, q_row, k_batch, k_head, k_row, v_batch, v_head, v_row,
    mask_batch, mask_head, mask_row, mask_column, heads, group, queries, keys,
    MASK: tl.constexpr, CAUSAL: tl.constexpr, WINDOW: tl.constexpr, WIDTH: tl.constexpr, VALUES: tl.constexpr,
    M: tl.constexpr, N: tl.constexpr, E: tl.constexpr, V: tl.constexpr,
):  # fmt: skip
    """Compute the gradient of M queries of a head, and the products `sum(out g)` of their results."""
    m, place = tl.program_id(0) * M, tl.program_id(1).to(tl.int64)
    batch, head = place // heads, place % heads
    q = read(q_ptr + batch * q_batch + head * q_head, m, q_row, queries, M, WIDTH, E)
    g = read(g_ptr + batch * g_batch + head * g_head, m, g_row, queries, M, VALUES, V)
    out = read(out_ptr + place * queries * VALUES, m, VALUES, queries, M, VALUES, V)
    query = m + tl.arange(0, M)
    products = tl.sum(out.to(tl.float32) * g.to(tl.float32), 1)
    tl.store(products_ptr + place * queries + query, products, mask=query < queries)
    sums = tl.load(sums_ptr + place * queries + query, mask=query < queries, other=float("-inf"))
    k_ptr += batch * k_batch + (head // group) * k_head
    v_ptr += batch * v_batch + (head // group) * v_head
    mask_ptr += batch * mask_batch + head * mask_head
    dq = tl.zeros([M, E], tl.float32)
    start, end = keys_read(m, keys, CAUSAL, WINDOW, M, N)
    for n in range(start, end, N):
        k = read(k_ptr, n, k_row, keys, N, WIDTH, E)
        s = scores_of(
            q, k, scale, m, n, queries, keys, mask_ptr, mask_row, mask_column, MASK, CAUSAL, WINDOW, M, N
        )
        v = read(v_ptr, n, v_row, keys, N, VALUES, V)
        dp = tl.dot(g, tl.trans(v), input_precision="ieee")
        ds = weights_of(s, sums) * (dp - products[:, None])
        dq = tl.dot(ds.to(k.dtype), k, dq, input_precision="ieee")
    write(dq_ptr + place * queries * WIDTH, m, queries, dq * scale, M, WIDTH, E)


@triton.jit
def gradient_of_keys_kernel(
    g_ptr, q_ptr, k_ptr, v_ptr, mask_ptr, sums_ptr, products_ptr, dk_ptr, dv_ptr, scale,
    g_batch, g_head, g_row, q_batch, q_head, q_row, k_batch, k_head, k_row, v_batch, v_head, v_row,
    mask_batch, mask_head, mask_row, mask_column, heads, group, queries, keys,
    MASK: tl.constexpr, CAUSAL: tl.constexpr, WINDOW: tl.constexpr, WIDTH: tl.constexpr, VALUES: tl.constexpr,
    M: tl.constexpr, N: tl.constexpr, E: tl.constexpr, V: tl.constexpr,
):  # fmt: skip
    """Compute the gradients of N keys and values of a head, summed over the query heads that share it."""
    n, place = tl.program_id(0) * N, tl.program_id(1).to(tl.int64)
    batch, kv_head = place // (heads // group), place % (heads // group)
    k = read(k_ptr + batch * k_batch + kv_head * k_head, n, k_row, keys, N, WIDTH, E)
    v = read(v_ptr + batch * v_batch + kv_head * v_head, n, v_row, keys, N, VALUES, V)
    dk = tl.zeros([N, E], tl.float32)
    dv = tl.zeros([N, V], tl.float32)
    start, end = 0, queries
    if CAUSAL:
        start = n // M * M
    if WINDOW > 0:
        end = tl.minimum(queries, n + N + WINDOW - 1)
    for member in range(0, group):
        head = kv_head * group + member
        q_of_head = q_ptr + batch * q_batch + head * q_head
        g_of_head = g_ptr + batch * g_batch + head * g_head
        mask_of_head = mask_ptr + batch * mask_batch + head * mask_head
        saved = (batch * heads + head) * queries
        for m in range(start, end, M):
            q = read(q_of_head, m, q_row, queries, M, WIDTH, E)
            s = scores_of(
                q, k, scale, m, n, queries, keys, mask_of_head, mask_row, mask_column,
                MASK, CAUSAL, WINDOW, M, N,
            )  # fmt: skip
            query = m + tl.arange(0, M)
            p = weights_of(s, tl.load(sums_ptr + saved + query, mask=query < queries, other=float("-inf")))
            g = read(g_of_head, m, g_row, queries, M, VALUES, V)
            dv = tl.dot(tl.trans(p.to(g.dtype)), g, dv, input_precision="ieee")
            products = tl.load(products_ptr + saved + query, mask=query < queries, other=0.0)
            ds = p * (tl.dot(g, tl.trans(v), input_precision="ieee") - products[:, None])
            dk = tl.dot(tl.trans(ds.to(q.dtype)), q, dk, input_precision="ieee")
    write(dk_ptr + place * keys * WIDTH, n, keys, dk * scale, N, WIDTH, E)
    write(dv_ptr + place * keys * VALUES, n, keys, dv, N, VALUES, V)


def forward(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, is_causal: bool, window: int, scale: float
) -> tuple[Tensor, Tensor]:
    """Return the attention (b, h, l, v), and the logarithms of the sums of exponentials (b, h, l), float32.

    query: (b, h, l, e); key: (b, n, s, e), value: (b, n, s, v), where n divides h; mask: bools or numbers
    that broadcast to (b, h, l, s), or None; window: i - j is less for query i and key j, or 0 for no limit.
    """
    weights = Weights(mask, is_causal, window, scale)
    out = _new(query, (*query.shape[:-1], value.shape[-1]))
    sums = torch.empty(query.shape[:-1], dtype=torch.float32, device=query.device)
    _launch(forward_kernel, "forward", (query, key, value), weights, (out, sums))
    return out.to(query.dtype), sums


def gradient_of_queries(
    g: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    out: Tensor,
    sums: Tensor,
    *settings: Any,
) -> tuple[Tensor, Tensor]:
    """Return the gradient of the queries, in their dtype, and `sum(out g)` (b, h, l), in float32.

    g: (b, h, l, v), the gradient of `out`; out and sums: from `forward`; settings: its last arguments.
    """
    result, products = _new(query, query.shape), torch.empty_like(sums)
    saved = (as_factor(out.contiguous()), sums)
    weights = Weights(mask, *settings)
    _launch(
        gradient_of_queries_kernel, "queries", (g, query, key, value), weights, (*saved, result, products)
    )
    return result.to(query.dtype), products


def gradient_of_keys(
    g: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    sums: Tensor,
    products: Tensor,
    *settings: Any,
) -> tuple[Tensor, Tensor]:
    """Return the gradients of keys and values, in their dtype; products: from `gradient_of_queries`."""
    results = _new(key, key.shape), _new(value, value.shape)
    weights = Weights(mask, *settings)
    _launch(gradient_of_keys_kernel, "keys", (g, query, key, value), weights, (sums, products, *results))
    of_keys, of_values = results
    return of_keys.to(key.dtype), of_values.to(value.dtype)


@dataclass(frozen=True)
class Weights:
    """Which keys a query reads, and the factor of their products: the last arguments of `forward`."""

    mask: Tensor | None
    is_causal: bool
    window: int
    scale: float


def _launch(
    kernel: Any, part: str, strided: Sequence[Tensor], weights: Weights, contiguous: Sequence[Tensor]
) -> None:
    """Launch a kernel on tensors whose strides it takes, of which queries, keys and values are last.

    It takes contiguous tensors after the mask. A program computes a block of keys (part "keys") or queries.
    """
    strided = [as_factor(x if x.stride(-1) == 1 else x.contiguous()) for x in strided]
    query, key, value = strided[-3:]
    settings = _settings(part, query, value, weights)
    computed, block = (key, settings["N"]) if part == "keys" else (query, settings["M"])
    programs = (triton.cdiv(computed.shape[2], block), computed.shape[0] * computed.shape[1])
    if 0 in programs:
        return
    mask, mask_strides = _as_expanded(weights.mask, query, key)
    launch(
        kernel[programs],
        settings,
        *(*strided, mask, *contiguous, weights.scale),
        *(stride for x in strided for stride in x.stride()[:3]),
        *mask_strides,
        *_sizes(query, key),
    )


def _new(like: Tensor, shape: Any) -> Tensor:
    """Return memory for a result in the dtype of a tensor."""
    return torch.empty(shape, dtype=stored(like.dtype), device=like.device)


def _as_expanded(mask: Tensor | None, query: Tensor, key: Tensor) -> tuple[Tensor, tuple[int, ...]]:
    """Return the mask, or a tensor in its place that is not read, and its strides for (b, h, l, s)."""
    if mask is None:
        return query, (0, 0, 0, 0)
    return mask, mask.expand(*query.shape[:3], key.shape[2]).stride()


def _sizes(query: Tensor, key: Tensor) -> tuple[int, int, int, int]:
    heads = query.shape[1]
    return heads, heads // max(key.shape[1], 1), query.shape[2], key.shape[2]


#: greatest head size, whether in float32, part → block of queries, block of keys, warps
_BLOCKS = {
    (64, False): {"forward": (128, 64, 4), "queries": (64, 32, 4), "keys": (32, 64, 4)},
    (128, False): {"forward": (64, 64, 8), "queries": (64, 32, 8), "keys": (32, 64, 8)},
    (256, False): {"forward": (32, 32, 8), "queries": (32, 32, 8), "keys": (16, 32, 8)},
    (64, True): {"forward": (32, 32, 4), "queries": (32, 32, 4), "keys": (16, 32, 4)},
    (128, True): {"forward": (16, 32, 8), "queries": (16, 32, 8), "keys": (16, 16, 8)},
}


def _settings(part: str, query: Tensor, value: Tensor, weights: Weights) -> dict[str, Any]:
    """Return the constants of a launch; blocks are such that no registers are spilled."""
    width, values = (max(16, triton.next_power_of_2(x.shape[-1])) for x in (query, value))
    size = min(size for size, _ in _BLOCKS if max(width, values) <= size)
    queries, keys, warps = _BLOCKS[size, query.dtype is torch.float32][part]
    return {
        "MASK": 0 if weights.mask is None else 1 if weights.mask.dtype is torch.bool else 2,
        "CAUSAL": weights.is_causal,
        "WINDOW": weights.window,
        "WIDTH": query.shape[-1],
        "VALUES": value.shape[-1],
        "M": queries,
        "N": keys,
        "E": width,
        "V": values,
        "num_warps": warps,
        "num_stages": 2,
    }
