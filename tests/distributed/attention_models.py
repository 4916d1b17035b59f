"""A small transformer: attention with heads, dropout, a checkpointed block, a table with a padding row."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

WORDS, LENGTH = 12, 8


class Layer(nn.Module):
    """Attention and a perceptron with gate, each after a norm."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads = heads
        self.norm, self.second_norm = nn.LayerNorm(width), nn.RMSNorm(width)
        self.query, self.key, self.value = (nn.Linear(width, width, bias=i == 0) for i in range(3))
        self.out, self.dropout = nn.Linear(width, width), nn.Dropout(dropout)
        self.gate, self.up = nn.Linear(width, 2 * width, bias=False), nn.Linear(width, 2 * width)
        self.down = nn.Linear(2 * width, width)

    def attend(self, x):
        b, t, width = x.shape
        shape = (b, t, self.heads, width // self.heads)
        q, k, v = (layer(x).view(shape).transpose(1, 2) for layer in (self.query, self.key, self.value))
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(mixed.transpose(1, 2).contiguous().view(b, t, width))

    def forward(self, x):
        x = x + self.dropout(self.attend(self.norm(x)))
        y = self.second_norm(x)
        return x + self.dropout(self.down(F.silu(self.gate(y)) * self.up(y)))


class Reader(nn.Module):
    """Layers between a table of words and a head with the same weight; the second layer is checkpointed."""

    def __init__(self, width: int = 8, heads: int = 4, depth: int = 2, dropout: float = 0.0) -> None:
        super().__init__()
        self.embedding = nn.Embedding(WORDS, width, padding_idx=1)
        self.positions = nn.Embedding(LENGTH, width)
        self.layers = nn.ModuleList(Layer(width, heads, dropout) for _ in range(depth))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, WORDS)
        self.head.weight = self.embedding.weight
        self.layers[0].up.requires_grad_(False)
        self.layers[1].out.bias.requires_grad_(False)

    def forward(self, tokens, targets):
        x = self.embedding(tokens) + self.positions.weight[: tokens.shape[1]]
        for index, layer in enumerate(self.layers):
            x = checkpoint(layer, x, use_reentrant=False) if index == 1 else layer(x)
        return F.cross_entropy(self.head(self.norm(x)).flatten(0, 1), targets.flatten())


COLUMNS = [f"layers.*.{name}" for name in ("query", "key", "value", "gate", "up")]
ROWS = ["layers.*.out", "layers.*.down", "embedding"]


def reader(seed: int = 0, dropout: float = 0.0) -> Reader:
    """Return the model in float64, with the same values in every process."""
    torch.manual_seed(seed)
    return Reader(dropout=dropout).double()


def pages(count: int, size: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Return batches of tokens and targets, the same in every process."""
    torch.manual_seed(12)
    shape = (size, LENGTH)
    return [(torch.randint(0, WORDS, shape), torch.randint(0, WORDS, shape)) for _ in range(count)]
