"""The kernels: functions of torch tensors, which know nothing of thunder.

Eager computes each step on the whole tensor and writes it to memory before the next one reads it. These take
as many rows as fit the cache through all steps, and write the result only. Where memory is not contiguous
they compute as eager does, or copy it first.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

#: elements of a block: with the other operands of a step it stays in a cache of 2 MiB
BLOCK = 1 << 17


def swiglu(gate: Tensor, up: Tensor) -> Tensor:
    """``silu(gate) * up`` of two tensors of one shape and dtype.

    Shazeer, GLU variants improve Transformer, 2020. Written with torch's functions, for eager; programs that
    thunder compiles run `swiglu_forward` in its place.
    """
    same_type(gate, up)
    return torch.nn.functional.silu(gate) * up


def same_type(gate: object, up: object) -> None:
    """Raises ValueError for two tensors, or descriptions of tensors, of different shapes or dtypes."""
    one, other = ((tuple(x.shape), x.dtype) for x in (gate, up))  # type: ignore[attr-defined]
    if one != other:
        raise ValueError(f"swiglu takes tensors of one shape and dtype, not {one} and {other}")


def swiglu_forward(gate: Tensor, up: Tensor) -> Tensor:
    """``silu(gate) * up``; the only memory that it takes is the result's."""
    if not _contiguous(gate, up):
        return torch.nn.functional.silu(gate).mul_(up)
    out = torch.empty_like(gate)
    for x, u, o in _blocks(gate, up, out):
        torch.ops.aten.silu.out(x, out=o).mul_(u)
    return out


def swiglu_backward(grad: Tensor, gate: Tensor, up: Tensor) -> tuple[Tensor, Tensor]:
    """The gradients of `gate`, ``g u s (1 + x (1 - s))`` with ``s = sigmoid(x)``, and of `up`, ``g x s``."""
    grad_gate, grad_up = torch.empty_like(gate), torch.empty_like(up)
    if _contiguous(grad, gate, up):
        for g, x, u, dx, du in _blocks(grad, gate, up, grad_gate, grad_up):
            _swiglu_backward(g, x, u, dx, du)
    else:
        _swiglu_backward(grad, gate, up, grad_gate, grad_up)
    return grad_gate, grad_up


def _swiglu_backward(g: Tensor, x: Tensor, u: Tensor, dx: Tensor, du: Tensor) -> None:
    s = torch.sigmoid(x)
    torch.mul(x, s, out=du)
    torch.sub(1, s, out=dx).mul_(du).add_(s).mul_(g).mul_(u)
    du.mul_(g)


def rms_norm_forward(x: Tensor, weight: Tensor, eps: float, block: int = BLOCK) -> tuple[Tensor, Tensor]:
    """``x * r * weight`` of ``x: (*, n)`` with ``r = 1 / sqrt(mean(x²) + eps)``, and ``r: (*, 1)``.

    Zhang and Sennrich, Root Mean Square Layer Normalization, 2019. Both are contiguous, as eager's result is.
    """
    x = x.contiguous()
    norm = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
    rstd = norm.square_().div_(x.shape[-1]).add_(eps).rsqrt_()
    out = torch.empty_like(x)
    for rows, r, o in _blocks(*_rows(x, rstd, out), block=block):
        torch.mul(rows, r, out=o).mul_(weight)
    return out, rstd


def rms_norm_backward(
    grad: Tensor, x: Tensor, weight: Tensor, rstd: Tensor, block: int = BLOCK
) -> tuple[Tensor, Tensor]:
    """The gradients of `x`, ``r (h - x r² mean(h x))`` with ``h = g weight``, and of `weight`, the sum over
    the rows of ``g x r``.
    """
    if not _contiguous(grad, x):
        contiguous = grad.contiguous(), x.contiguous(), weight, rstd.contiguous()
        grad_x, grad_weight = rms_norm_backward(*contiguous, block)
        return torch.empty_like(x).copy_(grad_x), grad_weight
    grad_x, grad_weight = torch.empty_like(x), torch.zeros_like(weight)
    for g, rows, r, dx in _blocks(*_rows(grad, x, rstd, grad_x), block=block):
        normed = rows * r
        grad_weight += (g * normed).sum(0)
        torch.mul(g, weight, out=dx)
        mean = (dx * normed).mean(-1, keepdim=True)
        dx.addcmul_(normed, mean, value=-1).mul_(r)
    return grad_x, grad_weight


# -- blocks --------------------------------------------------------------------------------------------------


def _contiguous(*tensors: Tensor) -> bool:
    return all(x.is_contiguous() for x in tensors)


def _rows(*tensors: Tensor) -> tuple[Tensor, ...]:
    return tuple(x.view(-1, x.shape[-1]) for x in tensors)


def _blocks(*tensors: Tensor, block: int = BLOCK) -> Iterator[tuple[Tensor, ...]]:
    """The tensors in corresponding blocks of rows; if all have one shape, rows need not be kept together."""
    if len({x.shape for x in tensors}) == 1:
        tensors = tuple(x.view(-1) for x in tensors)
    first = tensors[0]
    width = first.shape[-1] if first.ndim > 1 else 1
    return zip(*(x.split(max(1, block // max(1, width))) for x in tensors), strict=True)
