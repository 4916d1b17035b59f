"""Rotary position embeddings (Su et al., RoFormer, arXiv:2104.09864)."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor

__all__ = ["apply_rope", "build_rope_cache"]


def build_rope_cache(
    seq_len: int,
    n_elem: int,
    device: torch.device | None = None,
    base: int = 10000,
    condense_ratio: int = 1,
    extra_config: Mapping[str, float] | None = None,
) -> tuple[Tensor, Tensor]:
    """Return cosines and sines of the rotation angles, each (seq_len, n_elem), float32.

    Position p rotates the elements i and i + n_elem / 2 by p / condense_ratio · base^(-2i / n_elem).
    `extra_config` rescales the frequencies for longer texts: all of them by `1 / factor`, or, with
    `original_max_seq_len`, `low_freq_factor` and `high_freq_factor`, those of long waves only (Llama 3.1).
    """
    frequencies = base ** -(torch.arange(0, n_elem, 2, device=device).float() / n_elem)
    if extra_config is not None:
        frequencies = _rescaled(frequencies, **extra_config)
    positions = torch.arange(seq_len, device=device).float() / condense_ratio
    angles = torch.outer(positions, frequencies).repeat(1, 2)
    if n_elem > 1:
        angles = angles[:, :n_elem]
    return angles.cos(), angles.sin()


def _rescaled(
    frequencies: Tensor,
    *,
    factor: float,
    original_max_seq_len: float | None = None,
    low_freq_factor: float = 1.0,
    high_freq_factor: float = 4.0,
) -> Tensor:
    """Return frequencies for texts that are `factor` times longer, from those of short texts.

    A wave that turns more than `high_freq_factor` times in the original length keeps its frequency, one that
    turns less than `low_freq_factor` times gets `1 / factor` of it, and between them the share is linear.
    """
    if original_max_seq_len is None:
        return frequencies / factor
    turns = original_max_seq_len * frequencies / (2 * math.pi)
    share = ((turns - low_freq_factor) / (high_freq_factor - low_freq_factor)).clamp(0, 1)
    return frequencies * (share + (1 - share) / factor)


def apply_rope(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Return `x` (B, heads, T, n) rotated by angles whose cosines and sines are (B or 1, T, n)."""
    half = x.size(-1) // 2
    turned = torch.cat((-x[..., half:], x[..., :half]), dim=-1)
    rotated = x * cos.unsqueeze(1) + turned * sin.unsqueeze(1)
    return rotated.to(x.dtype)
