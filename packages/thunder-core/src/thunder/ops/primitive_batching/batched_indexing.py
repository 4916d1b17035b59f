"""Batching rules of primitives that gather, scatter and write at indices.

Indices into batched tensors are not offset into one flat dimension: an index outside of its example raises,
as in eager, and reads no other example.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from thunder.base.dtypes import bool8, int64
from thunder.ir.proxies import TensorProxy
from thunder.ops.batched_call import BatchedCall, shifted
from thunder.ops.primitive_names import prims


def _as_vector(c: BatchedCall, x: Any) -> Any:
    """Return a batched tensor of scalars as one of vectors of one element; others unchanged."""
    if isinstance(x, TensorProxy) and len(x.shape) == 1:
        return prims.reshape(x, (c.size, 1))
    return x


def _with_vectors(c: BatchedCall, fn: Callable[..., Any], *tensors: Any) -> Any:
    """Return ``fn`` of batched tensors of at least one dimension, in the shape of the call's result."""
    out = fn(*(_as_vector(c, c.full(t)) for t in tensors))
    shape = (c.size, *c.output.shape)
    return out if tuple(out.shape) == shape else prims.reshape(out, shape)


def gather(c: BatchedCall) -> Any:
    """Gather along a dimension of the examples."""
    return _with_vectors(c, lambda a, i: c.sym(a, i, c.dim + 1), c.a, c.index)


def scatter(c: BatchedCall) -> Any:
    """Scatter along a dimension of the examples."""
    source = list(c.arguments)[2]
    return _with_vectors(
        c, lambda a, i, source: c.sym(a, i, source, c.dim + 1), c.a, c.index, c.arguments[source]
    )


def _at_rows(c: BatchedCall, rows: TensorProxy, a: TensorProxy, dim: int) -> TensorProxy:
    """Return ``rows: (B, k)`` as indices of whole slices of ``a: (B, *)`` along ``dim`` of its examples."""
    k, shape = rows.shape[1], tuple(a.shape)
    whole = (*shape[: dim + 1], k, *shape[dim + 2 :])
    return prims.broadcast_in_dim(rows, whole, (0, dim + 1))


def take(c: BatchedCall) -> Any:
    """Take slices of the examples, by the same indices or by those of each example."""
    if not c.is_batched(c.index):
        return prims.take(c.a, c.index, c.dim + 1) if c.rank(c.a) else NotImplemented
    a = _as_vector(c, c.full(c.a))
    rows = prims.reshape(c.index, (c.size, math.prod(c.shape(c.index))))
    out = prims.gather(a, _at_rows(c, rows, a, c.dim), c.dim + 1)
    return prims.reshape(out, (c.size, *c.output.shape))


def indexed_write(c: BatchedCall) -> Any:
    """Write slices of the examples, by the same indices or by those of each example."""
    if not c.rank(c.a) or not c.rank(c.value):
        return NotImplemented
    a, value = c.full(c.a), c.full(c.value)
    if not c.is_batched(c.index):
        return c.sym(a, c.index, value, c.dim + 1)
    rows = _at_rows(c, _as_vector(c, c.index), a, c.dim)
    write = prims.scatter_add if c.sym.id == "prims.index_add" else prims.scatter
    return write(a, rows, value, c.dim + 1)


def dynamic_select(c: BatchedCall) -> Any:
    """Select a slice of each example."""
    if not c.is_batched(c.index):
        return prims.dynamic_select(c.a, c.index, c.dim + 1)
    a, index = c.full(c.a), c.index
    index = prims.where(prims.lt(index, 0), prims.add(index, a.shape[c.dim + 1]), index)
    index = index if index.dtype is int64 else prims.convert_element_type(index, int64)
    out = prims.gather(a, _at_rows(c, _as_vector(c, index), a, c.dim), c.dim + 1)
    return prims.reshape(out, (c.size, *c.output.shape))


