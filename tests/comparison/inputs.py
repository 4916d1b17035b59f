"""Equal inputs for a program that is run twice, by eager and compiled, each time with other memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn

Make = Callable[[], Sequence[Any]]


def leaf(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64, grad: bool = True) -> torch.Tensor:
    """Return a leaf tensor of random numbers, far from zero, where many gradients jump."""
    generator = torch.Generator().manual_seed(seed)
    drawn = torch.rand(shape, generator=generator, dtype=torch.float64) + 0.25
    return drawn.to(dtype).requires_grad_(grad)


def copy_of(x: Any) -> Any:
    """Return a leaf with the values, strides and `requires_grad` of a tensor; other objects as they are."""
    if not isinstance(x, torch.Tensor):
        return x
    overlaps = any(stride == 0 and size > 1 for stride, size in zip(x.stride(), x.shape, strict=True))
    with torch.no_grad():
        if overlaps or x.is_conj() or x.is_neg():
            copied = x.detach().clone(memory_format=torch.preserve_format)
        else:
            copied = torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device=x.device).copy_(x)
    return copied.requires_grad_(x.requires_grad)


def copies(*inputs: Any) -> Make:
    """Return a function that makes equal inputs, each tensor a leaf with memory of its own."""
    return lambda: [copy_of(x) for x in inputs]


def buffers(module: nn.Module) -> dict[str, torch.Tensor]:
    """Return copies of all buffers by name, with those that are not persistent."""
    return {name: tensor.clone() for name, tensor in module.named_buffers()}
