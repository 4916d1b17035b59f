"""A vision transformer: patches by convolution, a class token, fused attention, stochastic depth."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class PatchEmbed(nn.Module):
    """Image (n, c, h, w) → patches (n, h·w / p², width)."""

    def __init__(self, image: int, patch: int, channels: int, width: int) -> None:
        super().__init__()
        self.num_patches = (image // patch) ** 2
        self.proj = nn.Conv2d(channels, width, kernel_size=patch, stride=patch)

    def forward(self, x: Tensor) -> Tensor:
        return self.proj(x).flatten(2).transpose(1, 2)


class Attention(nn.Module):
    """One projection for queries, keys and values; the three are unbound from one tensor."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, width * 3)
        self.proj = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        n, length, width = x.shape
        qkv = self.qkv(x).reshape(n, length, 3, self.heads, width // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)
        out = F.scaled_dot_product_attention(q, k, v)
        return self.proj(out.transpose(1, 2).reshape(n, length, width))


class DropPath(nn.Module):
    """Drops a whole residual branch of some samples while training."""

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        if self.p == 0.0 or not self.training:
            return x
        keep = 1 - self.p
        shape = (x.shape[0],) + (1,) * (x.ndim - 1)
        noise = x.new_empty(shape).bernoulli_(keep)
        return x * noise.div_(keep)


class Block(nn.Module):
    """Pre-normalised attention and MLP, each branch scaled by a learnt vector."""

    def __init__(self, width: int, heads: int, drop_path: float) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(width)
        self.attn = Attention(width, heads)
        self.gamma1 = nn.Parameter(0.1 * torch.ones(width))
        self.norm2 = nn.LayerNorm(width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width),
            nn.GELU(),
            nn.Dropout(0.1),
            nn.Linear(4 * width, width),
            nn.Dropout(0.1),
        )
        self.gamma2 = nn.Parameter(0.1 * torch.ones(width))
        self.drop_path = DropPath(drop_path) if drop_path > 0 else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.drop_path(self.gamma1 * self.attn(self.norm1(x)))
        return x + self.drop_path(self.gamma2 * self.mlp(self.norm2(x)))


class ViT(nn.Module):
    """Logits (n, 10) of images (n, 3, image, image)."""

    def __init__(self, image: int = 16, patch: int = 4, width: int = 32, depth: int = 2) -> None:
        super().__init__()
        self.patch_embed = PatchEmbed(image, patch, 3, width)
        self.cls_token = nn.Parameter(torch.randn(1, 1, width) * 0.02)
        self.pos_embed = nn.Parameter(torch.randn(1, self.patch_embed.num_patches + 1, width) * 0.02)
        self.dropout = nn.Dropout(0.1)
        rates = [float(r) for r in torch.linspace(0, 0.2, depth)]
        self.blocks = nn.Sequential(*[Block(width, 4, rate) for rate in rates])
        self.norm = nn.LayerNorm(width, eps=1e-6)
        self.head = nn.Linear(width, 10)

    def forward_features(self, x: Tensor) -> Tensor:
        x = self.patch_embed(x)
        cls = self.cls_token.expand(x.shape[0], -1, -1)
        x = torch.cat((cls, x), dim=1) + self.pos_embed
        return self.norm(self.blocks(self.dropout(x)))

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.forward_features(x)[:, 0])


def make(seed: int) -> tuple[ViT, tuple[Any, ...], dict[str, Any]]:
    """A batch of three images."""
    torch.manual_seed(seed)
    return ViT(), (torch.randn(3, 3, 16, 16),), {}
