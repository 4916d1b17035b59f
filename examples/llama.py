"""A small Llama: RMSNorm, rotary positions, grouped-query attention, SwiGLU, over the bytes of a text.

Sources: Touvron et al., "LLaMA" (2023); Zhang and Sennrich, "Root Mean Square Layer Normalization" (2019); Su
et al., "RoFormer" (2021); Ainslie et al., "GQA" (2023); Shazeer, "GLU Variants Improve Transformer" (2020).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn


@dataclass(frozen=True, kw_only=True)
class LlamaConfig:
    """Sizes of a model; the defaults give a model of 419 thousand parameters that runs in milliseconds."""

    vocabulary: int = 256
    context: int = 256
    layers: int = 4
    width: int = 96
    heads: int = 6
    groups: int = 2
    hidden: int = 256
    tied_head: bool = True
    rope_base: float = 10_000.0
    epsilon: float = 1e-5

    def __post_init__(self) -> None:
        if self.width % self.heads or self.heads % self.groups or self.head_width % 2:
            raise ValueError(f"{self}: heads must divide width, groups heads, and a head's width is even")

    @property
    def head_width(self) -> int:
        """Features of one attention head."""
        return self.width // self.heads


class RMSNorm(nn.Module):
    """Divides each vector of `x: (*, width)` by its root mean square, and scales it."""

    def __init__(self, width: int, epsilon: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.epsilon = epsilon

    def forward(self, x: Tensor) -> Tensor:
        mean_square = x.pow(2).mean(dim=-1, keepdim=True)
        return x * torch.rsqrt(mean_square + self.epsilon) * self.weight


def rotary_tables(config: LlamaConfig) -> tuple[Tensor, Tensor]:
    """Cosine and sine of position times frequency, both `(context, head_width)`."""
    exponents = torch.arange(0, config.head_width, 2) / config.head_width
    angles = torch.outer(torch.arange(config.context), config.rope_base**-exponents)
    angles = torch.cat((angles, angles), dim=-1)
    return angles.cos(), angles.sin()


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Turns each pair (first half, second half) of `x: (batch, heads, length, head_width)` by its angle."""
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-second, first), dim=-1) * sin


class Attention(nn.Module):
    """Causal attention in which several query heads share one head of keys and values."""

    def __init__(self, config: LlamaConfig) -> None:
        super().__init__()
        self.heads, self.groups, self.head_width = config.heads, config.groups, config.head_width
        self.query = nn.Linear(config.width, config.width, bias=False)
        self.key = nn.Linear(config.width, config.groups * config.head_width, bias=False)
        self.value = nn.Linear(config.width, config.groups * config.head_width, bias=False)
        self.output = nn.Linear(config.width, config.width, bias=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        batch, length, width = x.shape
        q = self.query(x).view(batch, length, self.heads, self.head_width).transpose(1, 2)
        k = self.key(x).view(batch, length, self.groups, self.head_width).transpose(1, 2)
        v = self.value(x).view(batch, length, self.groups, self.head_width).transpose(1, 2)
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=self.heads != self.groups)
        return self.output(y.transpose(1, 2).reshape(batch, length, width))


class SwiGLU(nn.Module):
    """A feed-forward network gated by SiLU."""

    def __init__(self, config: LlamaConfig) -> None:
        super().__init__()
        self.gate = nn.Linear(config.width, config.hidden, bias=False)
        self.up = nn.Linear(config.width, config.hidden, bias=False)
        self.down = nn.Linear(config.hidden, config.width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(F.silu(self.gate(x)) * self.up(x))


class Block(nn.Module):
    """Attention and feed-forward network, each with a norm before it and a residual around it."""

    def __init__(self, config: LlamaConfig) -> None:
        super().__init__()
        self.attention_norm = RMSNorm(config.width, config.epsilon)
        self.attention = Attention(config)
        self.network_norm = RMSNorm(config.width, config.epsilon)
        self.network = SwiGLU(config)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        x = x + self.attention(self.attention_norm(x), cos, sin)
        return x + self.network(self.network_norm(x))


class Llama(nn.Module):
    """Tokens `(batch, length)` to logits `(batch, length, vocabulary)`."""

    cos: Tensor
    sin: Tensor

    def __init__(self, config: LlamaConfig) -> None:
        super().__init__()
        self.config = config
        self.embedding = nn.Embedding(config.vocabulary, config.width)
        # With torch's N(0, 1) a tied head starts with logits of tens; 0.02 is GPT-2's (Radford et al., 2019).
        nn.init.normal_(self.embedding.weight, std=0.02)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.layers))
        self.norm = RMSNorm(config.width, config.epsilon)
        self.head = nn.Linear(config.width, config.vocabulary, bias=False)
        if config.tied_head:
            self.head.weight = self.embedding.weight
        cos, sin = rotary_tables(config)
        self.register_buffer("cos", cos, persistent=False)
        self.register_buffer("sin", sin, persistent=False)

    def forward(self, tokens: Tensor) -> Tensor:
        length = tokens.shape[1]
        if length > self.config.context:
            raise ValueError(f"{length} tokens do not fit into a context of {self.config.context}")
        x = self.embedding(tokens)
        cos, sin = self.cos[:length], self.sin[:length]
        for block in self.blocks:
            x = block(x, cos, sin)
        logits: Tensor = self.head(self.norm(x))
        return logits


def encode(text: str) -> Tensor:
    """The UTF-8 bytes of a text as a vector of tokens: a vocabulary of 256 needs no tokenizer."""
    return torch.tensor(list(text.encode()), dtype=torch.int64)


def decode(tokens: Tensor) -> str:
    """The text of a vector of byte tokens; bytes that are no UTF-8 become the replacement character."""
    return bytes(tokens.tolist()).decode(errors="replace")
