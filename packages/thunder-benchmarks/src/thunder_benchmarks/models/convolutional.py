"""Convolutional models: a residual network, and the U-Net of a diffusion model."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

__all__ = ["ResNet", "UNet"]


class BasicBlock(nn.Module):
    """Two convolutions of 3 by 3 with BatchNorm around a residual connection."""

    def __init__(self, channels: int, width: int, stride: int) -> None:
        super().__init__()
        self.conv_1 = nn.Conv2d(channels, width, 3, stride=stride, padding=1, bias=False)
        self.norm_1 = nn.BatchNorm2d(width)
        self.conv_2 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.norm_2 = nn.BatchNorm2d(width)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or channels != width:
            projection = nn.Conv2d(channels, width, 1, stride=stride, bias=False)
            self.shortcut = nn.Sequential(projection, nn.BatchNorm2d(width))

    def forward(self, x: Tensor) -> Tensor:
        """Return the block's result, (B, width, H / stride, W / stride)."""
        hidden = F.relu(self.norm_1(self.conv_1(x)))
        return F.relu(self.norm_2(self.conv_2(hidden)) + self.shortcut(x))


class ResNet(nn.Module):
    """A classifier of images (He et al., arXiv:1512.03385) with `blocks` blocks of each width."""

    def __init__(self, widths: tuple[int, ...], blocks: int, classes: int) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, widths[0], 7, stride=2, padding=3, bias=False),
            nn.BatchNorm2d(widths[0]),
            nn.ReLU(),
            nn.MaxPool2d(3, stride=2, padding=1),
        )
        stages: list[nn.Module] = []
        channels = widths[0]
        for n, width in enumerate(widths):
            for m in range(blocks):
                stages.append(BasicBlock(channels, width, 2 if n and not m else 1))
                channels = width
        self.stages = nn.Sequential(*stages)
        self.head = nn.Linear(channels, classes)

    def forward(self, images: Tensor) -> Tensor:
        """Return logits (B, classes) of images (B, 3, H, W)."""
        features = self.stages(self.stem(images))
        result: Tensor = self.head(F.adaptive_avg_pool2d(features, 1).flatten(1))
        return result


class TimedBlock(nn.Module):
    """Two convolutions with GroupNorm and SiLU; between them, a shift that depends on the time."""

    def __init__(self, channels: int, width: int, time_width: int) -> None:
        super().__init__()
        self.norm_1, self.norm_2 = nn.GroupNorm(8, channels), nn.GroupNorm(8, width)
        self.conv_1 = nn.Conv2d(channels, width, 3, padding=1)
        self.conv_2 = nn.Conv2d(width, width, 3, padding=1)
        self.time = nn.Linear(time_width, width)
        self.shortcut = nn.Identity() if channels == width else nn.Conv2d(channels, width, 1)

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        """Return the block's result, (B, width, H, W); `time` is (B, time_width)."""
        hidden = self.conv_1(F.silu(self.norm_1(x)))
        hidden = hidden + self.time(F.silu(time))[:, :, None, None]
        result: Tensor = self.conv_2(F.silu(self.norm_2(hidden))) + self.shortcut(x)
        return result


class PixelAttention(nn.Module):
    """Attention between the pixels of an image, around a residual connection."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm = nn.GroupNorm(8, width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        """Return the attended image, (B, width, H, W) as `x`."""
        batch, width, height, columns = x.shape
        pixels = self.norm(x).flatten(2).transpose(1, 2)
        split = self.qkv(pixels).view(batch, -1, 3, self.heads, width // self.heads)
        q, k, v = split.permute(2, 0, 3, 1, 4).unbind()
        attended = F.scaled_dot_product_attention(q, k, v)
        pixels = self.out(attended.transpose(1, 2).reshape(batch, -1, width))
        image: Tensor = pixels.transpose(1, 2).reshape(batch, width, height, columns)
        return x + image


class UNet(nn.Module):
    """The denoiser of a diffusion model (Ho et al., arXiv:2006.11239), each of `widths` at half the size."""

    def __init__(self, channels: int, widths: tuple[int, ...], heads: int) -> None:
        super().__init__()
        time_width = 4 * widths[0]
        self.frequencies = widths[0] // 2
        self.time = nn.Sequential(
            nn.Linear(widths[0], time_width), nn.SiLU(), nn.Linear(time_width, time_width)
        )
        self.first = nn.Conv2d(channels, widths[0], 3, padding=1)
        self.down, self.smaller = nn.ModuleList(), nn.ModuleList()
        self.up, self.larger = nn.ModuleList(), nn.ModuleList()
        for width, after in zip(widths, (*widths[1:], widths[-1]), strict=True):
            self.down.append(TimedBlock(width, width, time_width))
            self.smaller.append(nn.Conv2d(width, after, 3, stride=2, padding=1))
            self.larger.insert(0, nn.Conv2d(after, width, 3, padding=1))
            self.up.insert(0, TimedBlock(2 * width, width, time_width))
        self.middle = TimedBlock(widths[-1], widths[-1], time_width)
        self.attention = PixelAttention(widths[-1], heads)
        self.norm = nn.GroupNorm(8, widths[0])
        self.last = nn.Conv2d(widths[0], channels, 3, padding=1)

    def forward(self, images: Tensor, time: Tensor) -> Tensor:
        """Return the noise in images (B, channels, H, W) at times (B,)."""
        exponents = torch.arange(self.frequencies, device=time.device) / self.frequencies
        angles = time[:, None].float() * torch.exp(-math.log(10000) * exponents)
        embedded = self.time(torch.cat((angles.cos(), angles.sin()), dim=-1).to(images.dtype))
        x = self.first(images)
        skipped = []
        for block, smaller in zip(self.down, self.smaller, strict=True):
            x = block(x, embedded)
            skipped.append(x)
            x = smaller(x)
        x = self.attention(self.middle(x, embedded))
        for block, larger in zip(self.up, self.larger, strict=True):
            x = larger(F.interpolate(x, scale_factor=2.0, mode="nearest"))
            x = block(torch.cat((x, skipped.pop()), dim=1), embedded)
        result: Tensor = self.last(F.silu(self.norm(x)))
        return result
