"""Batching rules of torch's kernels that have no decomposition, by what their dimensions mean."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from thunder.base.pytree import tree_map
from thunder.ir.proxies import TensorProxy
from thunder.ops import prims
from thunder.ops.batched_call import BatchedCall, BatchRule, moved, shifted
from thunder.ops.primitive_batching.batched_reductions import along_dim


def _tensors(c: BatchedCall) -> dict[str, TensorProxy]:
    return {name: x for name, x in c.arguments.items() if isinstance(x, TensorProxy)}


def _aligned(c: BatchedCall, **changes: Any) -> Any:
    """Call the kernel with the batch before all dimensions of the examples."""
    tensors = _tensors(c)
    rank = max(map(c.rank, tensors.values()))
    return c.again(**{name: c.with_rank(x, rank) for name, x in tensors.items()}, **changes)


def elementwise(c: BatchedCall) -> Any:
    """Call a kernel of which each result depends on one element of each argument."""
    return _aligned(c)


def of_last_dims(c: BatchedCall) -> Any:
    """Call a kernel that acts on the last dimensions, whatever comes before."""
    tensors = {name: c.full(x) for name, x in _tensors(c).items()}
    rank = max(len(x.shape) for x in tensors.values())
    if len(tensors) == 1 or any(len(x.shape) < 3 for x in tensors.values()):
        return c.again(**tensors)
    return c.again(**{name: c.with_rank(x, rank - 1) for name, x in tensors.items()})


def of_one_dim(c: BatchedCall) -> Any:
    """Call a kernel along a dimension ``dim``."""
    tensors = _tensors(c)
    rank = max(map(c.rank, tensors.values()))
    if c.dim is None:
        return NotImplemented
    if len(tensors) == 1:
        ((name, x),) = tensors.items()
        return along_dim(c, x, lambda x, dim: c.again(**{name: x}, dim=dim), c.dim)
    return _aligned(c, dim=c.dim % rank + 1) if rank else NotImplemented


def over_dims(c: BatchedCall) -> Any:
    """Call a kernel over several dimensions ``dim``, by default all."""
    rank = c.rank(next(iter(c.arguments.values())))
    dims = c.dim
    if dims is None:
        sizes = c.arguments.get("s")
        dims = range(rank) if sizes is None else range(rank - len(sizes), rank)
    elif not isinstance(dims, Sequence):
        dims = (dims,)
    return c.again(dim=shifted(d % rank for d in dims)) if rank else NotImplemented


def reduction(c: BatchedCall) -> Any:
    """Reduce one dimension, or all elements."""
    rank = c.rank(c.input)
    dim = c.arguments.get("dim")
    dims = dim if not isinstance(dim, Sequence) or dim else None
    if dims is not None and rank:
        dims = shifted(d % rank for d in dims) if isinstance(dims, Sequence) else dims % rank + 1
        return c.again(dim=dims)
    if c.sym.name in ("median", "nanmedian") and dim is None:
        out = c.again(input=prims.reshape(c.input, (c.size, math.prod(c.shape(c.input)))), dim=1)
        return out[0]
    out = c.again(input=prims.reshape(c.input, (c.size, math.prod(c.shape(c.input)))), dim=1, keepdim=False)
    shape = (c.size, *(1,) * (rank if c.keepdim else 0))
    return tree_map(lambda x: prims.reshape(x, shape) if isinstance(x, TensorProxy) else x, out)


def quantile(c: BatchedCall) -> Any:
    """Compute quantiles along a dimension, or of all elements."""
    if c.is_batched(c.q):
        return NotImplemented
    input, dim = c.input, c.dim
    rank = c.rank(input)
    keepdim = c.keepdim and bool(rank)
    if dim is None or not rank:
        input, dim = prims.reshape(input, (c.size, math.prod(c.shape(input)))), 0
    out = c.again(input=input, dim=dim % max(rank, 1) + 1, keepdim=keepdim)
    has_positions = isinstance(c.q, TensorProxy) and len(c.q.shape) == 1
    out = moved(out, 1, 0) if has_positions else out
    return prims.reshape(out, (c.size, *c.output.shape))


def at_dim(c: BatchedCall) -> Any:
    """Call a kernel whose tensors have a dimension ``dim`` each."""
    if not c.rank(c.input):
        return NotImplemented
    tensors = {name: c.full(x) for name, x in _tensors(c).items()}
    return c.again(**tensors, dim=c.dim % c.rank(c.input) + 1)


def diagonal_scatter(c: BatchedCall) -> Any:
    """Write the diagonals of the examples."""
    rank = c.rank(c.input)
    dims = {"dim1": c.dim1 % rank + 1, "dim2": c.dim2 % rank + 1}
    return c.again(input=c.full(c.input), src=c.full(c.src), **dims)


def isin(c: BatchedCall) -> Any:
    """Compare all examples with elements that they share."""
    return NotImplemented if c.is_batched(c.test_elements) else c.again()


def bucketize(c: BatchedCall) -> Any:
    """Find intervals between boundaries that the examples share."""
    return NotImplemented if c.is_batched(c.boundaries) else c.again()


# -- images --------------------------------------------------------------------------------------------------


def of_images(space: int) -> BatchRule:
    """Return the rule of a kernel of images with ``space`` dimensions, of a batch or of one image."""

    def images(c: BatchedCall) -> Any:
        return _of_images(c, space)

    return images


def interpolate(c: BatchedCall) -> Any:
    """Interpolate the images of all examples."""
    return _of_images(c, c.rank(c.input) - 2)


def _of_images(c: BatchedCall, space: int) -> Any:
    """Call a kernel of images: those of all examples are one batch."""
    tensors = {name: c.full(x) for name, x in _tensors(c).items()}
    if any(0 in x.shape for x in tensors.values()):
        return NotImplemented
    if all(len(x.shape) == space + 2 for x in tensors.values()):
        return c.again(**tensors)
    folded = {name: prims.reshape(x, (c.size * x.shape[1], *x.shape[2:])) for name, x in tensors.items()}

    def unfolded(x: Any) -> Any:
        return (
            prims.reshape(x, (c.size, x.shape[0] // c.size, *x.shape[1:]))
            if isinstance(x, TensorProxy)
            else x
        )

    return tree_map(unfolded, c.again(**folded))
