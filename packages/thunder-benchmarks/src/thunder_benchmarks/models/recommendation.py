"""A recommendation model."""

from __future__ import annotations

import itertools

import torch
from torch import Tensor, nn

__all__ = ["DLRM"]


class DLRM(nn.Module):
    """Click prediction from numbers and categories (Naumov et al., arXiv:1906.00091).

    An MLP embeds the numbers, tables embed the categories; the products of all pairs of these vectors,
    and the numbers' vector, go through a second MLP.
    """

    left: Tensor
    right: Tensor

    def __init__(self, numbers: int, rows: tuple[int, ...], width: int, hidden: int) -> None:
        super().__init__()
        self.bottom = nn.Sequential(
            nn.Linear(numbers, hidden), nn.ReLU(), nn.Linear(hidden, width), nn.ReLU()
        )
        self.tables = nn.ModuleList(nn.Embedding(n, width) for n in rows)
        pairs = list(itertools.combinations(range(len(rows) + 1), 2))
        self.register_buffer("left", torch.tensor([n for n, _ in pairs]))
        self.register_buffer("right", torch.tensor([m for _, m in pairs]))
        self.top = nn.Sequential(
            nn.Linear(width + len(pairs), hidden),
            nn.ReLU(),
            nn.Linear(hidden, hidden // 2),
            nn.ReLU(),
            nn.Linear(hidden // 2, 1),
        )

    def forward(self, numbers: Tensor, categories: Tensor) -> Tensor:
        """Return probabilities (B,) from numbers (B, n) and categories (B, tables), int."""
        dense = self.bottom(numbers)
        embedded = [table(categories[:, n]) for n, table in enumerate(self.tables)]
        vectors = torch.stack((dense, *embedded), dim=1)
        products = torch.bmm(vectors, vectors.transpose(1, 2))[:, self.left, self.right]
        return torch.sigmoid(self.top(torch.cat((dense, products), dim=1))).squeeze(-1)
