"""Cross entropy of a linear layer on a CPU, in chunks of rows, so that the logits are never whole.

The gradients are computed in the forward, while the logits of a chunk are there (Hsu et al., Liger Kernel:
Efficient Triton kernels for LLM training, 2024, section 3.2), for a sum of losses. All tensors but the
targets have one dtype, float32 or float64.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import torch
from torch.nn import functional as F

__all__ = ["CHUNK_ROWS", "loss", "sum_and_gradients"]

#: rows whose logits are computed at a time: enough of them for products that are as fast as whole ones
CHUNK_ROWS: Final = 256


def loss(x: torch.Tensor, weight: torch.Tensor, target: torch.Tensor, ignore_index: int) -> torch.Tensor:
    """Return the mean loss of ``x (n, features)`` and ``weight (classes, features)``.

    It is of the rows whose ``target (n,)`` is not ``ignore_index``. Raises IndexError for a target that is no
    class.
    """
    total = x.new_zeros(())
    for part in _chunks(x):
        total += _sum(_logarithms(x[part], weight), target[part], ignore_index)
    return total / (target != ignore_index).sum()


def sum_and_gradients(
    x: torch.Tensor,
    weight: torch.Tensor,
    target: torch.Tensor,
    ignore_index: int,
    of_x: bool,
    of_weight: bool,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return the sum of losses, and its gradients; one that is not needed is empty.

    Args:
        x: (n, features).
        weight: (classes, features).
        target: (n,), int64, a class or ``ignore_index``.

    Raises IndexError for a target that is neither.
    """
    for_x = x.new_empty(x.shape if of_x else (0,))
    for_weight = x.new_zeros(weight.shape if of_weight else (0,))
    total = x.new_zeros(())
    for part in _chunks(x):
        classes = target[part]
        gradient = _logarithms(x[part], weight)
        total += _sum(gradient, classes, ignore_index)
        counts = (classes != ignore_index)[:, None]
        gradient.exp_()
        gradient.scatter_add_(1, classes[:, None].where(counts, 0), counts.to(x.dtype).neg_())
        gradient.mul_(counts)
        if of_x:
            torch.mm(gradient, weight, out=for_x[part])
        if of_weight:
            for_weight.addmm_(gradient.t(), x[part])
    return total, for_x, for_weight


def _chunks(x: torch.Tensor) -> Iterator[slice]:
    for start in range(0, x.shape[0], CHUNK_ROWS):
        yield slice(start, start + CHUNK_ROWS)


def _logarithms(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Return the logarithms of the probabilities of a chunk."""
    return torch.log_softmax(F.linear(x, weight), 1)


def _sum(logarithms: torch.Tensor, target: torch.Tensor, ignore_index: int) -> torch.Tensor:
    return F.nll_loss(logarithms, target, ignore_index=ignore_index, reduction="sum")
