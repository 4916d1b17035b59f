"""Gradients of operators that repeat or turn tensors, or write to diagonals and patches."""

from __future__ import annotations

import math
from typing import Any

from thunder.ir.proxies import TensorProxy
from thunder.ops import prims
from thunder.ops.gradient_rules import VjpCall, conj, fitted, formulas, gradient_rule
from thunder.ops.prims import get_grad, put_grad
from thunder.torch.broadcasting import canonical_dim
from thunder.torch.gradients.selection_adjoints import reshaped
from thunder.torch.namespace import ltorch
from thunder.torch.rows import padding, rearrangement, torch_kernels  # noqa: F401  (the rows)
from thunder.torch.rows.nn.pool import fold, unfold

Tensor = TensorProxy

# -- repeating -----------------------------------------------------------------------------------------------


def _repeat(c: VjpCall) -> Tensor:
    """Undo ``repeat``: view each dimension as (count, size) and sum the counts."""
    shape = (*[1] * (len(c.repeats) - len(c.input.shape)), *c.input.shape)
    spread = [x for pair in zip(c.repeats, shape, strict=True) for x in pair]
    counts = tuple(2 * i for i, times in enumerate(c.repeats) if times != 1)
    g = reshaped(c.g, spread)
    return reshaped(prims.sum(g, counts) if counts else g, c.input.shape)


def _repeat_interleave(c: VjpCall) -> Tensor:
    shape = (math.prod(c.input.shape),) if c.dim is None else tuple(c.input.shape) or (1,)
    dim = canonical_dim(c.dim or 0, len(shape))
    g = reshaped(c.g, (*shape[: dim + 1], c.repeats, *shape[dim + 1 :]))
    return reshaped(prims.sum(g, (dim + 1,)), c.input.shape)


formulas("torch.Tensor.repeat", input=_repeat)
formulas("torch.repeat_interleave", input=_repeat_interleave)

# -- turning -------------------------------------------------------------------------------------------------


def _roll(c: VjpCall) -> Tensor:
    back = tuple(-s for s in c.shifts) if isinstance(c.shifts, tuple | list) else -c.shifts
    return ltorch.roll(c.g, back, c.dims)


formulas("prims.flip", a=lambda c: prims.flip(c.g, c.dims))
formulas("torch.flip", input=lambda c: ltorch.flip(c.g, c.dims))
formulas("torch.roll", input=_roll)
formulas("torch.rot90", input=lambda c: ltorch.rot90(c.g, -c.k, c.dims))
formulas("torch.fft.fftshift", input=lambda c: ltorch.ifftshift(c.g, c.dim))
formulas("torch.fft.ifftshift", input=lambda c: ltorch.fftshift(c.g, c.dim))

# -- diagonals -----------------------------------------------------------------------------------------------


def _diag(c: VjpCall) -> Tensor:
    if len(c.input.shape) == 1:
        return ltorch.diagonal(c.g, c.diagonal)
    return ltorch.diagonal_backward(c.g, c.input.shape, c.diagonal, 0, 1)


formulas("torch.diag", input=_diag)
formulas("torch.diag_embed", input=lambda c: ltorch.diagonal(c.g, c.offset, c.dim1, c.dim2))
formulas("torch.diagflat", input=lambda c: reshaped(ltorch.diagonal(c.g, c.offset), c.input.shape))


@gradient_rule("torch.block_diag")
def block_diag(*tensors: Tensor) -> Tensor:
    """Cut the blocks out; a vector is a row, a number a block of one."""
    out = ltorch.block_diag(*tensors)
    g = get_grad(out)
    row = column = 0
    for t in tensors:
        height, width = (1, *t.shape)[-2:] if t.shape else (1, 1)
        if t.requires_grad:
            block = prims.slice_prim(g, (row, column), (row + height, column + width))
            put_grad(t, fitted(reshaped(block, t.shape), t))
        row, column = row + height, column + width
    return out


# -- channels, space and patches -----------------------------------------------------------------------------

formulas("torch.nn.functional.pixel_shuffle", input=lambda c: ltorch.pixel_unshuffle(c.g, c.upscale_factor))
formulas("torch.nn.functional.pixel_unshuffle", input=lambda c: ltorch.pixel_shuffle(c.g, c.downscale_factor))
formulas("torch.channel_shuffle", input=lambda c: ltorch.channel_shuffle(c.g, c.input.shape[1] // c.groups))


_PATCHES = ("kernel_size", "dilation", "padding", "stride")


def _patches(c: VjpCall) -> list[Any]:
    return [getattr(c, name) for name in _PATCHES]


formulas("torch.nn.functional.fold", input=lambda c: unfold(c.g, *_patches(c)))
formulas("torch.nn.functional.unfold", input=lambda c: fold(c.g, tuple(c.input.shape[-2:]), *_patches(c)))

# -- products of all with all --------------------------------------------------------------------------------


@gradient_rule("torch.cartesian_prod")
def cartesian_prod(*tensors: Tensor) -> Tensor:
    """Sum the rows that contain an element: all combinations of the other tensors' elements."""
    out = ltorch.cartesian_prod(*tensors)
    g = get_grad(out)
    grid = reshaped(g, (*(t.shape[0] for t in tensors), len(tensors)))
    for i, t in enumerate(tensors):
        if t.requires_grad:
            others = tuple(d for d in range(len(tensors)) if d != i)
            column = ltorch.select(grid, -1, i)
            put_grad(t, fitted(prims.sum(column, others) if others else column, t))
    return out


def _interleaved(c: VjpCall) -> tuple[Tensor, Tensor, Tensor, int]:
    """Return the cotangent as ``(a0, b0, a1, b1, …)``, and the factors in that form."""
    rank = max(len(c.input.shape), len(c.other.shape))
    a = (*[1] * (rank - len(c.input.shape)), *c.input.shape)
    b = (*[1] * (rank - len(c.other.shape)), *c.other.shape)
    g = reshaped(c.g, [x for pair in zip(a, b, strict=True) for x in pair])
    input = reshaped(c.input, [x for n in a for x in (n, 1)])
    other = reshaped(c.other, [x for n in b for x in (1, n)])
    return g, input, other, rank


def _kron_input(c: VjpCall) -> Tensor:
    g, _, other, rank = _interleaved(c)
    return reshaped(prims.sum(ltorch.mul(g, conj(other)), tuple(range(1, 2 * rank, 2))), c.input.shape)


def _kron_other(c: VjpCall) -> Tensor:
    g, input, _, rank = _interleaved(c)
    return reshaped(prims.sum(ltorch.mul(g, conj(input)), tuple(range(0, 2 * rank, 2))), c.other.shape)


formulas("torch.kron", input=_kron_input, other=_kron_other)
