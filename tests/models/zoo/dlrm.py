"""A recommendation model: bags of categorical features, a dense tower, pairwise interactions, a top tower."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn


class Prediction(NamedTuple):
    """The probability of a click (n,) and the interactions it was made from (n, pairs)."""

    click: Tensor
    interactions: Tensor


def tower(sizes: Sequence[int], last: nn.Module | None = None) -> nn.Sequential:
    """Linear layers of the given sizes with ReLU between them."""
    layers: list[nn.Module] = []
    for inputs, outputs in pairwise(sizes):
        layers += [nn.Linear(inputs, outputs), nn.ReLU()]
    layers[-1:] = [] if last is None else [last]
    return nn.Sequential(*layers)


class DLRM(nn.Module):
    """Dense features (n, dense), single categories (n, fields), and one bag of several categories."""

    rows: Tensor
    columns: Tensor

    def __init__(
        self, dense: int = 6, fields: Sequence[int] = (20, 50, 9), bag: int = 40, width: int = 16
    ) -> None:
        super().__init__()
        self.bottom = tower([dense, 32, width], last=nn.ReLU())
        self.tables = nn.ModuleList([nn.Embedding(size, width) for size in fields])
        self.bag = nn.EmbeddingBag(bag, width, mode="sum")
        self.mean_bag = nn.EmbeddingBag(bag, width, mode="mean")
        features = len(fields) + 3
        rows, columns = torch.tril_indices(features, features, offset=-1)
        self.register_buffer("rows", rows)
        self.register_buffer("columns", columns)
        self.top = tower([width + rows.numel(), 32, 1], last=nn.Sigmoid())

    def forward(self, dense: Tensor, categories: Tensor, bag: tuple[Tensor, Tensor]) -> Prediction:
        x = self.bottom(dense)
        indices, offsets = bag
        features = [x]
        features.extend(table(categories[:, i]) for i, table in enumerate(self.tables))
        features.append(self.bag(indices, offsets))
        features.append(self.mean_bag(categories))
        stacked = torch.stack(features, dim=1)
        products = torch.bmm(stacked, stacked.transpose(1, 2))
        interactions = products[:, self.rows, self.columns]
        return Prediction(self.top(torch.cat([x, interactions], dim=1)).squeeze(1), interactions)


def make(seed: int) -> tuple[DLRM, tuple[Any, ...], dict[str, Any]]:
    """Four examples; the third one's bag is empty."""
    torch.manual_seed(seed)
    categories = torch.stack([torch.randint(0, n, (4,)) for n in (20, 40, 9)], dim=1)
    bag = (torch.randint(0, 40, (9,)), torch.tensor([0, 2, 5, 5]))
    return DLRM(), (torch.randn(4, 6), categories, bag), {}
