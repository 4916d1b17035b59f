"""The reference GPT: the module structure and the parameter names of litgpt, written for thunder's tests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .configuration import Config
from .feed_forward import feed_forward, normalisation
from .rotary import apply_rope, build_rope_cache

__all__ = ["GPT", "Block", "CausalSelfAttention"]


class CausalSelfAttention(nn.Module):
    """Attention to the earlier tokens, with rotary positions and groups of heads that share keys.

    The rows of `attn.weight` are ordered by group: the queries of a group, its key, its value.
    """

    def __init__(self, config: Config, block_idx: int = 0) -> None:
        super().__init__()
        assert config.head_size is not None, "a configuration computes it"
        assert config.n_query_groups is not None, "a configuration computes it"
        self.head_size, self.groups = config.head_size, config.n_query_groups
        self.queries = config.n_head // self.groups
        rows = (config.n_head + 2 * self.groups) * self.head_size
        self.attn = nn.Linear(config.n_embd, rows, bias=config.bias or config.attn_bias)
        self.proj = nn.Linear(config.n_head * self.head_size, config.n_embd, bias=config.bias)
        self.rotated = config.rope_n_elem

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """Return the attended values, (B, T, n_embd) as `x`; `cos` and `sin` are (B or 1, T, rotated)."""
        batch, length, _ = x.shape
        grouped = self.attn(x).view(batch, length, self.groups, self.queries + 2, self.head_size)
        q, k, v = grouped.permute(0, 2, 3, 1, 4).split((self.queries, 1, 1), dim=2)
        q, k, v = (part.reshape(batch, -1, length, self.head_size) for part in (q, k, v))
        q, k = self._with_positions(q, cos, sin), self._with_positions(k, cos, sin)
        if self.queries > 1:
            k, v = (part.repeat_interleave(self.queries, dim=1) for part in (k, v))
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        result: Tensor = self.proj(attended.transpose(1, 2).reshape(batch, length, -1))
        return result

    def _with_positions(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        rotated = apply_rope(x[..., : self.rotated], cos, sin)
        return torch.cat((rotated, x[..., self.rotated :]), dim=-1)

    def _load_from_state_dict(
        self, state_dict: dict[str, Any], prefix: str, *args: Any, **kwargs: Any
    ) -> None:
        """Accept also litgpt's `qkv`, whose rows are ordered by kind: all queries, all keys, all values."""
        for name in ("weight", "bias"):
            rows = state_dict.pop(f"{prefix}qkv.{name}", None)
            if rows is not None:
                state_dict[f"{prefix}attn.{name}"] = self._ordered_by_group(rows)
        super()._load_from_state_dict(state_dict, prefix, *args, **kwargs)

    def _ordered_by_group(self, rows: Tensor) -> Tensor:
        sizes = [n * self.groups * self.head_size for n in (self.queries, 1, 1)]
        parts = [part.reshape(self.groups, -1, *rows.shape[1:]) for part in rows.split(sizes)]
        return torch.cat(parts, dim=1).reshape(rows.shape)


class Block(nn.Module):
    """Attention and the part after it, each around a residual connection.

    In parallel both read the block's input (Wang and Komatsuzaki, GPT-J), else one after the other.
    """

    def __init__(self, config: Config, block_idx: int = 0) -> None:
        super().__init__()
        self.norm_1 = normalisation(config)
        self.attn = CausalSelfAttention(config, block_idx)
        self.norm_2 = None if config.shared_attention_norm else normalisation(config)
        self.mlp = feed_forward(config)
        self.parallel = config.parallel_residual

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """Return the block's result, (B, T, n_embd) as `x`."""
        normalised = self.norm_1(x)
        attended = self.attn(normalised, cos, sin) + x
        if self.norm_2 is not None:
            normalised = self.norm_2(x if self.parallel else attended)
        result: Tensor = self.mlp(normalised) + attended
        return result


class GPT(nn.Module):
    """A decoder-only transformer: tokens (B, T), int, to logits (B, T, padded_vocab_size)."""

    cos: Tensor
    sin: Tensor

    def __init__(self, config: Config) -> None:
        super().__init__()
        assert config.padded_vocab_size is not None, "a configuration computes it"
        self.config = config
        self.lm_head = nn.Linear(config.n_embd, config.padded_vocab_size, bias=config.lm_head_bias)
        self.transformer = nn.ModuleDict(
            {
                "wte": nn.Embedding(config.padded_vocab_size, config.n_embd),
                "h": nn.ModuleList(Block(config, n) for n in range(config.n_layer)),
                "ln_f": normalisation(config),
            }
        )
        self.max_seq_length = config.block_size
        cos, sin = build_rope_cache(
            config.block_size,
            config.rope_n_elem,
            base=config.rope_base,
            condense_ratio=config.rope_condense_ratio,
            extra_config=config.rope_adjustments,
        )
        self.register_buffer("cos", cos, persistent=False)
        self.register_buffer("sin", sin, persistent=False)

    @classmethod
    def from_name(cls, name: str, **changes: Any) -> Self:
        """Return a model of a named configuration, with some of its fields changed."""
        return cls(Config.from_name(name, **changes))

    def forward(self, idx: Tensor, input_pos: Tensor | None = None) -> Tensor:
        """Return the logits of tokens, each attending to those before it.

        `input_pos` (T,) has the position of each token, 0 to T - 1 by default. Raises ValueError for more
        tokens than `max_seq_length`.
        """
        if idx.size(1) > self.max_seq_length:
            raise ValueError(f"{idx.size(1)} tokens are more than max_seq_length={self.max_seq_length}")
        return logits(self, idx, *positions(self, idx, input_pos))


def positions(model: Any, idx: Tensor, input_pos: Tensor | None) -> tuple[Tensor, Tensor]:
    """Return the rows of a model's cosines and sines for its tokens, each (1, T, rotated)."""
    if input_pos is None:
        length = idx.size(1)
        return model.cos[:length].unsqueeze(0), model.sin[:length].unsqueeze(0)
    return model.cos.index_select(0, input_pos).unsqueeze(0), model.sin.index_select(0, input_pos).unsqueeze(
        0
    )


def logits(model: Any, idx: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Return the logits of a model for tokens whose positions have these cosines and sines."""
    parts: Mapping[str, Any] = model.transformer
    x = parts["wte"](idx)
    if model.config.scale_embeddings:
        x = x * torch.tensor(model.config.n_embd**0.5, dtype=x.dtype)
    for block in parts["h"]:
        x = block(x, cos, sin)
    result: Tensor = model.lm_head(parts["ln_f"](x))
    return result
