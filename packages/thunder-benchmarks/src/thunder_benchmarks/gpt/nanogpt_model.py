"""A GPT-2 with the names of modules and parameters that nanoGPT has, written for thunder's tests.

Radford et al., Language Models are Unsupervised Multitask Learners, 2019: learnt positions, LayerNorm before
attention and before the MLP, and a head that shares the embedding.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Self

import torch
from torch import Tensor, nn
from torch.nn import functional as F

__all__ = ["GPT", "MLP", "SIZES", "Block", "CausalSelfAttention", "GPTConfig"]

#: name → layers, heads and width of the published models (table 2)
SIZES: Final = {
    "gpt2": (12, 12, 768),
    "gpt2-medium": (24, 16, 1024),
    "gpt2-large": (36, 20, 1280),
    "gpt2-xl": (48, 25, 1600),
    "test": (2, 4, 64),
}


@dataclass
class GPTConfig:
    """Sizes of a GPT-2; `from_name` has those of the published models."""

    block_size: int = 1024
    vocab_size: int = 50257
    n_layer: int = 12
    n_head: int = 12
    n_embd: int = 768
    dropout: float = 0.0
    bias: bool = True

    @classmethod
    def from_name(cls, name: str, **changes: Any) -> Self:
        """Return the sizes of a published model, with some fields changed.

        Raises ValueError for a name that is not in `SIZES`.
        """
        if name not in SIZES:
            raise ValueError(f"{name!r} is not a GPT-2, which there are: {', '.join(SIZES)}")
        layers, heads, width = SIZES[name]
        small = {"block_size": 64, "vocab_size": 320} if name == "test" else {}
        sizes: dict[str, Any] = {"n_layer": layers, "n_head": heads, "n_embd": width}
        return cls(**(sizes | small | changes))


class CausalSelfAttention(nn.Module):
    """Attention of each token to itself and to the earlier ones."""

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        self.c_attn = nn.Linear(config.n_embd, 3 * config.n_embd, bias=config.bias)
        self.c_proj = nn.Linear(config.n_embd, config.n_embd, bias=config.bias)
        self.resid_dropout = nn.Dropout(config.dropout)
        self.n_head, self.dropout = config.n_head, config.dropout

    def forward(self, x: Tensor) -> Tensor:
        """Return the attended values, (B, T, n_embd) as `x`."""
        heads = (
            part.unflatten(-1, (self.n_head, -1)).transpose(1, 2) for part in self.c_attn(x).chunk(3, -1)
        )
        q, k, v = heads
        p = self.dropout if self.training else 0.0
        attended = F.scaled_dot_product_attention(q, k, v, dropout_p=p, is_causal=True)
        result: Tensor = self.resid_dropout(self.c_proj(attended.transpose(1, 2).flatten(-2)))
        return result


class MLP(nn.Module):
    """Two linear maps with GELU between them, by its approximation with tanh."""

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        self.c_fc = nn.Linear(config.n_embd, 4 * config.n_embd, bias=config.bias)
        self.gelu = nn.GELU(approximate="tanh")
        self.c_proj = nn.Linear(4 * config.n_embd, config.n_embd, bias=config.bias)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, x: Tensor) -> Tensor:
        """Return c_proj(gelu(c_fc(x))), shaped as `x`: (…, n_embd)."""
        result: Tensor = self.dropout(self.c_proj(self.gelu(self.c_fc(x))))
        return result


class Block(nn.Module):
    """Attention and the MLP, each around a residual connection."""

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        self.ln_1 = nn.LayerNorm(config.n_embd, bias=config.bias)
        self.attn = CausalSelfAttention(config)
        self.ln_2 = nn.LayerNorm(config.n_embd, bias=config.bias)
        self.mlp = MLP(config)

    def forward(self, x: Tensor) -> Tensor:
        """Return the block's result, (B, T, n_embd) as `x`."""
        x = x + self.attn(self.ln_1(x))
        result: Tensor = x + self.mlp(self.ln_2(x))
        return result


class GPT(nn.Module):
    """Tokens (B, T), int, to logits and the loss."""

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        self.config = config
        embedding = nn.Embedding(config.vocab_size, config.n_embd)
        self.transformer = nn.ModuleDict(
            {
                "wte": embedding,
                "wpe": nn.Embedding(config.block_size, config.n_embd),
                "drop": nn.Dropout(config.dropout),
                "h": nn.ModuleList(Block(config) for _ in range(config.n_layer)),
                "ln_f": nn.LayerNorm(config.n_embd, bias=config.bias),
            }
        )
        self.lm_head = nn.Linear(config.n_embd, config.vocab_size, bias=False)
        self.lm_head.weight = embedding.weight

    @classmethod
    def from_name(cls, name: str, **changes: Any) -> Self:
        """Return a model of random weights in the sizes of a published one."""
        return cls(GPTConfig.from_name(name, **changes))

    def forward(self, idx: Tensor, targets: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        """Return logits (B, T, vocab_size) and the mean cross entropy of `targets` (B, T).

        Without targets, the logits are those of the last token, (B, 1, vocab_size), and the loss is None.
        Raises ValueError for more tokens than `block_size`.
        """
        parts: Any = self.transformer
        length = idx.size(1)
        if length > self.config.block_size:
            raise ValueError(f"{length} tokens are more than block_size={self.config.block_size}")
        positions = torch.arange(length, device=idx.device)
        x = parts["drop"](parts["wte"](idx) + parts["wpe"](positions))
        for block in parts["h"]:
            x = block(x)
        x = parts["ln_f"](x)
        if targets is None:
            return self.lm_head(x[:, -1:]), None
        logits = self.lm_head(x)
        return logits, F.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=-1)