class _Places:
    """The places of ``a[indices]`` for all examples.

    ``a`` is permuted so that the indexed dimensions follow the batch, and the index of the example comes
    first: the result is ``(B, *index shape, *other dimensions)``, in which torch has the dimensions of the
    indices where they were, if they are adjacent.
    """

    def __init__(self, c: BatchedCall, a: TensorProxy, indices: Sequence[Any]) -> None:
        rank = len(a.shape) - 1
        self.at = [d for d, i in enumerate(indices) if i is not None]
        others = [d for d in range(rank) if d not in self.at]
        self.order = (0, *shifted(self.at), *shifted(others))
        used = [indices[d] for d in self.at]
        ranks = [c.rank(i) for i in used]
        self.index_rank = max(ranks)
        examples = prims.iota(c.size, start=0, step=1, device=a.device, dtype=int64)
        examples = prims.reshape(examples, (c.size, *(1,) * self.index_rank))
        self.indices = [examples, *(c.with_rank(i, self.index_rank) for i in used)]
        is_adjacent = self.at == list(range(self.at[0], self.at[-1] + 1))
        #: how many dimensions of ``a`` come before those of the indices in torch's result
        self.before = self.at[0] if is_adjacent else 0
        self.rank = 1 + self.index_rank + len(others)

    def permuted(self, a: TensorProxy) -> TensorProxy:
        """Return ``a`` with the indexed dimensions after the batch."""
        return prims.transpose(a, self.order)

    def restored(self, a: TensorProxy) -> TensorProxy:
        """Return the permuted ``a`` with its dimensions in order."""
        return prims.transpose(a, tuple(self.order.index(d) for d in range(len(self.order))))

    def _positions(self) -> list[int]:
        """Return, for each dimension of torch's result, its position in the result of ``indices``."""
        own = list(range(1, 1 + self.index_rank))
        others = list(range(1 + self.index_rank, self.rank))
        return [0, *others[: self.before], *own, *others[self.before :]]

    def as_result(self, x: TensorProxy) -> TensorProxy:
        """Return what the indices select with its dimensions in torch's order."""
        return prims.transpose(x, tuple(self._positions()))

    def as_selected(self, x: TensorProxy) -> TensorProxy:
        """Return a tensor in torch's order with its dimensions as the indices select them."""
        positions = self._positions()
        return prims.transpose(x, tuple(positions.index(d) for d in range(self.rank)))


def _has_masks(indices: Sequence[Any]) -> bool:
    return any(i is not None and i.dtype is bool8 for i in indices)


def index(c: BatchedCall) -> Any:
    """Index the dimensions after the batch, with the number of the example as one more index."""
    used = [i for i in c.indices if i is not None]
    if len(used) == 1 and not c.is_batched(used[0]):
        return prims.index(c.a, [None, *c.indices])
    if _has_masks(c.indices) or not used:
        return NotImplemented
    a = c.full(c.a)
    places = _Places(c, a, c.indices)
    return places.as_result(prims.index(places.permuted(a), places.indices))


def index_put(c: BatchedCall) -> Any:
    """Write at indices, with the number of the example as one more index."""
    if _has_masks(c.indices) or all(i is None for i in c.indices):
        return NotImplemented
    a = c.full(c.a)
    places = _Places(c, a, c.indices)
    target = places.permuted(a)
    shapes = [tuple(i.shape) for i in places.indices]
    selected = (*_broadcast(shapes), *target.shape[len(places.indices) :])
    whole = [selected[d] for d in places._positions()]
    values = c.full(c.values)
    values = prims.reshape(values, (c.size, *(1,) * (len(whole) - len(values.shape)), *values.shape[1:]))
    values = places.as_selected(prims.broadcast_in_dim(values, whole, tuple(range(len(whole)))))
    return places.restored(prims.index_put(target, places.indices, values, c.accumulate))


def _broadcast(shapes: list[tuple[int, ...]]) -> tuple[int, ...]:
    rank = max(map(len, shapes))
    padded = [(1,) * (rank - len(shape)) + shape for shape in shapes]
    return tuple(max(sizes) if 0 not in sizes else 0 for sizes in zip(*padded, strict=True))


def copy_with_setitem(c: BatchedCall) -> Any:
    """Write at slices and integers, which mean the same for each example."""
    key = tuple(c.key) if isinstance(c.key, tuple | list) else (c.key,)
    if not all(k is None or k is Ellipsis or type(k) in (int, slice) for k in key):
        return NotImplemented
    if not isinstance(c.value, TensorProxy):
        return prims.copy_with_setitem(c.a, (slice(None), *key), c.value)
    integers = sum(type(k) is int for k in key)
    rank = c.rank(c.a) - integers + sum(k is None for k in key)
    value = c.full(c.value)
    if len(value.shape) - 1 > rank:
        return NotImplemented
    value = prims.reshape(value, (c.size, *(1,) * (rank + 1 - len(value.shape)), *value.shape[1:]))
    return prims.copy_with_setitem(c.full(c.a), (slice(None), *key), value)
