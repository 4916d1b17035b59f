"""Gradients of concatenation, splitting and padding."""

from __future__ import annotations

from collections.abc import Sequence

from thunder.ir.proxies import TensorProxy
from thunder.ops import prims
from thunder.ops.gradient_rules import VjpCall, formulas
from thunder.torch.broadcasting import canonical_dim
from thunder.torch.gradients.selection_adjoints import (
    pad_prim_backward,
    reshaped,
    scatter_at,
    slice_backward,
    zeros,
)
from thunder.torch.namespace import ltorch
from thunder.torch.registration import torchsymbol
from thunder.torch.rows import cat_split, padding  # noqa: F401  (the rows)

# -- joining -------------------------------------------------------------------------------------------------


def _parts(c: VjpCall) -> list[TensorProxy]:
    """Split the cotangent where the tensors meet.

    ``torch.cat`` skips vectors without elements; their gradient has none either.
    """
    counted = [t.shape != (0,) or c.g.shape == (0,) for t in c.tensors]
    dim = canonical_dim(c.dim, len(c.g.shape))
    sizes = [t.shape[dim] for t, counts in zip(c.tensors, counted, strict=True) if counts]
    pieces = iter(ltorch.split_with_sizes(c.g, sizes, dim))
    return [next(pieces) if counts else zeros((0,), t) for t, counts in zip(c.tensors, counted, strict=True)]


formulas("prims.cat", "torch.cat", tensors=_parts)
formulas("torch.stack", tensors=lambda c: ltorch.unbind(c.g, c.dim))

# -- cutting -------------------------------------------------------------------------------------------------


def _filled(c: VjpCall) -> list[TensorProxy]:
    """Return the cotangents of all results, zeros for those on which nothing depends."""
    some = next(g for g in c.g if g is not None)
    return [zeros(o.shape, some) if g is None else g for o, g in zip(c.out, c.g, strict=True)]


def _rejoined(c: VjpCall, a: TensorProxy, dim: int) -> TensorProxy | None:
    """Concatenate the cotangents of the pieces; a single one is placed among zeros."""
    dim = canonical_dim(dim, len(a.shape))
    present = [i for i, g in enumerate(c.g) if g is not None]
    if len(present) == 1:
        (at,) = present
        start = sum(o.shape[dim] for o in c.out[:at])
        return scatter_at(c.g[at], dim, start, a.shape[dim])
    return ltorch.cat(_filled(c), dim) if present else None


def _unbind(c: VjpCall) -> TensorProxy | None:
    dim = canonical_dim(c.dim, len(c.input.shape))
    present = [i for i, g in enumerate(c.g) if g is not None]
    if len(present) == 1:
        (at,) = present
        return _selected(c.g[at], c.input, dim, at)
    return ltorch.stack(_filled(c), dim) if present else None


def _selected(g: TensorProxy, a: TensorProxy, dim: int, index: int) -> TensorProxy:
    """Return zeros like ``a`` with ``g`` at one index of a dimension."""
    dim = canonical_dim(dim, len(a.shape))
    row = reshaped(g, (*a.shape[:dim], 1, *a.shape[dim + 1 :]))
    return scatter_at(row, dim, index % a.shape[dim], a.shape[dim])


def _narrowed(c: VjpCall) -> TensorProxy:
    dim = canonical_dim(c.dim, len(c.input.shape))
    length = c.input.shape[dim]
    return scatter_at(c.g, dim, c.start + length if c.start < 0 else c.start, length)


formulas("torch.split", tensor=lambda c: _rejoined(c, c.tensor, c.dim))
formulas("torch.split_with_sizes", "torch.chunk", input=lambda c: _rejoined(c, c.input, c.dim))
formulas("torch.unbind", input=_unbind)
formulas("torch.select", input=lambda c: _selected(c.g, c.input, c.dim, c.index))
formulas("torch.narrow", input=_narrowed)
formulas("prims.slice_prim", a=lambda c: slice_backward(c.g, c.a.shape, c.starts, c.strides))

