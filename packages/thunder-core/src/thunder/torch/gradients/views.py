"""Gradients of views: the backward of a view is a view of the gradient, where one exists."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from thunder.base.devices import Device
from thunder.base.dtypes import int64
from thunder.base.memory_layout import element_span, may_repeat
from thunder.ir.proxies import TensorProxy
from thunder.ops import prims
from thunder.ops.gradient_rules import Formula, VjpCall, conj, formulas
from thunder.ops.operator import NONDIFFERENTIABLE
from thunder.torch.broadcasting import canonical_dim
from thunder.torch.gradients.backward_kernels import kernel
from thunder.torch.gradients.selection_adjoints import reshaped, zeros
from thunder.torch.namespace import ltorch
from thunder.torch.registration import torchsymbol
from thunder.torch.rows import shape as _shape  # noqa: F401
from thunder.torch.rows import torch_kernels as _rare  # noqa: F401  (the rows)

# -- other shapes --------------------------------------------------------------------------------------------


def _in_shape_of_a(c: VjpCall) -> TensorProxy:
    return reshaped(c.g, c.a.shape)


def _in_shape_of_input(c: VjpCall) -> TensorProxy:
    return reshaped(c.g, c.input.shape)


formulas("prims.reshape", "prims.view", "prims.squeeze", a=_in_shape_of_a)
formulas(
    "torch.reshape",
    "torch.Tensor.view",
    "torch.Tensor.view_as",
    "torch.ravel",
    "torch.flatten",
    "torch.unflatten",
    "torch.squeeze",
    "torch.unsqueeze",
    input=_in_shape_of_input,
)


# -- broadcasting --------------------------------------------------------------------------------------------


def _broadcast_in_dim(c: VjpCall) -> TensorProxy:
    """Sum over the dimensions that are new or were repeated."""
    stretched = [
        d
        for d, size in enumerate(c.g.shape)
        if d not in c.broadcast_dimensions or c.a.shape[c.broadcast_dimensions.index(d)] != size
    ]
    summed = [d for d in stretched if c.g.shape[d] != 1]
    return reshaped(prims.sum(c.g, tuple(summed)) if summed else c.g, c.a.shape)


formulas("prims.broadcast_in_dim", a=_broadcast_in_dim)
formulas("torch.Tensor.expand", input=lambda c: c.g)
formulas("torch.Tensor.sum_to_size", input=lambda c: ltorch.expand(c.g, tuple(c.input.shape)))


# -- order of dimensions -------------------------------------------------------------------------------------


def inverse(order: Sequence[int]) -> tuple[int, ...]:
    """Return the inverse of a permutation."""
    return tuple(order.index(d) for d in range(len(order)))


def _permute(c: VjpCall) -> TensorProxy:
    rank = len(c.input.shape)
    return ltorch.permute(c.g, inverse([canonical_dim(d, rank) for d in c.dims]))


formulas("prims.transpose", a=lambda c: prims.transpose(c.g, inverse(c.permutation)))
formulas("torch.transpose", input=lambda c: ltorch.transpose(c.g, c.dim0, c.dim1))
formulas("torch.t", input=lambda c: ltorch.t(c.g))
formulas("torch.permute", input=_permute)
formulas("torch.movedim", input=lambda c: ltorch.movedim(c.g, c.destination, c.source))
formulas("torch.adjoint", input=lambda c: ltorch.adjoint(c.g))

# -- complex numbers as pairs --------------------------------------------------------------------------------


def _as_complex(c: VjpCall) -> TensorProxy:
    """Return complex numbers from pairs that may not be adjacent in the gradient's memory."""
    return prims.view_as_complex(ltorch.contiguous(c.g))


formulas("prims.conj", a=lambda c: prims.conj(c.g))
formulas("torch.conj", input=lambda c: conj(c.g))
formulas("prims.view_as_real", a=_as_complex)
formulas("torch.view_as_real", input=_as_complex)
formulas("prims.view_as_complex", a=lambda c: prims.view_as_real(ltorch.resolve_conj(c.g)))
formulas("torch.view_as_complex", input=lambda c: prims.view_as_real(ltorch.resolve_conj(c.g)))

# -- diagonals and windows -----------------------------------------------------------------------------------


