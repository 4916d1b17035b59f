"""Models of elementwise operators and reductions, and of convolutions that these follow."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

__all__ = ["Elementwise", "convolutions"]


class Elementwise(nn.Module):
    """GELU, tanh and LayerNorm of rows of 1024 numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(1024))

    def forward(self, x: Tensor) -> Tensor:
        """Return the norm of gelu(w x) + tanh(x), shaped as `x`: (n, 1024)."""
        return F.layer_norm(F.gelu(x * self.weight) + x.tanh(), (1024,))


def convolutions() -> nn.Module:
    """Return three convolutions, each with BatchNorm and ReLU."""
    layers: list[nn.Module] = []
    channels = 3
    for width in (16, 32, 32):
        layers += [nn.Conv2d(channels, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU()]
        channels = width
    return nn.Sequential(*layers)
