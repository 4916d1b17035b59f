"""A Llama-like decoder: RMS normalisation, rotary embeddings by pairs, grouped queries, SwiGLU, a cache."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F


@dataclass
class ModelArgs:
    """Sizes of the model."""

    dim: int = 32
    n_layers: int = 2
    n_heads: int = 4
    n_kv_heads: int = 2
    vocab_size: int = 80
    multiple_of: int = 16
    norm_eps: float = 1e-5
    max_seq_len: int = 24


class RMSNorm(nn.Module):
    """Normalisation by the root mean square, computed in float32."""

    def __init__(self, dim: int, eps: float) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(dim))

    def _norm(self, x: Tensor) -> Tensor:
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps)

    def forward(self, x: Tensor) -> Tensor:
        return self._norm(x.float()).type_as(x) * self.weight


def rotary_table(dim: int, length: int, theta: float = 10000.0) -> tuple[Tensor, Tensor]:
    """Cosines and sines (length, dim / 2) of the angles of each position."""
    freqs = 1.0 / (theta ** (torch.arange(0, dim, 2)[: dim // 2].float() / dim))
    angles = torch.outer(torch.arange(length).float(), freqs)
    return angles.cos(), angles.sin()


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Turns neighbouring pairs of the last dimension; x: (n, length, heads, head)."""
    even, odd = x.float().reshape(*x.shape[:-1], -1, 2).unbind(-1)
    cos, sin = cos[None, :, None, :], sin[None, :, None, :]
    return torch.stack((even * cos - odd * sin, even * sin + odd * cos), dim=-1).flatten(3).type_as(x)


def repeat_kv(x: Tensor, n_rep: int) -> Tensor:
    """Repeats each key-value head; x: (n, length, heads, head)."""
    n, length, heads, head = x.shape
    if n_rep == 1:
        return x
    return x[:, :, :, None, :].expand(n, length, heads, n_rep, head).reshape(n, length, heads * n_rep, head)


class Attention(nn.Module):
    """Grouped-query attention; keys and values are kept in a cache if one was made."""

    cache_k: Tensor | None
    cache_v: Tensor | None

    def __init__(self, args: ModelArgs) -> None:
        super().__init__()
        self.n_heads = args.n_heads
        self.n_kv_heads = args.n_kv_heads
        self.n_rep = args.n_heads // args.n_kv_heads
        self.head_dim = args.dim // args.n_heads
        self.wq = nn.Linear(args.dim, args.n_heads * self.head_dim, bias=False)
        self.wk = nn.Linear(args.dim, args.n_kv_heads * self.head_dim, bias=False)
        self.wv = nn.Linear(args.dim, args.n_kv_heads * self.head_dim, bias=False)
        self.wo = nn.Linear(args.n_heads * self.head_dim, args.dim, bias=False)
        self.register_buffer("cache_k", None, persistent=False)
        self.register_buffer("cache_v", None, persistent=False)

    def forward(self, x: Tensor, start: int, rope: tuple[Tensor, Tensor], mask: Tensor | None) -> Tensor:
        n, length, _ = x.shape
        q = rotate(self.wq(x).view(n, length, self.n_heads, self.head_dim), *rope)
        k = rotate(self.wk(x).view(n, length, self.n_kv_heads, self.head_dim), *rope)
        v = self.wv(x).view(n, length, self.n_kv_heads, self.head_dim)
        if self.cache_k is not None and self.cache_v is not None:
            self.cache_k[:n, start : start + length] = k
            self.cache_v[:n, start : start + length] = v
            k, v = self.cache_k[:n, : start + length], self.cache_v[:n, : start + length]
        k, v = repeat_kv(k, self.n_rep), repeat_kv(v, self.n_rep)
        q, k, v = (t.transpose(1, 2) for t in (q, k, v))
        scores = torch.matmul(q, k.transpose(2, 3)) * self.head_dim**-0.5
        if mask is not None:
            scores = scores + mask
        weights = F.softmax(scores.float(), dim=-1).type_as(q)
        return self.wo(torch.matmul(weights, v).transpose(1, 2).contiguous().view(n, length, -1))


class FeedForward(nn.Module):
    """SwiGLU."""

    def __init__(self, args: ModelArgs) -> None:
        super().__init__()
        hidden = int(2 * 4 * args.dim / 3)
        hidden = args.multiple_of * ((hidden + args.multiple_of - 1) // args.multiple_of)
        self.w1 = nn.Linear(args.dim, hidden, bias=False)
        self.w2 = nn.Linear(hidden, args.dim, bias=False)
        self.w3 = nn.Linear(args.dim, hidden, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.w2(F.silu(self.w1(x)) * self.w3(x))


class Block(nn.Module):
    """Pre-normalised attention and feed-forward."""

    def __init__(self, args: ModelArgs) -> None:
        super().__init__()
        self.attention = Attention(args)
        self.feed_forward = FeedForward(args)
        self.attention_norm = RMSNorm(args.dim, args.norm_eps)
        self.ffn_norm = RMSNorm(args.dim, args.norm_eps)

    def forward(self, x: Tensor, start: int, rope: tuple[Tensor, Tensor], mask: Tensor | None) -> Tensor:
        h = x + self.attention(self.attention_norm(x), start, rope, mask)
        return h + self.feed_forward(self.ffn_norm(h))


class Llama(nn.Module):
    """Logits (n, length, vocabulary) of tokens (n, length) that begin at position `start`."""

    cos: Tensor
    sin: Tensor

    def __init__(self, args: ModelArgs) -> None:
        super().__init__()
        self.args = args
        self.tok_embeddings = nn.Embedding(args.vocab_size, args.dim)
        self.layers = nn.ModuleList()
        for _ in range(args.n_layers):
            self.layers.append(Block(args))
        self.norm = RMSNorm(args.dim, args.norm_eps)
        self.output = nn.Linear(args.dim, args.vocab_size, bias=False)
        cos, sin = rotary_table(args.dim // args.n_heads, args.max_seq_len)
        self.register_buffer("cos", cos, persistent=False)
        self.register_buffer("sin", sin, persistent=False)

    def make_cache(self, batch: int) -> None:
        """Gives every layer a cache of zeros."""
        for layer in self.layers:
            a = layer.attention
            a.cache_k = torch.zeros(batch, self.args.max_seq_len, a.n_kv_heads, a.head_dim)
            a.cache_v = torch.zeros(batch, self.args.max_seq_len, a.n_kv_heads, a.head_dim)

    def forward(self, tokens: Tensor, start: int = 0) -> Tensor:
        _, length = tokens.shape
        h = self.tok_embeddings(tokens)
        rope = (self.cos[start : start + length], self.sin[start : start + length])
        mask = None
        if length > 1:
            mask = torch.full((length, length), float("-inf"), device=tokens.device)
            mask = torch.triu(mask, diagonal=1)
            mask = torch.hstack([torch.zeros((length, start), device=tokens.device), mask]).type_as(h)
        for layer in self.layers:
            h = layer(h, start, rope, mask)
        return self.output(self.norm(h)).float()


def make(seed: int) -> tuple[Llama, tuple[Any, ...], dict[str, Any]]:
    """Two prompts without a cache."""
    torch.manual_seed(seed)
    args = ModelArgs()
    return Llama(args), (torch.randint(0, args.vocab_size, (2, 10)),), {}


def make_cached(seed: int) -> tuple[Llama, tuple[Any, ...], dict[str, Any]]:
    """The same model with a cache, called for the tokens from position 4 on."""
    model, (tokens,), _ = make(seed)
    model.make_cache(batch=2)
    return model, (tokens,), {"start": 4}
