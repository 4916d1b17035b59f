"""A one-dimensional convnet over waveforms: dilated and depthwise convolutions, pooling, log compression."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class GatedResidual(nn.Module):
    """A dilated convolution whose two halves gate one another; the length stays."""

    def __init__(self, channels: int, dilation: int) -> None:
        super().__init__()
        self.dilation = dilation
        self.dilated = nn.Conv1d(channels, 2 * channels, kernel_size=3, dilation=dilation)
        self.depthwise = nn.Conv1d(channels, channels, kernel_size=5, padding=2, groups=channels)
        self.out = nn.Conv1d(channels, channels, kernel_size=1)
        self.skip = nn.Conv1d(channels, channels, kernel_size=1)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        padded = F.pad(x, (2 * self.dilation, 0))
        signal, gate = torch.chunk(self.dilated(padded), 2, dim=1)
        hidden = self.depthwise(torch.tanh(signal) * torch.sigmoid(gate))
        return x + self.out(hidden), self.skip(hidden)


class AudioConvNet(nn.Module):
    """Scores (n, classes) and a frame-wise activity (n, frames) of waveforms (n, samples)."""

    window: Tensor

    def __init__(self, channels: int = 16, classes: int = 6) -> None:
        super().__init__()
        self.register_buffer("window", torch.hann_window(16, periodic=False))
        self.front = nn.Conv1d(1, channels, kernel_size=16, stride=8, padding=4, bias=False)
        self.norm = nn.BatchNorm1d(channels)
        self.blocks = nn.ModuleList([GatedResidual(channels, 2**i) for i in range(3)])
        self.prelu = nn.PReLU(channels)
        self.pool = nn.MaxPool1d(2)
        self.smooth = nn.AvgPool1d(kernel_size=3, stride=1, padding=1)
        self.head = nn.Sequential(
            nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Dropout(p=0.2), nn.Linear(channels, classes)
        )
        self.activity = nn.Linear(channels, 1)

    def forward(self, wave: Tensor) -> dict[str, Tensor]:
        centred = wave - wave.mean(dim=-1, keepdim=True)
        centred = centred / centred.std(dim=-1, keepdim=True).clamp(min=1e-5)
        x = F.conv1d(centred.unsqueeze(1), self.front.weight * self.window, stride=8, padding=4)
        x = self.norm(torch.log1p(x.abs()))
        total = None
        for block in self.blocks:
            x, skip = block(x)
            total = skip if total is None else total + skip
        features = self.smooth(self.pool(self.prelu(total)))
        activity = self.activity(features.transpose(1, 2)).squeeze(-1)
        return {"scores": F.log_softmax(self.head(features), dim=1), "activity": activity.sigmoid()}


def make(seed: int) -> tuple[AudioConvNet, tuple[Any, ...], dict[str, Any]]:
    """Three waveforms of 512 samples, passed by keyword."""
    torch.manual_seed(seed)
    return AudioConvNet(), (), {"wave": torch.randn(3, 512)}
