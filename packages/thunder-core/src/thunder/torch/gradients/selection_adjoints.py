"""The adjoints of selections: what is selected comes back to where it was, with zeros around it."""

from __future__ import annotations

from collections.abc import Sequence

from thunder.ir.proxies import TensorProxy
from thunder.ops import prims
from thunder.torch.namespace import ltorch

Shape = Sequence[int]


def zeros(shape: Shape, like: TensorProxy) -> TensorProxy:
    """Zeros of the dtype and on the device of ``like``, of which nothing else is used: a gradient that took
    its shape from a forward's value would keep that value alive.
    """
    return ltorch.zeros(tuple(shape), dtype=like.dtype, device=like.device)


def reshaped(g: TensorProxy, shape: Shape) -> TensorProxy:
    """``g`` in another shape, ``g`` itself if it has it."""
    shape = tuple(shape)
    return g if tuple(g.shape) == shape else prims.reshape(g, shape)


def slice_backward(g: TensorProxy, shape: Shape, starts: Shape, strides: Shape | None) -> TensorProxy:
    """Zeros of ``shape`` with ``g`` at the places that a slice begins at ``starts`` and steps over."""
    if tuple(g.shape) == tuple(shape):
        return g
    rows = []
    for size, start, count, step in zip(shape, starts, g.shape, strides or [1] * len(shape), strict=True):
        reach = (count - 1) * step + 1 if count else 0
        rows.append((start, size - start - reach, step - 1))
    if any(gap for _, _, gap in rows):
        return prims.pad(g, 0, rows)
    return ltorch.constant_pad_nd(g, [n for low, high, _ in reversed(rows) for n in (low, high)])


def scatter_at(g: TensorProxy, dim: int, start: int, length: int) -> TensorProxy:
    """``g`` from ``start`` on in a dimension of ``length`` elements, zeros before and after."""
    shape, starts = list(g.shape), [0] * len(g.shape)
    shape[dim], starts[dim] = length, start
    return slice_backward(g, shape, starts, None)


def pad_prim_backward(g: TensorProxy, shape: Shape, padding: Sequence[tuple[int, int, int]]) -> TensorProxy:
    """The elements of ``g`` that were a tensor of ``shape`` before the padding; zero where it cut one off.

    A view, unless something was cut off.
    """
    reach = [size + max(0, size - 1) * gap for size, (_, _, gap) in zip(shape, padding, strict=True)]
    starts = [low for low, _, _ in padding]
    if any(low < 0 or high < 0 for low, high, _ in padding):
        g = prims.pad(g, 0, [(-low, -high, 0) for low, high, _ in padding])
        starts = [0] * len(starts)
    strides = [gap + 1 for _, _, gap in padding]
    if tuple(g.shape) == tuple(shape) and not any(starts):
        return g
    ends = [start + length for start, length in zip(starts, reach, strict=True)]
    return prims.slice_prim(g, starts, ends, strides if any(s > 1 for s in strides) else None)
