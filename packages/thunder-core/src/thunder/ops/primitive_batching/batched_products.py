"""Batching rules of matrix products and convolutions."""

from __future__ import annotations

from typing import Any

from thunder.ir.proxies import TensorProxy
from thunder.ops.batched_call import BatchedCall, moved
from thunder.ops.primitive_names import prims


def matmul(c: BatchedCall) -> TensorProxy:
    """Multiply the examples, with the batch before all their dimensions."""
    a, b = c.a, c.b
    row, column = c.rank(a) == 1, c.rank(b) == 1
    if row and c.is_batched(a):
        a = prims.reshape(a, (c.size, 1, a.shape[1]))
    elif row:
        a = prims.reshape(a, (1, a.shape[0]))
    if column and c.is_batched(b):
        b = prims.reshape(b, (c.size, b.shape[1], 1))
    elif column:
        b = prims.reshape(b, (b.shape[0], 1))
    # the batch comes first, before the dimensions that the examples of the other factor have
    rank = max(c.rank(c.a) + row, c.rank(c.b) + column)
    a = _padded(a, rank + 1) if c.is_batched(c.a) else a
    b = _padded(b, rank + 1) if c.is_batched(c.b) else b
    out = prims.matmul(a, b)
    if column:
        out = prims.squeeze(out, (len(out.shape) - 1,))
    if row:
        out = prims.squeeze(out, (len(out.shape) - 1 - (not column),))
    return out


def _padded(x: TensorProxy, rank: int) -> TensorProxy:
    """Return a batched tensor of ``rank`` dimensions, with new ones after the batch."""
    missing = rank - len(x.shape)
    if missing <= 0:
        return x
    return prims.reshape(x, (x.shape[0], *(1,) * missing, *x.shape[1:]))


def _plus(x: TensorProxy, bias: TensorProxy) -> TensorProxy:
    """Return a sum in the shape of the first operand, whose last dimensions the other one has."""
    missing = len(x.shape) - len(bias.shape)
    return prims.add(x, prims.broadcast_in_dim(bias, x.shape, tuple(range(missing, len(x.shape)))))


def linear(c: BatchedCall) -> Any:
    """Multiply all rows at once, or, with a batched weight, the matrices of each example."""
    a, w, bias = c.a, c.w, c.bias
    if not c.is_batched(w):
        separate = bias is not None and (c.is_batched(bias) or c.shape(bias) != c.shape(w)[:1])
        out = prims.linear(a, w, None) if separate or not c.is_batched(a) else prims.linear(a, w, bias)
        if not separate and c.is_batched(a):
            return out
        out = out if c.is_batched(a) else c.full(out)
    else:
        is_vector = c.rank(w) == 1
        w = prims.reshape(w, (c.size, 1, w.shape[1])) if is_vector else w
        rows = a if c.rank(a) > 1 else prims.reshape(a, (*a.shape[:-1], 1, a.shape[-1]))
        rank = max(3, len(rows.shape) + (not c.is_batched(a)))
        columns = prims.transpose(w, (0, 2, 1))
        out = prims.matmul(rows, _padded(columns, rank))
        out = prims.reshape(out, (c.size, *c.output.shape))
    return out if bias is None else _plus(out, c.with_rank(bias, len(out.shape) - 1))


def convolution(c: BatchedCall) -> Any:
    """Fold the batch into the batch of the input, or, with a batched weight, into channels and groups."""
    if not all(c.shape(c.a)) or not all(c.shape(c.weight)):
        return NotImplemented
    sizes = (c.stride, c.padding, c.dilation, c.transposed, c.output_padding)
    bias = c.bias if c.bias is None or not c.is_batched(c.bias) else None
    if not c.is_batched(c.weight):
        a = c.full(c.a)
        folded = prims.reshape(a, (c.size * a.shape[1], *a.shape[2:]))
        out = prims.convolution(folded, c.weight, bias, *sizes, c.groups)
        out = prims.reshape(out, (c.size, a.shape[1], *out.shape[1:]))
    else:
        bias = None
        weight = prims.reshape(c.weight, (c.size * c.weight.shape[1], *c.weight.shape[2:]))
        if not c.is_batched(c.a) and c.groups == 1 and not c.transposed:
            a, groups = c.a, 1
        else:
            a = moved(c.full(c.a), 0, 1)
            a = prims.reshape(a, (a.shape[0], c.size * a.shape[2], *a.shape[3:]))
            groups = c.size * c.groups
        out = prims.convolution(a, weight, None, *sizes, groups)
        out = prims.reshape(out, (out.shape[0], c.size, out.shape[1] // c.size, *out.shape[2:]))
        out = moved(out, 1, 0)
    if c.bias is None or bias is not None:
        return out
    space = (1,) * (len(out.shape) - 3)
    leading = (c.size, 1) if c.is_batched(c.bias) else (1, 1)
    return _plus(out, prims.reshape(c.bias, (*leading, c.shape(c.bias)[0], *space)))
