"""Batching rules of primitives that change shapes, memory and dtypes."""

from __future__ import annotations

import math
from typing import Any

from thunder.batching.batched_call import BatchedCall, batches, shifted
from thunder.ir.proxies import TensorProxy
from thunder.ops import prims


@batches("prims.broadcast_in_dim")
def _broadcast_in_dim(c: BatchedCall) -> TensorProxy:
    return prims.broadcast_in_dim(c.a, (c.size, *c.arguments["shape"]), (0, *shifted(c.broadcast_dimensions)))  # type: ignore[no-any-return]


@batches("prims.cat")
def _cat(c: BatchedCall) -> TensorProxy:
    return prims.cat([c.full(t) for t in c.tensors], c.dim + 1)  # type: ignore[no-any-return]


@batches("prims.flip", "prims.squeeze")
def _over_dims(c: BatchedCall) -> Any:
    return c.sym(c.a, shifted(c.dims))


@batches("prims.pad")
def _pad(c: BatchedCall) -> TensorProxy:
    return prims.pad(c.a, c.value, ((0, 0, 0), *c.padding))  # type: ignore[no-any-return]


@batches("prims.reshape", "prims.view")
def _reshape(c: BatchedCall) -> TensorProxy:
    # the memory of a batched tensor may not allow the view that that of an example allows
    return prims.reshape(c.a, (c.size, *c.arguments["shape"]))  # type: ignore[no-any-return]


@batches("prims.slice_prim")
def _slice(c: BatchedCall) -> TensorProxy:
    steps = c.strides or (1,) * len(c.starts)
    return prims.slice_prim(c.a, (0, *c.starts), (c.size, *c.ends), (1, *steps))  # type: ignore[no-any-return]


@batches("prims.transpose")
def _transpose(c: BatchedCall) -> TensorProxy:
    return prims.transpose(c.a, (0, *shifted(c.permutation)))  # type: ignore[no-any-return]


@batches("prims.unfold")
def _unfold(c: BatchedCall) -> Any:
    return prims.unfold(c.a, c.dim + 1, c.arguments["size"], c.step) if c.rank(c.a) else NotImplemented


@batches("prims.diagonal")
def _diagonal(c: BatchedCall) -> TensorProxy:
    return prims.diagonal(c.a, c.offset, c.dim1 + 1, c.dim2 + 1)  # type: ignore[no-any-return]


@batches("prims.diagonal_scatter")
def _diagonal_scatter(c: BatchedCall) -> TensorProxy:
    value = (c.full(c.a), c.full(c.value), c.offset, c.dim1 + 1, c.dim2 + 1)
    return prims.diagonal_scatter(*value)  # type: ignore[no-any-return]


@batches("prims.view_as_real", "prims.view_as_complex", "prims.tril", "prims.triu", "prims.untracked_alias")
def _of_each_example(c: BatchedCall) -> Any:
    return c.again(a=c.a)


@batches("prims.bitcast")
def _bitcast(c: BatchedCall) -> Any:
    # the elements of a scalar are not those of a dimension
    return c.again() if c.rank(c.a) else NotImplemented


@batches("prims.device_put")
def _device_put(c: BatchedCall) -> Any:
    return c.again()


@batches("prims.check_values")
def _check_values(c: BatchedCall) -> Any:
    return c.sym(*c.args)  # all elements are checked


@batches("prims.overwrite", "prims.replace_data")
def _overwrite(c: BatchedCall) -> Any:
    return c.sym(c.full(c.a), c.full(c.old))


@batches("prims.stride_order")
def _stride_order(c: BatchedCall) -> TensorProxy:
    # the batch is the outermost dimension
    return prims.stride_order(c.a, (len(c.order), *c.order))  # type: ignore[no-any-return]


@batches("torch.as_strided", "prims.as_strided")
def _as_strided(c: BatchedCall) -> Any:
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
