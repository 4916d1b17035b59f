"""Batching rules of reductions, scans and sorting."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from thunder.base.pytree import tree_map
from thunder.ir.proxies import TensorProxy
from thunder.ops.batched_call import BatchedCall, shifted
from thunder.ops.primitive_names import prims


def over_dims(c: BatchedCall) -> Any:
    """Reduce dimensions of the examples."""
    return c.again(dims=shifted(c.dims))


def position(c: BatchedCall) -> Any:
    """Find a position along a dimension of the examples, or among all their elements."""
    if c.dim is None or not c.rank(c.a):
        return c.sym(prims.reshape(c.a, (c.size, math.prod(c.shape(c.a)))), 1)
    return c.sym(c.a, c.dim + 1)


def of_one_dim(c: BatchedCall) -> Any:
    """Scan or sort along a dimension of the examples."""
    return along_dim(c, c.a, lambda a, dim: c.again(a=a, dim=dim), c.dim)


def along_dim(c: BatchedCall, a: TensorProxy, fn: Callable[[TensorProxy, int], Any], dim: int) -> Any:
    """Return ``fn(a, dim)`` for a dimension of each example; a scalar is a vector of one element."""
    if c.rank(a):
        return fn(a, dim % c.rank(a) + 1)
    results = fn(prims.reshape(a, (c.size, 1)), 1)
    return tree_map(lambda r: prims.reshape(r, (c.size,)) if isinstance(r, TensorProxy) else r, results)
