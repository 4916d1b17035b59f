"""Transformers: a GPT-2, an encoder as BERT's, and one of image patches."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

__all__ = ["BERT", "NanoGPT", "VisionTransformer"]


class Attention(nn.Module):
    """Self-attention of several heads with biases; `causal` attends to earlier tokens only."""

    def __init__(self, width: int, heads: int, causal: bool) -> None:
        super().__init__()
        self.heads, self.causal = heads, causal
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Return the attended values, (B, T, width); `mask` (B, 1, 1, T) is True at tokens that count."""
        batch, length, width = x.shape
        q, k, v = self.qkv(x).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4).unbind()
        attended = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=self.causal)
        result: Tensor = self.out(attended.transpose(1, 2).reshape(batch, length, width))
        return result


class Layer(nn.Module):
    """Attention and an MLP with GELU; LayerNorm before each (`first`) or after each residual sum."""

    def __init__(self, width: int, heads: int, *, causal: bool = False, first: bool = True) -> None:
        super().__init__()
        self.first = first
        self.attention = Attention(width, heads, causal)
        self.norm_1, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Return the layer's result, (B, T, width) as `x`."""
        result: Tensor
        if self.first:
            x = x + self.attention(self.norm_1(x), mask)
            result = x + self.mlp(self.norm_2(x))
        else:
            x = self.norm_1(x + self.attention(x, mask))
            result = self.norm_2(x + self.mlp(x))
        return result


class NanoGPT(nn.Module):
    """GPT-2 (Radford et al., 2019): learnt positions, LayerNorm first, the head shares the embedding."""

    def __init__(self, layers: int, width: int, heads: int, vocabulary: int, context: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.positions = nn.Embedding(context, width)
        self.layers = nn.ModuleList(Layer(width, heads, causal=True) for _ in range(layers))
        self.norm = nn.LayerNorm(width)

    def forward(self, tokens: Tensor) -> Tensor:
        """Return logits (B, T, vocabulary) of tokens (B, T)."""
        x = self.tokens(tokens) + self.positions(torch.arange(tokens.size(1), device=tokens.device))
        for layer in self.layers:
            x = layer(x)
        return F.linear(self.norm(x), self.tokens.weight)


class BERT(nn.Module):
    """An encoder with a mask of padding (Devlin et al., arXiv:1810.04805): LayerNorm last, GELU."""

    def __init__(self, layers: int, width: int, heads: int, vocabulary: int, context: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.positions = nn.Embedding(context, width)
        self.segments = nn.Embedding(2, width)
        self.norm = nn.LayerNorm(width, eps=1e-12)
        self.layers = nn.ModuleList(Layer(width, heads, first=False) for _ in range(layers))
        self.pooler = nn.Linear(width, width)

    def forward(self, tokens: Tensor, segments: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """Return states (B, T, width) and the pooled first state (B, width); all inputs are (B, T)."""
        positions = self.positions(torch.arange(tokens.size(1), device=tokens.device))
        x = self.norm(self.tokens(tokens) + positions + self.segments(segments))
        attended = mask.bool()[:, None, None, :]
        for layer in self.layers:
            x = layer(x, attended)
        return x, torch.tanh(self.pooler(x[:, 0]))


class VisionTransformer(nn.Module):
    """A classifier of images as sequences of patches (Dosovitskiy et al., arXiv:2010.11929)."""

    def __init__(self, layers: int, width: int, heads: int, *, image: int, patch: int, classes: int) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, patch, stride=patch)
        self.first = nn.Parameter(torch.zeros(1, 1, width))
        self.positions = nn.Parameter(torch.randn(1, (image // patch) ** 2 + 1, width) * 0.02)
        self.layers = nn.ModuleList(Layer(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, classes)

    def forward(self, images: Tensor) -> Tensor:
        """Return logits (B, classes) of images (B, 3, H, W)."""
        patches = self.patches(images).flatten(2).transpose(1, 2)
        x = torch.cat((self.first.expand(images.size(0), -1, -1), patches), dim=1) + self.positions
        for layer in self.layers:
            x = layer(x)
        result: Tensor = self.head(self.norm(x[:, 0]))
        return result