@kernel("diagonal_backward")
def diagonal_backward(
    grad_output: TensorProxy, input_sizes: Sequence[int], offset: int, dim1: int, dim2: int
) -> TensorProxy:
    """Zeros with ``grad_output`` on a diagonal."""
    return ltorch.diagonal_scatter(zeros(input_sizes, grad_output), grad_output, offset, dim1, dim2)


def _diagonal(argument: str) -> Formula:
    return lambda c: ltorch.diagonal_backward(
        c.g, tuple(getattr(c, argument).shape), c.offset, c.dim1, c.dim2
    )


formulas("prims.diagonal", a=_diagonal("a"))
formulas("torch.diagonal", input=_diagonal("input"))


@kernel("unfold_backward")
def unfold_backward(
    grad_in: TensorProxy, input_sizes: Sequence[int], dim: int, size: int, step: int
) -> TensorProxy:
    """The sum of windows (the last dimension of ``grad_in``) where they overlap."""
    count, last = grad_in.shape[dim], len(grad_in.shape) - 1
    beside = ltorch.movedim(grad_in, last, dim + 1)
    flat = reshaped(beside, (*grad_in.shape[:dim], count * size, *grad_in.shape[dim + 1 : -1]))
    first = ltorch.arange(0, count * step, step, device=grad_in.device)
    places = ltorch.unsqueeze(first, 1) + ltorch.arange(size, device=grad_in.device)
    return prims.index_add(zeros(input_sizes, grad_in), reshaped(places, (count * size,)), flat, dim)


def _unfold(c: VjpCall) -> TensorProxy:
    if not c.input.shape:
        return reshaped(c.g, ())
    dim = canonical_dim(c.dimension, len(c.input.shape))
    return ltorch.unfold_backward(c.g, c.input.shape, dim, c.size, c.step)


formulas("torch.Tensor.unfold", input=_unfold)
formulas("prims.unfold", a=lambda c: ltorch.unfold_backward(c.g, c.a.shape, c.dim, c.size, c.step))
formulas("ltorch.unfold_backward", grad_in=lambda c: prims.unfold(c.g, c.dim, c.size, c.step))


# -- windows onto memory -------------------------------------------------------------------------------------

# The strides of a tensor are known at run time, so these rows take a tensor. The forward keeps its layout
# alone: of a tensor that is overwritten a clone is saved, which may have other strides.


def _layout_of(input: torch.Tensor) -> torch.Tensor:
    elements = input.untyped_storage().nbytes() // input.element_size()
    memory = torch.empty(elements, dtype=input.dtype, device="meta")
    return memory.as_strided(input.shape, input.stride(), input.storage_offset())


@torchsymbol(id="ltorch.layout_of", eager=_layout_of, prim=True, vjp=NONDIFFERENTIABLE)
def layout_of(input: TensorProxy) -> TensorProxy:
    """A tensor without data that has the shape, the strides and the offset of ``input``."""
    return TensorProxy(shape=input.shape, device=Device("meta"), dtype=input.dtype)


def _places(
    input: torch.Tensor, size: Sequence[int], stride: Sequence[int], offset: int | None, device: torch.device
) -> tuple[torch.Tensor, torch.Tensor, int]:
    """Return the indices of the elements of a window and of ``input``, and their range.

    Indices are vectors of integers into the part of memory that contains both; its length comes last.
    """
    start = int(input.storage_offset())
    windows = (
        (tuple(size), tuple(stride), start if offset is None else offset),
        (tuple(input.shape), input.stride(), start),
    )
    first = min(at for _, _, at in windows)
    ends = [at - first + element_span(sizes, strides) for sizes, strides, at in windows if 0 not in sizes]
    length = max(ends, default=0)
    numbers = torch.arange(length, device=device)
    shown, whole = (
        numbers.as_strided(sizes, strides, at - first).reshape(-1) for sizes, strides, at in windows
    )
    return shown, whole, length


def _shared(memory: torch.Tensor, whole: torch.Tensor) -> torch.Tensor:
    """Divide memory equally among the elements of a tensor that share it."""
    return memory / torch.bincount(whole, minlength=len(memory)).clamp(min=1)


