"""Batching rules of primitives of neural networks: embeddings, normalisation with running statistics."""

from __future__ import annotations

import math
from typing import Any

from thunder.base.dtypes import int64
from thunder.ops.batched_call import BatchedCall, BatchingRefused, moved
from thunder.ops.primitive_names import prims


def embedding(c: BatchedCall) -> Any:
    """Look up rows, which with batched weights are gathered."""
    if not c.is_batched(c.weight):
        return c.again()
    if c.padding_idx is not None or c.max_norm is not None or c.scale_grad_by_freq:
        return NotImplemented
    index = c.full(c.arguments["a"])
    rows = prims.reshape(index, (c.size, math.prod(index.shape[1:])))
    places = prims.broadcast_in_dim(rows, (*rows.shape, c.weight.shape[2]), (0, 1))
    return prims.reshape(prims.gather(c.weight, places, 1), (*index.shape, c.weight.shape[2]))


def embedding_backward(c: BatchedCall) -> Any:
    """Add up the gradients of the rows of each example."""
    if c.scale_grad_by_freq or c.sparse:
        return NotImplemented
    grad, index = c.full(c.grad), c.full(c.indices)
    count, width = math.prod(index.shape[1:]), grad.shape[-1]
    grad = prims.reshape(grad, (c.size, count, width))
    index = prims.reshape(index, (c.size, count))
    places = prims.broadcast_in_dim(index, grad.shape, (0, 1))
    if c.padding_idx is not None:
        padding = c.padding_idx % c.num_weights
        grad = prims.where(prims.eq(places, padding), 0.0, grad)
    total = prims.full((c.size, c.num_weights, width), 0.0, device=grad.device, dtype=grad.dtype)
    places = places if places.dtype is int64 else prims.convert_element_type(places, int64)
    return prims.scatter_add(total, places, grad, 1)


def statistics_update(c: BatchedCall) -> Any:
    """Normalise by batched statistics; raise BatchingRefused for others, which the examples would share."""
    _check_statistics(c)
    return _normalised(c)


def _check_statistics(c: BatchedCall) -> None:
    if not c.is_batched(c.running_mean) or not c.is_batched(c.running_var):
        raise BatchingRefused(
            "Batch norm got a batched tensor as input while the running_mean or running_var, which will be "
            "updated in place, were not batched.\nIf you are using a module and do not need eval mode, "
            "please set `track_running_stats` to be False.",
            hint="Call the module in eval mode, or batch its running statistics.",
        )


def _normalised(c: BatchedCall) -> Any:
    """Fold the batch into the channels."""
    if c.rank(c.a) < 2:
        return NotImplemented
    channels = c.shape(c.a)[1]
    a = moved(c.full(c.a), 0, 1)
    shape = tuple(a.shape)
    a = prims.reshape(a, (shape[0], c.size * channels, *shape[3:]))
    vectors = {
        name: None
        if c.arguments[name] is None
        else prims.reshape(c.full(c.arguments[name]), (c.size * channels,))
        for name in ("running_mean", "running_var", "weight", "bias")
    }
    out, *statistics = c.again(a=a, **vectors)
    out = moved(prims.reshape(out, shape), 1, 0)
    return (out, *(prims.reshape(s, (c.size, channels)) for s in statistics))
