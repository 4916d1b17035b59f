"""A recommender: bags of the items that a user has seen, in one vector with offsets, and two towers."""

from typing import Any

import torch
from torch import Tensor, nn


class TwoTowers(nn.Module):
    """Scores (n,) of an item for a user, who is the mean of what he has seen and the weighted sum of its tags
    (Covington et al., Deep Neural Networks for YouTube Recommendations, 2016).
    """

    def __init__(self, items: int = 20, tags: int = 9, width: int = 6) -> None:
        super().__init__()
        self.seen = nn.EmbeddingBag(items, width, mode="mean", padding_idx=0)
        self.tags = nn.EmbeddingBag(tags, width, mode="sum", include_last_offset=True)
        self.loudest = nn.EmbeddingBag(items, width, mode="max")
        self.item = nn.Embedding(items, width)
        self.user = nn.Sequential(nn.Linear(3 * width, 16), nn.ReLU(), nn.Linear(16, width))

    def forward(
        self, seen: Tensor, offsets: Tensor, tags: Tensor, tag_offsets: Tensor, weights: Tensor, item: Tensor
    ) -> Tensor:
        by_item = self.seen(seen, offsets)
        by_tag = self.tags(tags, tag_offsets, per_sample_weights=weights.to(by_item.dtype))
        loudest = self.loudest(seen, offsets)
        user = self.user(torch.cat([by_item, by_tag, loudest], dim=-1))
        return torch.sigmoid((user * self.item(item)).sum(-1))


def make(seed: int) -> tuple[TwoTowers, tuple[Any, ...], dict[str, Any]]:
    """Three users, who have seen three items, one, and four."""
    torch.manual_seed(seed)
    seen, offsets = torch.randint(1, 20, (8,)), torch.tensor([0, 3, 4])
    tags, tag_offsets = torch.randint(0, 9, (5,)), torch.tensor([0, 2, 2, 5])
    return TwoTowers(), (seen, offsets, tags, tag_offsets, torch.rand(5), torch.randint(0, 20, (3,))), {}
