"""A BERT-like encoder: summed embeddings, padding mask, post-normalisation, a pooler, a dataclass result."""

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F


@dataclass
class EncoderOutput:
    """What the encoder returns; `hidden_states` only if it was asked for."""

    last_hidden_state: Tensor
    pooled: Tensor
    hidden_states: tuple[Tensor, ...] | None = None


class Embeddings(nn.Module):
    """Sum of token, position and segment embeddings."""

    position_ids: Tensor

    def __init__(self, vocab: int, width: int, max_len: int, dropout: float) -> None:
        super().__init__()
        self.word = nn.Embedding(vocab, width, padding_idx=0)
        self.position = nn.Embedding(max_len, width)
        self.segment = nn.Embedding(2, width)
        self.norm = nn.LayerNorm(width, eps=1e-12)
        self.dropout = nn.Dropout(dropout)
        self.register_buffer("position_ids", torch.arange(max_len).expand((1, -1)), persistent=False)

    def forward(self, input_ids: Tensor, token_type_ids: Tensor | None = None) -> Tensor:
        if token_type_ids is None:
            token_type_ids = torch.zeros_like(input_ids)
        positions = self.position_ids[:, : input_ids.size(1)]
        x = self.word(input_ids) + self.segment(token_type_ids)
        x += self.position(positions)
        return self.dropout(self.norm(x))


class SelfAttention(nn.Module):
    """Bidirectional attention by hand, with an additive mask."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.num_heads = heads
        self.head_size = width // heads
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width)
        self.value = nn.Linear(width, width)
        self.dropout = nn.Dropout(dropout)

    def split_heads(self, x: Tensor) -> Tensor:
        return x.view(*x.shape[:-1], self.num_heads, self.head_size).permute(0, 2, 1, 3)

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        q, k, v = (self.split_heads(layer(x)) for layer in (self.query, self.key, self.value))
        scores = torch.matmul(q, k.transpose(-1, -2)) / math.sqrt(self.head_size)
        if mask is not None:
            scores = scores + mask
        weights = self.dropout(nn.functional.softmax(scores, dim=-1))
        mixed = torch.matmul(weights, v).permute(0, 2, 1, 3).contiguous()
        return mixed.view((*mixed.size()[:-2], self.num_heads * self.head_size))


ACTIVATIONS = {"gelu": F.gelu, "relu": F.relu, "silu": F.silu}


class Layer(nn.Module):
    """One encoder layer: the normalisations come after the sums."""

    def __init__(self, width: int, heads: int, dropout: float, activation: str) -> None:
        super().__init__()
        self.attention = SelfAttention(width, heads, dropout)
        self.attention_out = nn.Linear(width, width)
        self.attention_norm = nn.LayerNorm(width, eps=1e-12)
        self.intermediate = nn.Linear(width, 4 * width)
        self.output = nn.Linear(4 * width, width)
        self.output_norm = nn.LayerNorm(width, eps=1e-12)
        self.dropout = nn.Dropout(dropout)
        self.activation = ACTIVATIONS[activation]

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        attended = self.dropout(self.attention_out(self.attention(x, mask)))
        x = self.attention_norm(attended + x)
        hidden = self.activation(self.intermediate(x))
        return self.output_norm(self.dropout(self.output(hidden)) + x)


class Pooler(nn.Module):
    """The first token's state through a dense layer and tanh."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.dense = nn.Linear(width, width)
        self.activation = nn.Tanh()

    def forward(self, hidden: Tensor) -> Tensor:
        return self.activation(self.dense(hidden[:, 0]))


class Bert(nn.Module):
    """The encoder with embeddings in front and a pooler behind."""

    def __init__(self, vocab: int = 99, width: int = 32, heads: int = 4, layers: int = 3) -> None:
        super().__init__()
        self.embeddings = Embeddings(vocab, width, max_len=40, dropout=0.1)
        names = ["gelu", "relu", "silu"]
        self.layers = nn.ModuleList(Layer(width, heads, 0.1, names[i % 3]) for i in range(layers))
        self.pooler = Pooler(width)

    def extended_mask(self, attention_mask: Tensor, dtype: torch.dtype) -> Tensor:
        """(batch, length) of 0 and 1 → additive (batch, 1, 1, length)."""
        mask = attention_mask[:, None, None, :].to(dtype=dtype)
        return (1.0 - mask) * torch.finfo(dtype).min

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        *,
        output_hidden_states: bool = False,
    ) -> EncoderOutput:
        x = self.embeddings(input_ids, token_type_ids=token_type_ids)
        mask = None if attention_mask is None else self.extended_mask(attention_mask, x.dtype)
        states = [x] if output_hidden_states else None
        for layer in self.layers:
            x = layer(x, mask)
            if states is not None:
                states.append(x)
        return EncoderOutput(
            last_hidden_state=x,
            pooled=self.pooler(x),
            hidden_states=tuple(states) if states is not None else None,
        )


def make(seed: int) -> tuple[Bert, tuple[Any, ...], dict[str, Any]]:
    """Two sentences, the second one padded."""
    torch.manual_seed(seed)
    input_ids = torch.randint(1, 99, (2, 12))
    attention_mask = torch.ones(2, 12, dtype=torch.long)
    attention_mask[1, 8:] = 0
    kwargs = {"attention_mask": attention_mask, "output_hidden_states": True}
    return Bert(), (input_ids,), kwargs