def _as_strided_backward(
    grad: torch.Tensor, input: torch.Tensor, size: Any, stride: Any, offset: int | None
) -> torch.Tensor:
    shown, whole, length = _places(input, size, stride, offset, grad.device)
    memory = grad.new_zeros(length).index_add_(0, shown, grad.reshape(-1))
    return _shared(memory, whole)[whole].reshape(input.shape)


@torchsymbol(id="ltorch.as_strided_backward", eager=_as_strided_backward, prim=True)
def as_strided_backward(
    grad: TensorProxy, input: TensorProxy, size: Sequence[int], stride: Sequence[int], offset: int | None
) -> TensorProxy:
    """The gradient of ``input`` from that of a window onto its memory.

    Elements of memory that occur several times in the window get the sum.
    """
    return TensorProxy(shape=input.shape, device=grad.device, dtype=grad.dtype)


def _as_strided_like(
    values: torch.Tensor, input: torch.Tensor, size: Any, stride: Any, offset: int | None
) -> torch.Tensor:
    shown, whole, length = _places(input, size, stride, offset, values.device)
    memory = values.new_zeros(length).index_add_(0, whole, values.reshape(-1))
    return _shared(memory, whole)[shown].reshape(size)


@torchsymbol(id="ltorch.as_strided_like", eager=_as_strided_like, prim=True)
def as_strided_like(
    values: TensorProxy, input: TensorProxy, size: Sequence[int], stride: Sequence[int], offset: int | None
) -> TensorProxy:
    """The window onto memory in which ``values`` have the layout of ``input``."""
    return TensorProxy(shape=size, device=values.device, dtype=values.dtype)


formulas(
    "prims.as_strided",
    a=lambda c: ltorch.as_strided_backward(c.g, ltorch.layout_of(c.a), c.size, c.stride, c.offset),
)
formulas(
    "torch.as_strided",
    input=lambda c: ltorch.as_strided_backward(
        c.g, ltorch.layout_of(c.input), c.size, c.stride, c.storage_offset
    ),
)
formulas(
    "ltorch.as_strided_backward",
    grad=lambda c: ltorch.as_strided_like(c.g, c.input, c.size, c.stride, c.offset),
)
formulas(
    "ltorch.as_strided_like",
    values=lambda c: ltorch.as_strided_backward(c.g, c.input, c.size, c.stride, c.offset),
)


def _outside_window(c: VjpCall) -> TensorProxy:
    ones = ltorch.ones(tuple(c.size), dtype=c.g.dtype, device=c.g.device)
    shown = ltorch.as_strided_backward(ones, ltorch.layout_of(c.a), c.size, c.stride, c.offset)
    return ltorch.where(shown == 0, c.g, 0)


def _in_window(c: VjpCall) -> TensorProxy:
    """Return the gradient of the values written through a window.

    Of several values written to one element of memory, the one that remains gets the gradient. Writing their
    numbers through the same window, in the same order, gives the remaining ones.
    """
    shown: TensorProxy = ltorch.as_strided_like(c.g, ltorch.layout_of(c.a), c.size, c.stride, c.offset)
    size, stride = tuple(c.size), tuple(c.stride)
    if not may_repeat(size, stride):
        return shown
    memory = ltorch.zeros((element_span(size, stride),), dtype=int64, device=c.g.device)
    numbers = reshaped(ltorch.arange(math.prod(size), device=c.g.device), size)
    written = prims.as_strided_scatter(memory, numbers, size, stride, 0)
    remaining = prims.as_strided(written, size, stride, 0)
    return ltorch.where(remaining == numbers, shown, 0)


formulas("prims.as_strided_scatter", a=_outside_window, value=_in_window)
formulas(
    "prims.diagonal_scatter",
    a=lambda c: prims.diagonal_scatter(c.g, zeros(c.value.shape, c.g), c.offset, c.dim1, c.dim2),
    value=lambda c: prims.diagonal(c.g, c.offset, c.dim1, c.dim2),
)
formulas(
    "torch.diagonal_scatter",
    input=lambda c: ltorch.diagonal_scatter(c.g, zeros(c.src.shape, c.g), c.offset, c.dim1, c.dim2),
    src=lambda c: ltorch.diagonal(c.g, c.offset, c.dim1, c.dim2),
)
