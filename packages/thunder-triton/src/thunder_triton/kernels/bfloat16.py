"""bfloat16 in Triton's interpreter, which truncates to it, and whose `dot` multiplies its bits."""

from __future__ import annotations

import torch

from ..environment import is_interpreted

__all__ = ["as_factor", "stored"]


def as_factor(x: torch.Tensor) -> torch.Tensor:
    """Return a tensor in the dtype in which a kernel multiplies it: its own, on a GPU."""
    return x.float() if is_interpreted() and x.dtype is torch.bfloat16 else x


def stored(dtype: torch.dtype) -> torch.dtype:
    """Return the dtype in which a kernel stores results, which torch then converts: their own, on a GPU."""
    return torch.float32 if is_interpreted() and dtype is torch.bfloat16 else dtype
