"""Gradients of reads and writes by index: a read's is a write, and a write's is a read."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from thunder.base.dtypes import int64
from thunder.ir.proxies import TensorProxy
from thunder.ops import prims
from thunder.ops.gradient_rules import VjpCall, formulas, summed_to, vjp
from thunder.torch.gradients.backward_kernels import computed_by, kernel
from thunder.torch.gradients.selection_adjoints import reshaped, slice_backward, zeros
from thunder.torch.index_keys import is_mask, key_items, select
from thunder.torch.namespace import ltorch
from thunder.torch.rows import scattering, torch_kernels  # noqa: F401  (the rows)
from thunder.torch.rows.indexing import getitem, index_list

Tensor = TensorProxy
Gradients = Mapping[str, Any]

# -- writes into zeros ---------------------------------------------------------------------------------------

# Rows, so that torch writes into the zeros themselves; of a functional operator they would be copied first.


def _index_into_zeros(grad: Any, sizes: Any, indices: Any) -> Any:
    return torch.ops.aten.index_put_(grad.new_zeros(sizes), list(indices), grad, True)


@computed_by(_index_into_zeros)
def index_backward(grad: Tensor, sizes: Any, indices: Sequence[Tensor | None]) -> Tensor:
    """Zeros with ``grad`` added at ``[indices]``."""
    return prims.index_put(zeros(sizes, grad), indices, grad, True)


def _gather_into_zeros(grad: Any, sizes: Any, dim: int, index: Any) -> Any:
    return grad.new_zeros(sizes).scatter_add_(dim, index, grad)


@computed_by(_gather_into_zeros)
def gather_backward(grad: Tensor, sizes: Any, dim: int, index: Tensor) -> Tensor:
    """Zeros with the elements of ``grad`` added at the indices of ``gather``."""
    if not index.numel():  # which may have any number of dimensions
        return zeros(sizes, grad)
    return ltorch.scatter_add(zeros(sizes, grad), dim, index, grad)


@kernel("index_select_backward")
def index_select_backward(grad: Tensor, self_sizes: Any, dim: int, index: Tensor) -> Tensor:
    """Zeros with the slices of ``grad`` added at the indices of ``index_select``."""
    return ltorch.index_add(zeros(self_sizes, grad), dim, index, grad)


# -- x[key] --------------------------------------------------------------------------------------------------


def _getitem_backward(g: Tensor, a: Tensor, key: Any) -> Tensor:
    """Zeros like ``a`` with ``g`` added at ``a[key]``; an element indexed twice gets the sum."""
    selection = select(a.shape, key_items(key))
    bounds = zip(selection.starts, selection.ends, selection.steps, strict=True)
    sliced = [-(-(end - start) // step) for start, end, step in bounds]
    kept_sizes = iter(size for dim, size in enumerate(sliced) if dim not in selection.dropped)
    viewed = [1 if new else next(kept_sizes) for new in selection.new]
    if selection.tensors:
        left = tuple(size for dim, size in enumerate(viewed) if dim not in selection.picked)
        g = ltorch.index_backward(g, left, index_list(selection.tensors))
    for dim in sorted(selection.picked):
        left = tuple(size for d, size in enumerate(viewed) if d <= dim or d not in selection.picked)
        g = ltorch.index_backward(g, left, index_list({dim: selection.picked[dim]}))
    return slice_backward(reshaped(g, sliced), a.shape, selection.starts, selection.steps)


formulas("torch.Tensor.__getitem__", input=lambda c: _getitem_backward(c.g, c.input, c.key))


def _mask_of(key: Any) -> Tensor | None:
    return next((i for i in key_items(key) if is_mask(i)), None)


def _value_gradient(g: Tensor, key: Any, value: Tensor) -> Tensor:
    """Return ``g[key]`` summed to the shape of the value that was written, on its device."""
    mask = _mask_of(key)
    if mask is None:
        part = getitem(g, key)
    else:
        wide = reshaped(mask, (*mask.shape, *[1] * (len(g.shape) - len(mask.shape))))
        part = ltorch.where(wide, g, 0)
    extra = max(0, len(value.shape) - len(part.shape))
    part = reshaped(summed_to(part, tuple(value.shape[extra:])), value.shape)
    return part if part.device is value.device else prims.device_put(part, value.device)


def _written(a: str) -> Callable[[VjpCall], Gradients]:
    """Return the gradients of a write of ``value`` at ``key`` of the argument ``a``."""

    def gradients(c: VjpCall) -> Gradients:
        grads = {}
        if c.needs(a):
            grads[a] = ltorch.setitem(c.g, c.key, 0)
        if c.needs("value"):
            grads["value"] = _value_gradient(c.g, c.key, c.value)
        return grads

    return gradients


vjp("ltorch.setitem")(_written("input"))
vjp("prims.copy_with_setitem")(_written("a"))

# -- by tensors of positions ---------------------------------------------------------------------------------


formulas(
    "prims.dynamic_select",
    a=lambda c: ltorch.index_backward(c.g, c.a.shape, index_list({c.dim: c.index})),
)
formulas("prims.index", a=lambda c: ltorch.index_backward(c.g, c.a.shape, c.indices))
formulas(
    "prims.index_put",
    a=lambda c: c.g if c.accumulate else prims.index_put(c.g, c.indices, zeros((), c.g), False),
    values=lambda c: prims.index(c.g, c.indices),
)


def _held(c: VjpCall) -> Tensor | None:
    """Return the mask of ``index_put`` if its only index is a mask, else None."""
    return c.indices[0] if c.indices[0].dtype.is_bool else None


def _index_put_input(c: VjpCall) -> Tensor:
    mask = _held(c)
    if mask is not None:
        return ltorch.masked_fill(c.g, mask, 0)
    return c.g if c.accumulate else ltorch.index_put(c.g, c.indices, zeros((), c.g))


def _index_put_values(c: VjpCall) -> Tensor:
    mask = _held(c)
    if mask is not None:
        return ltorch.where(mask, c.g, 0)
    return prims.index(c.g, [i if i.dtype is int64 else ltorch.to(i, int64) for i in c.indices])


formulas("torch.index_put", input=_index_put_input, values=_index_put_values)

# -- along a dimension ---------------------------------------------------------------------------------------


def _grown(g: Tensor, shape: Any) -> Tensor:
    """Pad ``g`` with zeros at the end: elements of a source beyond the index are not used."""
    return (
        slice_backward(g, shape, [0] * len(shape), None) if len(g.shape) == len(shape) else reshaped(g, shape)
    )


def _gathered(c: VjpCall) -> Tensor:
    return _grown(ltorch.gather(c.g, c.dim, c.index), c.src.shape)


formulas(
    "prims.gather",
    "prims.take_along_axis",
    a=lambda c: ltorch.gather_backward(c.g, c.a.shape, c.dim, c.index),
)
formulas("torch.gather", input=lambda c: ltorch.gather_backward(c.g, c.input.shape, c.dim, c.index))
formulas("prims.scatter", a=lambda c: ltorch.scatter(c.g, c.dim, c.index, 0), src=_gathered)
formulas("torch.scatter", input=lambda c: ltorch.scatter(c.g, c.dim, c.index, 0), src=_gathered)
formulas(
    "prims.scatter_add",
    a=lambda c: c.g,
    value=lambda c: _grown(ltorch.gather(c.g, c.dim, c.index), c.value.shape),
)
formulas("torch.scatter_add", input=lambda c: c.g, src=_gathered)


def _taken(c: VjpCall) -> Tensor:
    """Add rows where they were taken from. The index of ``prims.take`` may have any rank."""
    count = math.prod(c.index.shape)
    rows = reshaped(c.g, (*c.a.shape[: c.dim], count, *c.a.shape[c.dim + 1 :]))
    return ltorch.index_select_backward(rows, c.a.shape, c.dim, reshaped(c.index, (count,)))


def _selected(c: VjpCall) -> Tensor:
    if not c.input.shape:
        return reshaped(c.g, ())
    return ltorch.index_select_backward(c.g, c.input.shape, c.dim, c.index)


def _slices(g: Tensor, dim: int, index: Tensor, like: Tensor) -> Tensor:
    return reshaped(ltorch.index_select(g, dim, index), like.shape)


formulas("prims.take", a=_taken)
formulas("torch.index_select", input=_selected)
formulas("prims.index_add", a=lambda c: c.g, value=lambda c: _slices(c.g, c.dim, c.index, c.value))
formulas(
    "prims.index_copy",
    a=lambda c: ltorch.index_fill(c.g, c.dim, c.index, 0),
    value=lambda c: _slices(c.g, c.dim, c.index, c.value),
)
formulas(
    "torch.index_add",
    input=lambda c: c.g,
    source=lambda c: _scaled(_slices(c.g, c.dim, c.index, c.source), c.alpha),
)
formulas(
    "torch.index_copy",
    input=lambda c: ltorch.index_fill(c.g, c.dim, c.index, 0),
    source=lambda c: _slices(c.g, c.dim, c.index, c.source),
)
formulas(
    "torch.index_fill",
    input=lambda c: ltorch.index_fill(c.g, c.dim, c.index, 0),
    value=lambda c: ltorch.sum(ltorch.where(_named(c.index, c.dim, c.input), c.g, 0)),
)


def _named(index: Tensor, dim: int, a: Tensor) -> Tensor:
    """Return a mask of the slices that an index names, in a shape that broadcasts to ``a``."""
    shape = [1] * len(a.shape)
    if shape:
        shape[dim] = a.shape[dim]
    none = ltorch.zeros(math.prod(shape), dtype=torch.bool, device=a.device)
    return reshaped(ltorch.index_fill(none, 0, index, True), shape)


def _scaled(g: Tensor, alpha: Any) -> Tensor:
    return g if type(alpha) is int and alpha == 1 else ltorch.mul(g, alpha)


# -- in the flat tensor --------------------------------------------------------------------------------------

formulas(
    "torch.take",
    input=lambda c: ltorch.put(zeros(c.input.shape, c.g), c.index, c.g, True),
)
formulas(
    "torch.put",
    input=lambda c: c.g if c.accumulate else ltorch.put(c.g, c.index, zeros(c.source.shape, c.g)),
    source=lambda c: reshaped(ltorch.take(c.g, c.index), c.source.shape),
)

# -- masks and triangles -------------------------------------------------------------------------------------

formulas(
    "torch.masked_fill",
    input=lambda c: ltorch.masked_fill(c.g, c.mask, 0),
    value=lambda c: ltorch.where(c.mask, c.g, 0),
)
formulas("prims.tril", a=lambda c: prims.tril(c.g, c.diagonal))
formulas("torch.tril", input=lambda c: ltorch.tril(c.g, c.diagonal))
formulas("prims.triu", a=lambda c: prims.triu(c.g, c.diagonal))
formulas("torch.triu", input=lambda c: ltorch.triu(c.g, c.diagonal))


@kernel("masked_scatter_backward")
def masked_scatter_backward(grad_output: Tensor, mask: Tensor, sizes: Any) -> Tensor:
    """The elements of the gradient where the mask is True, in order, padded with zeros.

    The position of each is the number of those before it; the others go to a position past the end.
    """
    total, count = math.prod(sizes), math.prod(mask.shape)
    held = reshaped(mask, (count,))
    place = ltorch.where(held, ltorch.cumsum(held, 0) - 1, total)
    packed = prims.index_add(zeros((total + 1,), grad_output), place, reshaped(grad_output, (count,)), 0)
    return reshaped(ltorch.narrow(packed, 0, 0, total), sizes)


formulas(
    "torch.masked_scatter",
    input=lambda c: ltorch.masked_fill(c.g, c.mask, 0),
    source=lambda c: ltorch.masked_scatter_backward(
        c.g, ltorch.expand(c.mask, tuple(c.g.shape)), tuple(c.source.shape)
    ),
)
formulas(
    "ltorch.masked_scatter_backward",
    grad_output=lambda c: ltorch.masked_scatter(zeros(c.grad_output.shape, c.g), c.mask, c.g),
)

# -- elements that meet, reduced -----------------------------------------------------------------------------


@dataclass(frozen=True)
class _Meeting:
    """A reduction of the elements of ``source`` with the same index into ``input``."""

    input: Tensor
    source: Tensor
    reduce: str
    include_self: bool
    #: a tensor like the input → like the source, and (a tensor, a source) → their sum, and → the reduction
    pick: Callable[[Any], Any]
    add: Callable[[Any, Any], Any]
    again: Callable[[Any, Any], Any]
    #: a tensor like the input with zeros wherever elements meet
    cleared: Callable[[Tensor], Tensor]

    def gradients(self, g: Tensor, out: Tensor) -> tuple[Tensor, Tensor]:
        """Return the gradients of input and source."""
        of_input, of_source = getattr(self, f"_{self.reduce}")(g, out)
        return (of_input if self.include_self else self.cleared(of_input)), of_source

    def _sum(self, g: Tensor, out: Tensor) -> tuple[Tensor, Tensor]:
        return g, self.pick(g)

    def _mean(self, g: Tensor, out: Tensor) -> tuple[Tensor, Tensor]:
        ones = ltorch.ones(self.source.shape, dtype=g.dtype, device=g.device)
        own = ltorch.ones if self.include_self else ltorch.zeros
        count = self.add(own(g.shape, dtype=g.dtype, device=g.device), ones)
        part = g / ltorch.where(count == 0, 1, count)
        return part, self.pick(part)

    def _extreme(self, g: Tensor, out: Tensor) -> tuple[Tensor, Tensor]:
        """Ties share evenly."""
        is_input = ltorch.to(self.input == out, g.dtype)
        is_source = ltorch.to(self.source == self.pick(out), g.dtype)
        part = g / self.add(is_input, is_source)
        return is_input * part, is_source * self.pick(part)

    _amax = _amin = _extreme

    def _prod(self, g: Tensor, out: Tensor) -> tuple[Tensor, Tensor]:
        """The product of the others: the result divided by the element.

        Where the element is 0, it is the product with 1 in its place. Two zeros with the same index make each
        other's gradient 0.
        """
        one_for_zero = ltorch.where(self.input == 0, 1, self.input)
        of_input = g * self.again(one_for_zero, self.source) / one_for_zero
        is_zero = self.source == 0
        zeros_met = self.pick(self.add(zeros(g.shape, g), ltorch.to(is_zero, g.dtype)))
        alone = ltorch.logical_and(is_zero, zeros_met == 1)
        others = self.again(self.input, ltorch.where(alone, 1, self.source))
        divided = self.pick(g * out) / ltorch.where(is_zero, 1, self.source)
        return of_input, ltorch.where(alone, self.pick(g * others), divided)


@vjp("torch.scatter_reduce")
def _scatter_reduce(c: VjpCall) -> Gradients:
    at = (c.dim, c.index)
    meeting = _Meeting(
        input=c.input,
        source=c.src,
        reduce=c.reduce,
        include_self=c.include_self,
        pick=lambda t: _grown(ltorch.gather(t, *at), c.src.shape),
        add=lambda t, s: ltorch.scatter_add(t, *at, s),
        again=lambda t, s: ltorch.scatter_reduce(t, *at, s, c.reduce, include_self=c.include_self),
        cleared=lambda t: ltorch.scatter(t, *at, 0),
    )
    return dict(zip(("input", "src"), meeting.gradients(c.g, c.out), strict=True))


@vjp("torch.index_reduce")
def _index_reduce(c: VjpCall) -> Gradients:
    at = (c.dim, c.index)
    meeting = _Meeting(
        input=c.input,
        source=c.source,
        reduce=c.reduce,
        include_self=c.include_self,
        pick=lambda t: reshaped(ltorch.index_select(t, *at), c.source.shape),
        add=lambda t, s: ltorch.index_add(t, *at, s),
        again=lambda t, s: ltorch.index_reduce(t, *at, s, c.reduce, include_self=c.include_self),
        cleared=lambda t: ltorch.index_fill(t, *at, 0),
    )
    return dict(zip(("input", "source"), meeting.gradients(c.g, c.out), strict=True))
