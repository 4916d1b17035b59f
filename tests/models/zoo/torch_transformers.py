"""Models around ``nn.Transformer``, ``nn.TransformerEncoder`` and ``nn.MultiheadAttention``, with masks."""

from typing import Any

import torch
from torch import Tensor, nn

Made = tuple[nn.Module, tuple[Any, ...], dict[str, Any]]


class Translator(nn.Module):
    """Logits (n, t, words) of a translation, by torch's encoder and decoder."""

    def __init__(self, words: int = 17, width: int = 8) -> None:
        super().__init__()
        self.embed = nn.Embedding(words, width, padding_idx=0)
        self.positions = nn.Parameter(torch.randn(1, 16, width) * 0.02)
        self.transformer = nn.Transformer(
            width,
            2,
            2,
            1,
            dim_feedforward=16,
            dropout=0.1,
            activation="gelu",
            batch_first=True,
            norm_first=True,
        )
        self.head = nn.Linear(width, words)

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        padding = source == 0
        causal = nn.Transformer.generate_square_subsequent_mask(target.size(1)).to(self.positions.dtype)
        x = self.transformer(
            self._embedded(source),
            self._embedded(target),
            tgt_mask=causal,
            src_key_padding_mask=padding,
            memory_key_padding_mask=padding,
            tgt_key_padding_mask=(target == 0).to(causal.dtype) * -1e9,
            tgt_is_causal=True,
        )
        return self.head(x)

    def _embedded(self, tokens: Tensor) -> Tensor:
        return self.embed(tokens) + self.positions[:, : tokens.size(1)]


class Classifier(nn.Module):
    """Logits (n, classes), and how the words were weighed: an encoder, and a query that attends."""

    def __init__(self, words: int = 17, width: int = 8, classes: int = 3) -> None:
        super().__init__()
        self.embed = nn.Embedding(words, width)
        layer = nn.TransformerEncoderLayer(width, 2, 16, dropout=0.1, batch_first=False)
        self.encoder = nn.TransformerEncoder(layer, 2, norm=nn.LayerNorm(width), enable_nested_tensor=False)
        self.query = nn.Parameter(torch.randn(1, 1, width))
        self.attention = nn.MultiheadAttention(width, 2, dropout=0.1, add_bias_kv=True, add_zero_attn=True)
        self.head = nn.Linear(width, classes)

    def forward(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        x = self.embed(tokens).transpose(0, 1)
        near = (torch.arange(x.size(0)).unsqueeze(0) - torch.arange(x.size(0)).unsqueeze(1)).abs() > 2
        x = self.encoder(x, mask=near, src_key_padding_mask=tokens == 0)
        query = self.query.expand(-1, x.size(1), -1)
        found, weights = self.attention(query, x, x, key_padding_mask=tokens == 0)
        return self.head(found.squeeze(0)), weights


def _sentences(seed: int) -> tuple[Tensor, Tensor]:
    torch.manual_seed(seed)
    source, target = torch.randint(1, 17, (3, 6)), torch.randint(1, 17, (3, 5))
    source[1, 4:] = 0
    target[2, 3:] = 0
    return source, target


def make_translator(seed: int) -> Made:
    """Three pairs of sentences, some padded."""
    arguments = _sentences(seed)
    return Translator(), arguments, {}


def make_classifier(seed: int) -> Made:
    """Three sentences, one padded."""
    source, _ = _sentences(seed)
    return Classifier(), (source,), {}
