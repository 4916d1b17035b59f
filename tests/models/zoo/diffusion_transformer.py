"""A diffusion transformer: patches, whose normalisation is shifted and scaled by time and class."""

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F


def modulate(x: Tensor, shift: Tensor, scale: Tensor) -> Tensor:
    """Each channel of (n, t, c) scaled and shifted by (n, c)."""
    return x * (1 + scale.unsqueeze(1)) + shift.unsqueeze(1)


class TimestepEmbedder(nn.Module):
    """Cosines and sines of the time, then two layers."""

    def __init__(self, width: int, frequencies: int = 16) -> None:
        super().__init__()
        self.mlp = nn.Sequential(nn.Linear(frequencies, width), nn.SiLU(), nn.Linear(width, width))
        half = frequencies // 2
        freqs = torch.exp(-math.log(10000) * torch.arange(half) / half)
        self.register_buffer("freqs", freqs, persistent=False)

    def forward(self, t: Tensor) -> Tensor:
        args = t[:, None] * self.freqs[None]
        return self.mlp(torch.cat([args.cos(), args.sin()], dim=-1))


class LabelEmbedder(nn.Module):
    """Classes, some of which are forgotten while training, for guidance without a classifier."""

    def __init__(self, classes: int, width: int, forgotten: float = 0.3) -> None:
        super().__init__()
        self.table = nn.Embedding(classes + 1, width)
        self.classes, self.forgotten = classes, forgotten

    def forward(self, labels: Tensor) -> Tensor:
        if self.training and self.forgotten > 0:
            drop = torch.rand(labels.shape[0], device=labels.device) < self.forgotten
            labels = torch.where(drop, self.classes, labels)
        return self.table(labels)


class Attention(nn.Module):
    """Over all patches, queries and keys normalised."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.q_norm, self.k_norm = nn.RMSNorm(width // heads), nn.RMSNorm(width // heads)
        self.proj = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        n, t, c = x.shape
        q, k, v = self.qkv(x).reshape(n, t, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4).unbind(0)
        mixed = F.scaled_dot_product_attention(self.q_norm(q), self.k_norm(k), v)
        return self.proj(mixed.transpose(1, 2).reshape(n, t, c))


class Block(nn.Module):
    """Attention and a feed-forward, each gated: at the start both are shut."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(width, elementwise_affine=False, eps=1e-6)
        self.norm2 = nn.LayerNorm(width, elementwise_affine=False, eps=1e-6)
        self.attn = Attention(width, heads)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(approximate="tanh"), nn.Linear(4 * width, width)
        )
        self.ada = nn.Sequential(nn.SiLU(), nn.Linear(width, 6 * width))

    def forward(self, x: Tensor, c: Tensor) -> Tensor:
        shift1, scale1, gate1, shift2, scale2, gate2 = self.ada(c).chunk(6, dim=1)
        x = x + gate1.unsqueeze(1) * self.attn(modulate(self.norm1(x), shift1, scale1))
        return x + gate2.unsqueeze(1) * self.mlp(modulate(self.norm2(x), shift2, scale2))


class DiffusionTransformer(nn.Module):
    """Predicted noise and variance (n, 2 * channels, h, w)."""

    def __init__(
        self, side: int = 8, patch: int = 2, channels: int = 4, width: int = 24, depth: int = 2
    ) -> None:
        super().__init__()
        self.patch, self.grid, self.outputs = patch, side // patch, 2 * channels
        self.embed = nn.Conv2d(channels, width, patch, stride=patch)
        self.position = nn.Parameter(torch.randn(1, self.grid**2, width) * 0.02)
        self.time, self.label = TimestepEmbedder(width), LabelEmbedder(5, width)
        self.blocks = nn.ModuleList([Block(width, heads=3) for _ in range(depth)])
        self.norm = nn.LayerNorm(width, elementwise_affine=False, eps=1e-6)
        self.ada = nn.Sequential(nn.SiLU(), nn.Linear(width, 2 * width))
        self.head = nn.Linear(width, patch * patch * self.outputs)

    def unpatchify(self, x: Tensor) -> Tensor:
        """(n, t, patch * patch * c) to (n, c, h, w)."""
        g, p, c = self.grid, self.patch, self.outputs
        x = x.reshape(x.shape[0], g, g, p, p, c)
        return torch.einsum("nhwpqc->nchpwq", x).reshape(x.shape[0], c, g * p, g * p)

    def forward(self, x: Tensor, t: Tensor, y: Tensor) -> Tensor:
        x = self.embed(x).flatten(2).transpose(1, 2) + self.position
        c = self.time(t) + self.label(y)
        for block in self.blocks:
            x = block(x, c)
        shift, scale = self.ada(c).chunk(2, dim=1)
        return self.unpatchify(self.head(modulate(self.norm(x), shift, scale)))


def make(seed: int) -> tuple[DiffusionTransformer, tuple[Any, ...], dict[str, Any]]:
    """Three noisy latents at different times."""
    torch.manual_seed(seed)
    kwargs = {"t": torch.tensor([0.0, 17.0, 900.0]), "y": torch.tensor([1, 4, 0])}
    return DiffusionTransformer(), (torch.randn(3, 4, 8, 8),), kwargs
