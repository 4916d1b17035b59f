"""An MLP-Mixer: the same MLP across patches and across channels, with a hook and shared weights."""

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn


class Mlp(nn.Module):
    """Two layers of the last dimension."""

    def __init__(self, size: int, hidden: int, activation: type[nn.Module] = nn.GELU) -> None:
        super().__init__()
        self.fc1 = nn.Linear(size, hidden)
        self.act = activation()
        self.fc2 = nn.Linear(hidden, size)
        self.drop = nn.Dropout(0.1)

    def forward(self, x: Tensor) -> Tensor:
        return self.drop(self.fc2(self.drop(self.act(self.fc1(x)))))


class MixerLayer(nn.Module):
    """Mixes patches, then channels."""

    def __init__(self, patches: int, width: int, channel_mlp: Mlp, norm: Any) -> None:
        super().__init__()
        self.norm1 = norm(width)
        self.token_mlp = Mlp(patches, 2 * patches, nn.SiLU)
        self.norm2 = norm(width)
        self.channel_mlp = channel_mlp

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm1(x).permute(0, 2, 1)
        x = x + self.token_mlp(y).mT
        return x + self.channel_mlp(self.norm2(x))


def scale_output(module: nn.Module, args: tuple[Any, ...], output: Tensor) -> Tensor:
    """A forward hook that halves what the module returns."""
    return output * 0.5


class MlpMixer(nn.Module):
    """Logits (n, 7) of images (n, 3, image, image); all layers share one channel MLP."""

    mean: Tensor
    deviation: Tensor

    def __init__(self, image: int = 16, patch: int = 4, width: int = 24, depth: int = 2) -> None:
        super().__init__()
        self.patch = patch
        patches = (image // patch) ** 2
        self.register_buffer("mean", torch.tensor([0.48, 0.45, 0.40]).view(-1, 1, 1), persistent=False)
        self.register_buffer("deviation", torch.tensor([0.22, 0.22, 0.22]).view(-1, 1, 1), persistent=False)
        self.stem = nn.Linear(3 * patch * patch, width)
        shared = Mlp(width, 2 * width)
        norm = partial(nn.LayerNorm, eps=1e-6)
        self.layers = nn.ModuleDict(
            {f"layer{i}": MixerLayer(patches, width, shared, norm) for i in range(depth)}
        )
        self.layers["layer0"].register_forward_hook(scale_output)
        self.norm = nn.RMSNorm(width, eps=1e-6)
        self.head = nn.Linear(width, 7)

    def patches(self, x: Tensor) -> Tensor:
        n, c, h, w = x.shape
        p = self.patch
        x = x.reshape(n, c, h // p, p, w // p, p)
        return torch.einsum("nchpwq->nhwpqc", x).reshape(n, (h // p) * (w // p), p * p * c)

    def forward(self, image: Tensor) -> Tensor:
        x = (image - self.mean) / self.deviation
        x = self.stem(self.patches(x))
        for name, layer in self.layers.items():
            x = layer(x) if name != "layer0" else layer(x) + x
        return self.head(self.norm(x).mean(dim=1))


def make(seed: int) -> tuple[MlpMixer, tuple[Any, ...], dict[str, Any]]:
    """Two images with values in [0, 1)."""
    torch.manual_seed(seed)
    return MlpMixer(), (torch.rand(2, 3, 16, 16),), {}
