"""WaveNet: dilated causal convolutions with gates, residuals and skips, over quantised audio."""

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F


def mu_law_encode(x: Tensor, levels: int) -> Tensor:
    """Audio between -1 and 1 as one of `levels` numbers, finer about zero (ITU-T G.711)."""
    mu = levels - 1
    compressed = torch.sign(x) * torch.log1p(mu * x.abs()) / math.log1p(mu)
    return ((compressed + 1) / 2 * mu + 0.5).long()


class CausalConv1d(nn.Conv1d):
    """Sees no later sample: padded on the left alone."""

    def forward(self, x: Tensor) -> Tensor:
        (kernel,), (dilation,) = self.kernel_size, self.dilation
        return super().forward(F.pad(x, ((kernel - 1) * dilation, 0)))


class GatedBlock(nn.Module):
    """A gated convolution, conditioned on the whole; what it adds to the stream, and to the result."""

    def __init__(self, channels: int, skips: int, condition: int, dilation: int) -> None:
        super().__init__()
        self.dilated = nn.utils.parametrizations.weight_norm(
            CausalConv1d(channels, 2 * channels, 2, dilation=dilation)
        )
        self.condition = nn.Linear(condition, 2 * channels, bias=False)
        self.residual = nn.Conv1d(channels, channels, 1)
        self.skip = nn.Conv1d(channels, skips, 1)

    def forward(self, x: Tensor, condition: Tensor) -> tuple[Tensor, Tensor]:
        filtered, gate = (self.dilated(x) + self.condition(condition).unsqueeze(-1)).chunk(2, dim=1)
        gated = torch.tanh(filtered) * torch.sigmoid(gate)
        return (x + self.residual(gated)) * math.sqrt(0.5), self.skip(gated)


class WaveNet(nn.Module):
    """Scores of the next sample (n, levels, t - 1), and the loss of what came, (), in nats."""

    def __init__(self, levels: int = 32, channels: int = 8, skips: int = 16, speakers: int = 3) -> None:
        super().__init__()
        self.levels = levels
        self.embed = nn.Embedding(levels, channels)
        self.speaker = nn.Embedding(speakers, 6)
        self.blocks = nn.ModuleList(GatedBlock(channels, skips, 6, 2**i) for _ in range(2) for i in range(3))
        self.end = nn.Sequential(
            nn.ReLU(), nn.Conv1d(skips, skips, 1), nn.ReLU(), nn.Conv1d(skips, levels, 1)
        )
        self.drop = nn.Dropout(0.1)

    def forward(self, audio: Tensor, speaker: Tensor) -> dict[str, Tensor]:
        codes = mu_law_encode(audio, self.levels)
        x, condition = self.embed(codes[:, :-1]).transpose(1, 2), self.speaker(speaker)
        total: Tensor | int = 0
        for block in self.blocks:
            x, skip = block(self.drop(x), condition)
            total = total + skip
        scores = self.end(total)
        return {"scores": scores, "loss": F.cross_entropy(scores, codes[:, 1:])}


def make(seed: int) -> tuple[WaveNet, tuple[Any, ...], dict[str, Any]]:
    """Two clips of different speakers."""
    torch.manual_seed(seed)
    return WaveNet(), (torch.rand(2, 24) * 2 - 1,), {"speaker": torch.tensor([2, 0])}
