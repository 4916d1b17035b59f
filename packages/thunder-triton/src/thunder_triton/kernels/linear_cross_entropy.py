"""Cross entropy of a linear layer's outputs, computed in chunks of rows, so that the logits are never whole.

The gradients of the inputs and of the weight are computed in the forward, while the logits of a chunk are
there (Hsu et al., Liger Kernel: Efficient Triton kernels for LLM training, 2024, section 3.2), for a sum of
losses; the backward multiplies them by the cotangent. A chunk has about as many logits as the inputs have
elements.

The logits are rounded to the inputs' dtype, as a linear layer's outputs are, and so are their gradients.
Losses and the saved gradients are float32, or float64 for float64.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
import triton

from ..environment import is_interpreted
from . import cross_entropy

__all__ = ["chunk_rows", "loss", "loss_and_gradients"]


def chunk_rows(rows: int, features: int, classes: int) -> int:
    """Return how many rows of (rows, features) have about rows * features logits of so many classes."""
    parts = triton.cdiv(classes, max(features, 1))
    return min(int(triton.next_power_of_2(triton.cdiv(max(rows, 1), max(parts, 1)))), max(rows, 1))


def loss(x: torch.Tensor, weight: torch.Tensor, target: torch.Tensor, ignore_index: int) -> torch.Tensor:
    """Return the mean loss, in float32 or float64. x: (n, features); weight: (classes, features)."""
    losses = [_losses(x[part], weight, target[part], ignore_index)[1] for part in _chunks(x, weight)]
    return torch.cat(losses).sum() / (target != ignore_index).sum()


def loss_and_gradients(
    x: torch.Tensor,
    weight: torch.Tensor,
    target: torch.Tensor,
    ignore_index: int,
    of_x: bool,
    of_weight: bool,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return the mean loss, the number of rows that count, and the gradients of the sum of losses.

    A gradient that is not needed is empty; they are in float32 or float64.
    """
    dtype = torch.float64 if x.dtype is torch.float64 else torch.float32
    gradient_of_x = torch.empty(x.shape if of_x else (0,), dtype=dtype, device=x.device)
    gradient_of_weight = torch.zeros(weight.shape if of_weight else (0,), dtype=dtype, device=x.device)
    one = torch.ones((), dtype=dtype, device=x.device)
    total = torch.zeros((), dtype=dtype, device=x.device)
    for part in _chunks(x, weight):
        logits, losses, logarithms = _losses(x[part], weight, target[part], ignore_index)
        total += losses.sum()
        cotangent = one.expand(losses.shape)
        gradient = cross_entropy.backward(logits, target[part], logarithms, cotangent, ignore_index, 0.0)
        del logits
        if of_x:
            gradient_of_x[part] = _product(gradient, weight, dtype)
        if of_weight:
            gradient_of_weight += _product(gradient.t(), x[part], dtype)
    count = (target != ignore_index).sum()
    return total / count, count, gradient_of_x, gradient_of_weight


def _chunks(x: torch.Tensor, weight: torch.Tensor) -> Iterator[slice]:
    rows = chunk_rows(x.shape[0], x.shape[1], weight.shape[0])
    for start in range(0, max(x.shape[0], 1), rows):
        yield slice(start, start + rows)


def _losses(
    x: torch.Tensor, weight: torch.Tensor, target: torch.Tensor, ignore_index: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return the logits of a chunk, the losses of its rows, and the logarithms of their sums."""
    logits = torch.nn.functional.linear(x, weight)
    return logits, *cross_entropy.forward(logits, target, ignore_index, 0.0)


def _product(a: torch.Tensor, b: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Return a matrix product that is accumulated and returned in a dtype."""
    if a.dtype is dtype:
        return a @ b
    if is_interpreted():  # a CPU has no product of bfloat16 with a result in float32
        return a.to(dtype) @ b.to(dtype)
    return torch.mm(a, b, out_dtype=dtype)
