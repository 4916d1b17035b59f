"""Programs whose sequences are divided: a small language model, attention, and operators of many kinds."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn


class Attention(nn.Module):
    """Grouped-query attention with rotary positions."""

    def __init__(self, width: int, heads: int, groups: int) -> None:
        super().__init__()
        self.heads, self.groups, self.size = heads, groups, width // heads
        self.q, self.o = nn.Linear(width, width), nn.Linear(width, width, bias=False)
        self.kv = nn.Linear(width, 2 * groups * self.size)

    def forward(self, x, cos, sin):
        batch, length, width = x.shape
        q = self.q(x).view(batch, length, self.heads, self.size).transpose(1, 2)
        k, v = self.kv(x).view(batch, length, 2, self.groups, self.size).permute(2, 0, 3, 1, 4)

        def rotated(t):
            first, second = t.chunk(2, -1)
            return t * cos + torch.cat((-second, first), -1) * sin

        y = F.scaled_dot_product_attention(rotated(q), rotated(k), v, is_causal=True, enable_gqa=True)
        return self.o(y.transpose(1, 2).contiguous().view(batch, length, width))


class LanguageModel(nn.Module):
    """Tokens with learnt and rotary positions; head and embedding have one weight, a bias is frozen."""

    def __init__(self, words: int = 11, width: int = 8, longest: int = 32) -> None:
        super().__init__()
        self.embedding, self.positions = nn.Embedding(words, width), nn.Embedding(longest, width)
        self.norm, self.norm2 = nn.LayerNorm(width), nn.RMSNorm(width)
        self.attention = Attention(width, 4, 2)
        self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))
        self.head = nn.Linear(width, words)
        self.head.weight = self.embedding.weight
        self.mlp[2].bias.requires_grad_(False)
        self.size = width // 4

    def forward(self, tokens, targets):
        position = torch.arange(tokens.shape[1])
        x = self.embedding(tokens) + self.positions(position)
        angles = torch.outer(position.double(), torch.full((self.size // 2,), 0.3).double()).repeat(1, 2)
        x = x + self.attention(self.norm(x), angles.cos(), angles.sin())
        x = x + self.mlp(self.norm2(x))
        loss = F.cross_entropy(self.head(x).flatten(0, 1), targets.flatten(), ignore_index=-1)
        return loss + x.mean(1).square().mean()


def language_model() -> LanguageModel:
    """Return the model in float64, with the same values in every process."""
    torch.manual_seed(0)
    return LanguageModel().double()


def texts(count: int, length: int = 16, ignored: bool = True) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Return tokens and targets, the same in every process; some targets are ignored, or none."""
    torch.manual_seed(5)
    shape = (2, length)
    return [(torch.randint(0, 11, shape), torch.randint(-ignored, 11, shape)) for _ in range(count)]


def sequences(*lengths: int) -> list[torch.Tensor]:
    """Return sequences of some lengths, the same in every process."""
    torch.manual_seed(1)
    return [torch.randn(2, length, 4, dtype=torch.float64) for length in lengths]


class Attentions(nn.Module):
    """Attention with the masks and forms that torch has; `x` (2, 8, 4) and `y` (2, 16, 4) are sequences."""

    def forward(self, x, y, bias):
        q, k, v = (t.view(2, -1, 2, 2).transpose(1, 2) for t in (x, y.sin(), y.cos()))
        p = y.tanh().view(2, -1, 2, 2).transpose(1, 2)
        attention = F.scaled_dot_product_attention
        position = torch.arange(16)
        window = (position[:, None] - position[None, :]).abs() < 3
        padding = (position < 11)[None, None, None]
        return (
            attention(q, k, v),
            attention(p, k, v, is_causal=True, scale=0.7),
            attention(p, k, v, attn_mask=window),
            attention(p, k, v, attn_mask=padding),
            attention(p, k, v, attn_mask=window & (position > 5)),  # rows in which nothing is allowed
            attention(p, k, v, attn_mask=(position[None, :] * -0.1).double()),
            attention(p, k, v, attn_mask=bias),
            attention(p[:, 0], k[:, 0], v[:, 0], is_causal=True),
            attention(y.transpose(0, 1), y.transpose(0, 1).sin(), y.transpose(0, 1).cos()),
            (((p @ k.transpose(-2, -1)).masked_fill(~window.tril(), -1e9)).softmax(-1) @ v),
        )


