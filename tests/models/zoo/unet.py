"""U-Net for segmentation: five stages of two convolutions, pooled, upsampled, joined by cropped copies."""

from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class DoubleConv(nn.Sequential):
    """Convolution, batch normalisation, ReLU, twice."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__(
            nn.Conv2d(inputs, outputs, 3, padding=1, bias=False),
            nn.BatchNorm2d(outputs),
            nn.ReLU(inplace=True),
            nn.Conv2d(outputs, outputs, 3, padding=1, bias=False),
            nn.BatchNorm2d(outputs),
            nn.ReLU(inplace=True),
        )


class Up(nn.Module):
    """Doubles the size, bilinearly or by a learned convolution, and joins what the way down has kept."""

    def __init__(self, inputs: int, skip: int, outputs: int, bilinear: bool) -> None:
        super().__init__()
        self.up: nn.Module = (
            nn.Upsample(scale_factor=2, mode="bilinear", align_corners=True)
            if bilinear
            else nn.ConvTranspose2d(inputs, inputs, kernel_size=2, stride=2)
        )
        self.conv = DoubleConv(inputs + skip, outputs)

    def forward(self, x: Tensor, skip: Tensor) -> Tensor:
        x = self.up(x)
        high, wide = skip.size(2) - x.size(2), skip.size(3) - x.size(3)
        x = F.pad(x, [wide // 2, wide - wide // 2, high // 2, high - high // 2])
        return self.conv(torch.cat([skip, x], dim=1))


class UNet(nn.Module):
    """Scores of classes for each pixel: (n, classes, h, w), for images of any size."""

    def __init__(self, channels: int = 3, classes: int = 2, widths: tuple[int, ...] = (4, 6, 8)) -> None:
        super().__init__()
        self.stem = DoubleConv(channels, widths[0])
        self.down = nn.ModuleList(
            nn.Sequential(nn.MaxPool2d(2), DoubleConv(a, b)) for a, b in pairwise(widths)
        )
        reverse = widths[::-1]
        self.up = nn.ModuleList(
            Up(a, b, b, bilinear=i % 2 == 0) for i, (a, b) in enumerate(pairwise(reverse))
        )
        self.head = nn.Conv2d(widths[0], classes, kernel_size=1)
        self.drop = nn.Dropout2d(0.1)

    def forward(self, x: Tensor) -> Tensor:
        kept = [self.stem(x)]
        for stage in self.down:
            kept.append(stage(kept[-1]))
        x = self.drop(kept.pop())
        for stage in self.up:
            x = stage(x, kept.pop())
        return self.head(x)


def make(seed: int) -> tuple[UNet, tuple[Any, ...], dict[str, Any]]:
    """Two images whose sides the stages do not divide."""
    torch.manual_seed(seed)
    return UNet(), (torch.randn(2, 3, 10, 13),), {}
