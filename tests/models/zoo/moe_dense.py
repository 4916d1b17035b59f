"""A mixture of experts whose shapes do not depend on the routing: every expert sees every token."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F


@dataclass(frozen=True)
class MoEOutput:
    """The mixed states, the loss that balances the experts, and how often each one was chosen."""

    states: Tensor
    balance_loss: Tensor
    counts: Tensor


class Experts(nn.Module):
    """All experts in three stacked weights, (experts, width, hidden) twice and (experts, hidden, width)."""

    def __init__(self, experts: int, width: int, hidden: int) -> None:
        super().__init__()
        self.gate = nn.Parameter(torch.randn(experts, width, hidden) * width**-0.5)
        self.up = nn.Parameter(torch.randn(experts, width, hidden) * width**-0.5)
        self.down = nn.Parameter(torch.randn(experts, hidden, width) * hidden**-0.5)

    def forward(self, x: Tensor) -> Tensor:
        gated = F.silu(torch.einsum("td,edh->teh", x, self.gate))
        return torch.einsum("teh,ehd->ted", gated * torch.einsum("td,edh->teh", x, self.up), self.down)


class DenseMoE(nn.Module):
    """Top-k routing with noise while training; the usage of each expert is counted in a buffer."""

    usage: Tensor

    def __init__(self, width: int = 16, experts: int = 4, top_k: int = 2) -> None:
        super().__init__()
        self.num_experts = experts
        self.top_k = top_k
        self.norm = nn.LayerNorm(width)
        self.router = nn.Linear(width, experts, bias=False)
        self.experts = Experts(experts, width, 2 * width)
        self.register_buffer("usage", torch.zeros(experts))

    def forward(self, x: Tensor, *, jitter: float = 0.0) -> MoEOutput:
        batch, length, width = x.shape
        tokens = self.norm(x).view(-1, width)
        logits = self.router(tokens)
        if self.training and jitter > 0:
            logits = logits + jitter * torch.randn_like(logits)
        probabilities = F.softmax(logits, dim=-1, dtype=torch.float32)
        weights, chosen = torch.topk(probabilities, self.top_k, dim=-1)
        weights = weights / weights.sum(dim=-1, keepdim=True)
        gates = torch.zeros_like(probabilities).scatter(1, chosen, weights)
        mixed = (self.experts(tokens) * gates.unsqueeze(-1)).sum(dim=1)
        one_hot = F.one_hot(chosen, num_classes=self.num_experts).sum(dim=1)
        fraction = one_hot.float().mean(dim=0)
        balance = self.num_experts * torch.sum(fraction * probabilities.mean(dim=0))
        if self.training:
            self.usage.mul_(0.9).add_(fraction, alpha=0.1)
        counts = torch.where(one_hot > 0, 1, 0).sum(dim=0)
        return MoEOutput(x + mixed.view(batch, length, width), balance, counts)


def make(seed: int) -> tuple[DenseMoE, tuple[Any, ...], dict[str, Any]]:
    """Two sequences of five tokens."""
    torch.manual_seed(seed)
    return DenseMoE(), (torch.randn(2, 5, 16),), {"jitter": 0.1}
