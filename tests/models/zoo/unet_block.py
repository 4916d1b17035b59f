"""A diffusion-style U-Net: time embedding, group normalisation, one level, attention in the middle."""

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F


def timestep_embedding(t: Tensor, dim: int, max_period: int = 10000) -> Tensor:
    """Cosines and sines of the time (n,) at `dim / 2` frequencies: (n, dim)."""
    half = dim // 2
    freqs = torch.exp(-math.log(max_period) * torch.arange(0, half, dtype=torch.float32) / half).to(t.device)
    args = t[:, None].float() * freqs[None]
    embedding = torch.cat([torch.cos(args), torch.sin(args)], dim=-1)
    if dim % 2:
        embedding = torch.cat([embedding, torch.zeros_like(embedding[:, :1])], dim=-1)
    return embedding


class ResBlock(nn.Module):
    """Two convolutions; the time scales and shifts what lies between them."""

    def __init__(self, inputs: int, outputs: int, emb: int, dropout: float = 0.1) -> None:
        super().__init__()
        self.in_layers = nn.Sequential(
            nn.GroupNorm(4, inputs), nn.SiLU(), nn.Conv2d(inputs, outputs, 3, padding=1)
        )
        self.emb_layers = nn.Sequential(nn.SiLU(), nn.Linear(emb, 2 * outputs))
        self.out_norm = nn.GroupNorm(4, outputs)
        self.out_rest = nn.Sequential(
            nn.SiLU(), nn.Dropout(p=dropout), nn.Conv2d(outputs, outputs, 3, padding=1)
        )
        self.skip = nn.Identity() if inputs == outputs else nn.Conv2d(inputs, outputs, 1)

    def forward(self, x: Tensor, emb: Tensor) -> Tensor:
        h = self.in_layers(x)
        scale, shift = self.emb_layers(emb)[..., None, None].chunk(2, dim=1)
        h = self.out_norm(h) * (1 + scale) + shift
        return self.skip(x) + self.out_rest(h)


class AttentionBlock(nn.Module):
    """Attention over all pixels, written with `einsum`."""

    def __init__(self, channels: int, heads: int = 2) -> None:
        super().__init__()
        self.heads = heads
        self.norm = nn.GroupNorm(4, channels, eps=1e-6)
        self.qkv = nn.Conv1d(channels, 3 * channels, 1)
        self.proj = nn.Conv1d(channels, channels, 1)

    def forward(self, x: Tensor) -> Tensor:
        b, c, *spatial = x.shape
        flat = x.reshape(b, c, -1)
        q, k, v = self.qkv(self.norm(flat)).reshape(b * self.heads, -1, flat.shape[-1]).chunk(3, dim=1)
        scale = 1 / math.sqrt(math.sqrt(q.shape[1]))
        scores = torch.einsum("bct,bcs->bts", q * scale, k * scale)
        weight = torch.softmax(scores.float(), dim=-1).type(q.dtype)
        mixed = torch.einsum("bts,bcs->bct", weight, v).reshape(b, -1, flat.shape[-1])
        return (flat + self.proj(mixed)).reshape(b, c, *spatial)


class Upsample(nn.Module):
    """Twice the size by repetition, then a convolution."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        return self.conv(F.interpolate(x, scale_factor=2.0, mode="nearest"))


class UNet(nn.Module):
    """The predicted noise, of the image's shape."""

    def __init__(self, channels: int = 16, image_channels: int = 3) -> None:
        super().__init__()
        emb = 4 * channels
        self.channels = channels
        self.time = nn.Sequential(nn.Linear(channels, emb), nn.SiLU(), nn.Linear(emb, emb))
        self.stem = nn.Conv2d(image_channels, channels, 3, padding=1)
        self.down_res = ResBlock(channels, 2 * channels, emb)
        self.down = nn.Conv2d(2 * channels, 2 * channels, 3, stride=2, padding=1)
        self.middle = nn.ModuleList(
            [
                ResBlock(2 * channels, 2 * channels, emb),
                AttentionBlock(2 * channels),
                ResBlock(2 * channels, 2 * channels, emb),
            ]
        )
        self.up = Upsample(2 * channels)
        self.up_res = ResBlock(4 * channels, channels, emb)
        self.learned_up = nn.ConvTranspose2d(2 * channels, channels, kernel_size=2, stride=2)
        self.out = nn.Sequential(
            nn.GroupNorm(4, 2 * channels), nn.SiLU(), nn.Conv2d(2 * channels, image_channels, 3, padding=1)
        )

    def forward(self, x: Tensor, timesteps: Tensor) -> Tensor:
        emb = self.time(timestep_embedding(timesteps, self.channels))
        first = self.down_res(self.stem(x), emb)
        h = self.down(first)
        for layer in self.middle:
            h = layer(h, emb) if isinstance(layer, ResBlock) else layer(h)
        bypass = self.learned_up(h)
        h = self.up_res(torch.cat([self.up(h), first], dim=1), emb)
        return self.out(torch.cat([h, bypass], dim=1))


def make(seed: int) -> tuple[UNet, tuple[Any, ...], dict[str, Any]]:
    """Two noisy images at different times."""
    torch.manual_seed(seed)
    return UNet(), (torch.randn(2, 3, 8, 8),), {"timesteps": torch.tensor([3, 250])}