formulas(
    "torch.select_scatter",
    input=lambda c: ltorch.select_scatter(c.g, zeros(c.src.shape, c.g), c.dim, c.index),
    src=lambda c: ltorch.select(c.g, c.dim, c.index),
)
formulas(
    "torch.slice_scatter",
    input=lambda c: ltorch.slice_scatter(c.g, zeros(c.src.shape, c.g), c.dim, c.start, c.end, c.step),
    src=lambda c: _part_of_slice(c),
)


def _part_of_slice(c: VjpCall) -> TensorProxy:
    key = [slice(None)] * len(c.input.shape)
    key[canonical_dim(c.dim, len(key))] = slice(c.start, c.end, c.step)
    return ltorch.__getitem__(c.g, tuple(key))


# -- padding -------------------------------------------------------------------------------------------------


def _constant_pad_backward(g: TensorProxy, shape: Sequence[int], pad: Sequence[int]) -> TensorProxy:
    """Cut a border of constants off; ``pad`` has (before, after) for the last dimension first."""
    padded = [(pad[i], pad[i + 1], 0) for i in range(0, len(pad), 2)]
    rest = [(0, 0, 0)] * (len(shape) - len(padded))
    return pad_prim_backward(g, shape, [*rest, *reversed(padded)])


def _border_backward(
    g: TensorProxy, dim: int, length: int, before: int, after: int, mode: str
) -> TensorProxy:
    """Add the elements of a border to those that they are copies of."""
    first, last = max(0, -before), length - max(0, -after)
    if mode != "circular" and (before < 0 or after < 0):  # the ends of the padded tensor were cut off
        g = scatter_at(g, dim, first, length + max(0, before) + max(0, after))
        first, last = 0, length
    before, after, size = max(0, before), max(0, after), last - first
    low, inner, high = ltorch.split_with_sizes(g, [before, size, after], dim)
    if before:
        inner = inner + _copied(low, dim, size, size - before, 1, 0, mode)
    if after:
        inner = inner + _copied(high, dim, size, 0, size - 1 - after, size - 1, mode)
    return scatter_at(inner, dim, first, length)


def _copied(
    border: TensorProxy, dim: int, length: int, wrapped: int, mirrored: int, edge: int, mode: str
) -> TensorProxy:
    """Return the gradient of a border in place of the elements that it copies.

    These begin at one of three positions, by ``mode``.
    """
    if mode == "circular":
        return scatter_at(border, dim, wrapped, length)
    if mode == "reflect":
        return scatter_at(prims.flip(border, (dim,)), dim, mirrored, length)
    return scatter_at(ltorch.sum(border, dim, True), dim, edge, length)


@torchsymbol(id="ltorch.pad_backward")
def pad_backward(grad: TensorProxy, size: Sequence[int], pad: Sequence[int], mode: str) -> TensorProxy:
    """The adjoint of padding a tensor of ``size`` with its own elements."""
    for i in reversed(range(0, len(pad), 2)):
        if pad[i] or pad[i + 1]:
            dim = len(size) - 1 - i // 2
            grad = _border_backward(grad, dim, size[dim], pad[i], pad[i + 1], mode)
    return grad


def _pad(c: VjpCall) -> TensorProxy:
    if c.mode == "constant":
        return _constant_pad_backward(c.g, c.input.shape, c.pad)
    return ltorch.pad_backward(c.g, c.input.shape, c.pad, c.mode)


formulas("prims.pad", a=lambda c: pad_prim_backward(c.g, c.a.shape, c.padding))
formulas("torch.constant_pad_nd", input=lambda c: _constant_pad_backward(c.g, c.input.shape, c.pad))
formulas("torch.nn.functional.pad", input=_pad)
formulas("ltorch.pad_backward", grad=lambda c: ltorch.pad(c.g, c.pad, c.mode))