class Operators(nn.Module):
    """Operators that compute parts from parts, and sums over them; `x` (3, 8, 4) is a sequence."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.norm = nn.Linear(4, 6), nn.LayerNorm(4)
        self.scale = nn.Parameter(torch.randn(8, 1))  # a weight of each position

    def forward(self, x, classes):
        length = x.shape[1]
        merged = x.flatten(0, 1)
        weights = torch.linspace(0, 1, length).to(x.dtype)
        return (
            F.gelu(self.linear(self.norm(x))) * self.scale,
            F.silu(x) + torch.arange(length).to(x.dtype)[:, None],
            torch.where(x > 0, x, torch.zeros_like(x)).clamp(max=0.5),
            merged.unflatten(0, (3, length)).transpose(0, 1) * weights[:, None, None],
            merged @ torch.ones(4, 2, dtype=x.dtype),
            torch.einsum("btc,btd->bcd", x, x.exp()),
            x.transpose(1, 2) @ (x * weights[:, None]),
            x.mean(1),
            x.sum((0, 1)),
            x.mean(),
            (x * weights[:, None]).sum(1) / weights.sum(),
            x.softmax(-1).log_softmax(2),
            x.cumsum(2),
            x.amax(-1),
            x.sort(-1)[0],
            x.var(-1),
            torch.cat((x, x.neg()), -1)[..., 1:5].squeeze(0),
            torch.stack((x, x.sin()), 1).unbind(1)[1],
            x[:, :, None].expand(3, length, 5, 4).repeat(1, 1, 2, 1),
            F.pad(x, (1, 2)),
            torch.view_as_real(torch.view_as_complex(x.reshape(3, length, 2, 2)) * 1j),
            F.one_hot(classes, 4).to(x.dtype) * x,
            x.gather(-1, classes[..., None]),
            F.cross_entropy(x.flatten(0, 1), classes.flatten(), reduction="sum"),
            F.cross_entropy(x.transpose(1, 2), classes, label_smoothing=0.1),
            F.nll_loss(merged.log_softmax(-1), classes.flatten(), reduction="none"),
            F.mse_loss(x, x.detach().tanh()),
        )


class Mixing(nn.Module):
    """Operators along the sequence, which are refused unless the sequence is gathered for them."""

    CALLS = (
        lambda x: x.cumsum(1),
        lambda x: x[:, 1:] - x[:, :-1],
        lambda x: x.flip(1),
        lambda x: x.amax(1),
        lambda x: x.softmax(1),
        lambda x: x.view(x.shape[0], 2, -1, x.shape[2]),
        lambda x: torch.cat((x, x), 1),
        lambda x: x.std(1),
        lambda x: x.sort(1)[0],
        lambda x: x.unfold(1, 3, 1),
        lambda x: F.conv1d(x.transpose(1, 2), torch.ones(1, x.shape[2], 3, dtype=x.dtype)),
        lambda x: F.pad(x, (0, 0, 1, 0)),
        lambda x: x[:, -1],
        lambda x: F.linear(x.transpose(1, 2), torch.ones(2, x.shape[1], dtype=x.dtype)),
        lambda x: x + x.transpose(1, 2)[:, :, : x.shape[2]].repeat(1, 2, 1),
    )

    def __init__(self, chosen: int | None = None) -> None:
        super().__init__()
        self.chosen = self.CALLS if chosen is None else self.CALLS[chosen : chosen + 1]

    def forward(self, x):
        return tuple(call(x) for call in self.chosen)
