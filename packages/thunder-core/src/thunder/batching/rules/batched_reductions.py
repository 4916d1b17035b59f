"""Batching rules of reductions, scans and sorting."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from thunder.base.pytree import tree_map
from thunder.batching.batched_call import BatchedCall, batches, shifted
from thunder.ir.proxies import TensorProxy
from thunder.ops import prims


@batches(
    *(f"prims.{name}" for name in ("amax", "amin", "prod", "sum", "any", "all", "var", "std", "var_mean"))
)
def _over_dims(c: BatchedCall) -> Any:
    return c.again(dims=shifted(c.dims))


@batches("prims.argmax", "prims.argmin")
def _position(c: BatchedCall) -> Any:
    if c.dim is None or not c.rank(c.a):
        return c.sym(prims.reshape(c.a, (c.size, math.prod(c.shape(c.a)))), 1)
    return c.sym(c.a, c.dim + 1)


@batches(*(f"prims.{name}" for name in ("cumsum", "cumprod", "cummax", "cummin", "topk", "sort")))
def _along_dim(c: BatchedCall) -> Any:
    return along_dim(c, c.a, lambda a, dim: c.again(a=a, dim=dim), c.dim)


def along_dim(c: BatchedCall, a: TensorProxy, fn: Callable[[TensorProxy, int], Any], dim: int) -> Any:
    """Return ``fn(a, dim)`` for a dimension of each example; a scalar is a vector of one element."""
    if c.rank(a):
        return fn(a, dim % c.rank(a) + 1)
    results = fn(prims.reshape(a, (c.size, 1)), 1)
    return tree_map(lambda r: prims.reshape(r, (c.size,)) if isinstance(r, TensorProxy) else r, results)
