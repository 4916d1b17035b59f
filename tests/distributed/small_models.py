"""A small model with what distribution has to keep: tied, frozen, scalar and uneven parameters."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn


class Block(nn.Module):
    """A layer whose sizes are not multiples of two."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(width, 2 * width + 1), nn.Linear(2 * width + 1, width)
        self.norm = nn.LayerNorm(width)

    def forward(self, x):
        return x + self.down(F.gelu(self.up(self.norm(x))))


class Words(nn.Module):
    """Blocks between an embedding and a head with the same weight."""

    def __init__(self, words: int = 7, width: int = 5, depth: int = 2) -> None:
        super().__init__()
        self.embedding = nn.Embedding(words, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(depth))
        self.head = nn.Linear(width, words)
        self.head.weight = self.embedding.weight
        self.scale = nn.Parameter(torch.tensor(1.5))
        self.register_buffer("offset", torch.linspace(-0.1, 0.1, width))
        self.blocks[0].down.bias.requires_grad_(False)

    def forward(self, tokens, targets):
        x = self.embedding(tokens) + self.offset
        for block in self.blocks:
            x = block(x)
        return F.cross_entropy(self.scale * self.head(x).flatten(0, 1), targets.flatten())


def words(seed: int = 0) -> Words:
    """Return the model in float64, with the same values in every process."""
    torch.manual_seed(seed)
    return Words().double()


def batches(count: int, size: int, processes: int = 2) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Return batches of tokens and targets, each for all processes, the same in every process."""
    torch.manual_seed(11)
    shape = (processes * size, 4)
    return [(torch.randint(0, 7, shape), torch.randint(0, 7, shape)) for _ in range(count)]


def part(batch: tuple[torch.Tensor, torch.Tensor], rank: int, processes: int = 2) -> list[torch.Tensor]:
    """Return the part of a batch that belongs to a process."""
    return [tensor.chunk(processes)[rank] for tensor in batch]
