"""Batching rules of primitives that change shapes, memory and dtypes."""

from __future__ import annotations

import math
from typing import Any

from thunder.ir.proxies import TensorProxy
from thunder.ops.batched_call import BatchedCall, shifted
from thunder.ops.primitive_names import prims


def broadcast_in_dim(c: BatchedCall) -> TensorProxy:
    """Broadcast the dimensions after the batch."""
    return prims.broadcast_in_dim(c.a, (c.size, *c.arguments["shape"]), (0, *shifted(c.broadcast_dimensions)))


def cat(c: BatchedCall) -> TensorProxy:
    """Concatenate along a dimension of the examples."""
    return prims.cat([c.full(t) for t in c.tensors], c.dim + 1)


def over_dims(c: BatchedCall) -> Any:
    """Call the operator with the dimensions of the examples."""
    return c.sym(c.a, shifted(c.dims))


def pad(c: BatchedCall) -> TensorProxy:
    """Pad the examples."""
    return prims.pad(c.a, c.value, ((0, 0, 0), *c.padding))


def reshape(c: BatchedCall) -> TensorProxy:
    """Reshape the examples."""
    # the memory of a batched tensor may not allow the view that that of an example allows
    return prims.reshape(c.a, (c.size, *c.arguments["shape"]))


def slice_prim(c: BatchedCall) -> TensorProxy:
    """Slice the examples."""
    steps = c.strides or (1,) * len(c.starts)
    return prims.slice_prim(c.a, (0, *c.starts), (c.size, *c.ends), (1, *steps))


def transpose(c: BatchedCall) -> TensorProxy:
    """Permute the dimensions after the batch."""
    return prims.transpose(c.a, (0, *shifted(c.permutation)))


def unfold(c: BatchedCall) -> Any:
    """Take windows along a dimension of the examples."""
    return prims.unfold(c.a, c.dim + 1, c.arguments["size"], c.step) if c.rank(c.a) else NotImplemented


def diagonal(c: BatchedCall) -> TensorProxy:
    """Take the diagonals of the examples."""
    return prims.diagonal(c.a, c.offset, c.dim1 + 1, c.dim2 + 1)


def diagonal_scatter(c: BatchedCall) -> TensorProxy:
    """Write the diagonals of the examples."""
    value = (c.full(c.a), c.full(c.value), c.offset, c.dim1 + 1, c.dim2 + 1)
    return prims.diagonal_scatter(*value)


def of_each_example(c: BatchedCall) -> Any:
    """Call the operator, which acts on the last dimensions or on each element."""
    return c.again(a=c.a)


def bitcast(c: BatchedCall) -> Any:
    """Read the last dimension of the examples in another dtype."""
    # the elements of a scalar are not those of a dimension
    return c.again() if c.rank(c.a) else NotImplemented


def device_put(c: BatchedCall) -> Any:
    """Move the whole batch."""
    return c.again()


def check_values(c: BatchedCall) -> Any:
    """Check the elements of all examples."""
    return c.sym(*c.args)


def overwrite(c: BatchedCall) -> Any:
    """Overwrite all examples, where only one of the two may be batched."""
    return c.sym(c.full(c.a), c.full(c.old))


def stride_order(c: BatchedCall) -> TensorProxy:
    """Order the strides of the examples, with the batch as the outermost dimension."""
    return prims.stride_order(c.a, (len(c.order), *c.order))


def as_strided(c: BatchedCall) -> Any:
    """Take the view of each example, laid out as the example is: contiguous from its first element."""
    arguments = list(c.arguments.values())
    a, size, stride, offset = arguments[:4]
    if not c.is_batched(a) or c.output.strides is not None or not _reaches(c.shape(a), size, stride, offset):
        return NotImplemented
    count = math.prod(c.shape(a))
    rows = prims.stride_order(a, tuple(reversed(range(len(a.shape)))))
    return prims.as_strided(rows, (c.size, *size), (count, *stride), offset or 0)


def _reaches(shape: tuple[int, ...], size: Any, stride: Any, offset: int | None) -> bool:
    """Return whether a view lies within the memory of a contiguous tensor that begins at 0."""
    last = (offset or 0) + sum((n - 1) * s for n, s in zip(size, stride, strict=True))
    return 0 not in size and last < math.prod(shape)
