"""Normalisation and the parts of a block after attention."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .configuration import Config

__all__ = ["GemmaMLP", "GptNeoxMLP", "LLaMAMLP", "LLaMAMoE", "RMSNorm", "feed_forward", "normalisation"]


class RMSNorm(nn.Module):
    """x / sqrt(mean(x²) + eps) · weight, computed in float32 (Zhang and Sennrich, arXiv:1910.07467).

    With `add_unit_offset` the factor is `1 + weight`.
    """

    def __init__(self, size: int, dim: int = -1, eps: float = 1e-6, add_unit_offset: bool = False) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.dim = dim
        self.eps = eps
        self.add_unit_offset = add_unit_offset

    def forward(self, x: Tensor) -> Tensor:
        """Return `x` normalised along `dim`, in the dtype of `x`."""
        wide = x.float()
        scale = torch.rsqrt(wide.square().mean(self.dim, keepdim=True) + self.eps)
        weight = 1 + self.weight if self.add_unit_offset else self.weight
        return (wide * scale * weight.float()).to(x.dtype)


def normalisation(config: Config) -> nn.Module:
    """Return the normalisation that a configuration names."""
    if config.norm_class_name == "RMSNorm":
        return RMSNorm(config.n_embd, eps=config.norm_eps, add_unit_offset="Gemma" in config.name)
    # The layers of OLMo have no weights (arXiv:2402.00838, table 5).
    return nn.LayerNorm(config.n_embd, eps=config.norm_eps, elementwise_affine="OLMo" not in config.name)


class GptNeoxMLP(nn.Module):
    """Two linear maps with GELU between them."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        assert config.intermediate_size is not None, "a configuration computes it"
        self.fc = nn.Linear(config.n_embd, config.intermediate_size, bias=config.bias)
        self.proj = nn.Linear(config.intermediate_size, config.n_embd, bias=config.bias)
        self.approximate = config.gelu_approximate

    def forward(self, x: Tensor) -> Tensor:
        """Return proj(gelu(fc(x))), shaped as `x`: (…, n_embd)."""
        result: Tensor = self.proj(F.gelu(self.fc(x), approximate=self.approximate))
        return result


class LLaMAMLP(nn.Module):
    """A gated linear unit with SiLU (Shazeer, arXiv:2002.05202)."""

    def __init__(self, config: Config, intermediate_size: int | None = None) -> None:
        super().__init__()
        hidden = intermediate_size or config.intermediate_size
        assert hidden is not None, "a configuration computes it"
        self.fc_1 = nn.Linear(config.n_embd, hidden, bias=config.bias)
        self.fc_2 = nn.Linear(config.n_embd, hidden, bias=config.bias)
        self.proj = nn.Linear(hidden, config.n_embd, bias=config.bias)
        self.config = config

    def forward(self, x: Tensor) -> Tensor:
        """Return proj(silu(fc_1(x)) · fc_2(x)), shaped as `x`: (…, n_embd)."""
        result: Tensor = self.proj(F.silu(self.fc_1(x)) * self.fc_2(x))
        return result


class GemmaMLP(LLaMAMLP):
    """A gated linear unit with GELU."""

    def forward(self, x: Tensor) -> Tensor:
        """Return proj(gelu(fc_1(x)) · fc_2(x)), shaped as `x`: (…, n_embd)."""
        gate = F.gelu(self.fc_1(x), approximate=self.config.gelu_approximate)
        result: Tensor = self.proj(gate * self.fc_2(x))
        return result


class LLaMAMoE(nn.Module):
    """A mixture of experts, of which `n_expert_per_token` count for each token (arXiv:2401.04088).

    Every expert sees every token, and the others' results get the weight 0: shapes do not depend on data.
    """

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.gate = nn.Linear(config.n_embd, config.n_expert, bias=False)
        self.experts = nn.ModuleList(LLaMAMLP(config) for _ in range(config.n_expert))
        self.n_expert_per_token = config.n_expert_per_token

    def forward(self, x: Tensor) -> Tensor:
        """Return the weighted sum of the experts' results, shaped as `x`: (B, T, n_embd)."""
        scores = self.gate(x)
        best, chosen = scores.topk(self.n_expert_per_token, dim=-1)
        shares = best.softmax(dim=-1, dtype=torch.float).to(x.dtype)
        weights = torch.zeros_like(scores).scatter(-1, chosen, shares)
        results = [expert(x) * weights[..., n, None] for n, expert in enumerate(self.experts)]
        return torch.stack(results).sum(dim=0)


CLASSES: dict[str, type[nn.Module]] = {
    "GptNeoxMLP": GptNeoxMLP,
    "LLaMAMLP": LLaMAMLP,
    "GemmaMLP": GemmaMLP,
    "LLaMAMoE": LLaMAMoE,
}


def feed_forward(config: Config) -> nn.Module:
    """Return the part after attention that a configuration names."""
    return CLASSES[config.mlp_class_name](config)
