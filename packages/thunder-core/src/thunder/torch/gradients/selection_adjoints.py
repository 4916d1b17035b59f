"""Adjoints of selections: the selected elements at their places, with zeros around them."""

from __future__ import annotations

from collections.abc import Sequence

from thunder.ir.proxies import TensorProxy
from thunder.ir.symbolic_sizes import are_same
from thunder.ops import prims
from thunder.torch.namespace import ltorch

Shape = Sequence[int]


def zeros(shape: Shape, like: TensorProxy) -> TensorProxy:
    """Return zeros of the dtype and on the device of ``like``, which is not kept alive.

    A gradient that took its shape from a forward's value would keep that value alive.
    """
    return ltorch.zeros(tuple(shape), dtype=like.dtype, device=like.device)


def reshaped(g: TensorProxy, shape: Shape) -> TensorProxy:
    """Return ``g`` in another shape; ``g`` itself if it has that shape."""
    shape = tuple(shape)
    return g if are_same(g.shape, tuple(shape)) else prims.reshape(g, shape)


def slice_backward(g: TensorProxy, shape: Shape, starts: Shape, strides: Shape | None) -> TensorProxy:
    """Return zeros of ``shape`` with ``g`` in the slice of these ``starts`` and ``strides``."""
    if are_same(g.shape, tuple(shape)):
        return g
    rows = []
    for size, start, count, step in zip(shape, starts, g.shape, strides or [1] * len(shape), strict=True):
        reach = (count - 1) * step + 1 if count else 0
        rows.append((start, size - start - reach, step - 1))
    if any(gap for _, _, gap in rows):
        return prims.pad(g, 0, rows)
    return ltorch.constant_pad_nd(g, [n for low, high, _ in reversed(rows) for n in (low, high)])


def scatter_at(g: TensorProxy, dim: int, start: int, length: int) -> TensorProxy:
    """Return ``g`` from ``start`` on in a dimension of ``length`` elements, the others zero."""
    shape, starts = list(g.shape), [0] * len(g.shape)
    shape[dim], starts[dim] = length, start
    return slice_backward(g, shape, starts, None)


def pad_prim_backward(g: TensorProxy, shape: Shape, padding: Sequence[tuple[int, int, int]]) -> TensorProxy:
    """Return the elements of ``g`` from before the padding; zero where it cut one off.

    The result has ``shape``. It is a view, unless something was cut off.
    """
    reach = [size + max(0, size - 1) * gap for size, (_, _, gap) in zip(shape, padding, strict=True)]
    starts = [low for low, _, _ in padding]
    if any(low < 0 or high < 0 for low, high, _ in padding):
        g = prims.pad(g, 0, [(-low, -high, 0) for low, high, _ in padding])
        starts = [0] * len(starts)
    strides = [gap + 1 for _, _, gap in padding]
    if are_same(g.shape, tuple(shape)) and not any(starts):
        return g
    ends = [start + length for start, length in zip(starts, reach, strict=True)]
    return prims.slice_prim(g, starts, ends, strides if any(s > 1 for s in strides) else None)
