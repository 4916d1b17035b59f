"""Gradients of views: the backward of a view is a view of the gradient, wherever one shows it."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from thunder.core import prims
from thunder.core.dtypes import int64
from thunder.core.gradient_rules import Call, Formula, conj, formulas, vjp
from thunder.core.proxies import TensorProxy
from thunder.core.strides import strides_of
from thunder.core.tracectx import get_tracectx
from thunder.torch import rare as _rare  # noqa: F401  (the rows)
from thunder.torch import shape as _shape  # noqa: F401
from thunder.torch.broadcasting import canonical_dim
from thunder.torch.gradients.kernels import kernel
from thunder.torch.gradients.placing import reshaped, zeros
from thunder.torch.namespace import ltorch

# -- other shapes --------------------------------------------------------------------------------------------


def _in_shape_of_a(c: Call) -> TensorProxy:
    return reshaped(c.g, c.a.shape)


def _in_shape_of_input(c: Call) -> TensorProxy:
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


def _broadcast_in_dim(c: Call) -> TensorProxy:
    """Sums over the dimensions that are new or were stretched."""
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
    """The permutation that undoes another one."""
    return tuple(order.index(d) for d in range(len(order)))


def _permute(c: Call) -> TensorProxy:
    rank = len(c.input.shape)
    return ltorch.permute(c.g, inverse([canonical_dim(d, rank) for d in c.dims]))


formulas("prims.transpose", a=lambda c: prims.transpose(c.g, inverse(c.permutation)))
formulas("torch.transpose", input=lambda c: ltorch.transpose(c.g, c.dim0, c.dim1))
formulas("torch.t", input=lambda c: ltorch.t(c.g))
formulas("torch.permute", input=_permute)
formulas("torch.movedim", input=lambda c: ltorch.movedim(c.g, c.destination, c.source))
formulas("torch.adjoint", input=lambda c: ltorch.adjoint(c.g))

# -- complex numbers as pairs --------------------------------------------------------------------------------


def _as_complex(c: Call) -> TensorProxy:
    """Numbers of two neighbours in memory, which those of a gradient need not be."""
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
    places = _positions((count, size), (step, 1), 0, grad_in)
    return prims.index_add(zeros(input_sizes, grad_in), places, flat, dim)


def _positions(size: Sequence[int], stride: Sequence[int], offset: int, like: TensorProxy) -> TensorProxy:
    """Where the elements of a window lie in memory, as a vector of integers."""
    where = ltorch.full(tuple(size), offset, dtype=torch.int64, device=like.device)
    for d, (length, step) in enumerate(zip(size, stride, strict=True)):
        along = prims.iota(length, start=0, step=step, device=like.device, dtype=int64)
        where = prims.add(where, prims.broadcast_in_dim(along, tuple(size), (d,)))
    return reshaped(where, (math.prod(size),))


def _unfold(c: Call) -> TensorProxy:
    if not c.input.shape:
        return reshaped(c.g, ())
    dim = canonical_dim(c.dimension, len(c.input.shape))
    return ltorch.unfold_backward(c.g, c.input.shape, dim, c.size, c.step)


formulas("torch.Tensor.unfold", input=_unfold)
formulas("prims.unfold", a=lambda c: ltorch.unfold_backward(c.g, c.a.shape, c.dim, c.size, c.step))
formulas("ltorch.unfold_backward", grad_in=lambda c: prims.unfold(c.g, c.dim, c.size, c.step))


# -- windows onto memory -------------------------------------------------------------------------------------


def _window(a: TensorProxy) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The sizes and strides with which a tensor lies in its memory."""
    return tuple(a.shape), tuple(strides_of(a, get_tracectx()))


def _reach(size: Sequence[int], stride: Sequence[int], offset: int) -> int:
    return offset + 1 + sum((n - 1) * step for n, step in zip(size, stride, strict=True)) if all(size) else 0


def _through_window(
    g: TensorProxy, a: TensorProxy, size: Sequence[int], stride: Sequence[int], offset: int
) -> TensorProxy:
    """The gradient of ``a`` from that of a window onto its memory, which begins where ``a`` does.

    Elements of memory that the window shows several times get the sum; where those of ``a`` share memory,
    each gets an equal part.
    """
    own_size, own_stride = _window(a)
    length = max(_reach(size, stride, offset), _reach(own_size, own_stride, 0))
    shown, own = _positions(size, stride, offset, g), _positions(own_size, own_stride, 0, g)
    memory = prims.index_add(zeros((length,), g), shown, reshaped(g, (math.prod(size),)), 0)
    if math.prod(own_size) != _reach(own_size, own_stride, 0):
        ones = ltorch.ones((math.prod(own_size),), dtype=g.dtype, device=g.device)
        memory = ltorch.div(memory, prims.index_add(zeros((length,), g), own, ones, 0).clamp(min=1))
    return reshaped(prims.take(memory, own, 0), own_size)


formulas("prims.as_strided", a=lambda c: _through_window(c.g, c.a, c.size, c.stride, c.offset))
formulas(
    "torch.as_strided",
    input=lambda c: _through_window(c.g, c.input, c.size, c.stride, c.storage_offset or 0),
)


@vjp("prims.as_strided_scatter")
def _as_strided_scatter(c: Call) -> dict[str, TensorProxy]:
    """The cotangent laid out as ``a`` is, so that the same window shows the same elements of it."""
    order = sorted(range(len(c.a.shape)), key=lambda d: (_window(c.a)[1][d], -d))
    g = prims.stride_order(c.g, tuple(order.index(d) for d in range(len(order))))
    hole = zeros(c.size, c.g)
    return {
        "a": prims.as_strided_scatter(g, hole, c.size, c.stride, c.offset),
        "value": prims.as_strided(g, c.size, c.stride, c.offset),
    }


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
