"""Random modules with what a distribution has to keep: parameters, buffers, draws and results of many kinds.

A part takes and returns a tensor (batch, LENGTH, WIDTH).
"""

from __future__ import annotations

import random
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

#: a length of two zigzag chunks for each of two processes
LENGTH, WIDTH = 4, 6

Part = Callable[[random.Random, "RandomModule"], nn.Module]


class _Feed(nn.Module):
    """Two layers of an uneven inner width, which may be computed twice, again, or with dropout."""

    def __init__(self, r: random.Random, whole: RandomModule) -> None:
        super().__init__()
        inner = r.choice([2, 5, 7, 8])
        self.up, self.down = nn.Linear(WIDTH, inner, bias=r.random() < 0.7), nn.Linear(inner, WIDTH)
        self.activation = r.choice([F.gelu, torch.tanh, F.silu])
        self.is_checkpointed, self.calls = r.random() < 0.3, r.choice([1, 1, 2])
        self.dropout = r.choice([0.0, 0.0, 0.3]) if whole.draws else 0.0

    def _once(self, x):
        return x + self.down(F.dropout(self.activation(self.up(x)), self.dropout, self.training))

    def forward(self, x):
        for _ in range(self.calls):
            x = checkpoint(self._once, x, use_reentrant=False) if self.is_checkpointed else self._once(x)
        return x


class _Attention(nn.Module):
    """Attention of two heads, by one projection or by three."""

    def __init__(self, r: random.Random, whole: RandomModule) -> None:
        super().__init__()
        self.is_fused, self.is_causal = r.random() < 0.4, r.random() < 0.5
        if self.is_fused:
            self.qkv = nn.Linear(WIDTH, 3 * WIDTH, bias=False)
        else:
            self.query, self.key, self.value = (nn.Linear(WIDTH, WIDTH) for _ in range(3))
        self.out = nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        layers = (self.query, self.key, self.value) if not self.is_fused else ()
        parts = self.qkv(x).split(WIDTH, -1) if self.is_fused else [layer(x) for layer in layers]
        q, k, v = (p.view(*x.shape[:2], 2, -1).transpose(1, 2) for p in parts)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=self.is_causal)
        return x + self.out(y.transpose(1, 2).reshape(x.shape))


class _Norm(nn.Module):
    def __init__(self, r: random.Random, whole: RandomModule) -> None:
        super().__init__()
        self.norm = r.choice([nn.LayerNorm, nn.RMSNorm])(WIDTH)

    def forward(self, x):
        return self.norm(x)


class _Tied(nn.Module):
    """A layer whose weight is that of an earlier square layer, transposed or not."""

    def __init__(self, r: random.Random, whole: RandomModule) -> None:
        super().__init__()
        square = [m for m in whole.modules() if type(m) is nn.Linear and m.weight.shape == (WIDTH, WIDTH)]
        self.layer, self.is_transposed = nn.Linear(WIDTH, WIDTH), r.random() < 0.3
        if square:
            self.layer.weight = r.choice(square).weight

    def forward(self, x):
        return x + (x @ self.layer.weight if self.is_transposed else self.layer(x)).sin()


class _Written(nn.Module):
    """Buffers that a call reads and writes: a count, a mean, a buffer that is assigned."""

    def __init__(self, r: random.Random, whole: RandomModule) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(()))
        self.register_buffer("mean", torch.zeros(WIDTH))
        self.register_buffer("assigned", torch.ones(WIDTH), persistent=r.random() < 0.5)
        self.kind, self.weight = r.randrange(3), nn.Parameter(torch.randn(WIDTH))

    def forward(self, x):
        if self.kind == 0:
            self.count += 1
            return x * self.weight / self.count
        if self.kind == 1:
            self.mean.mul_(0.9).add_(x.detach().mean((0, 1)), alpha=0.1)
            return x * self.weight + self.mean
        self.assigned = self.assigned * 0.5 + self.weight.detach().abs()
        return x + self.assigned


class _BatchNorm(nn.Module):
    def __init__(self, r: random.Random, whole: RandomModule) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(WIDTH, momentum=r.choice([0.1, 0.3]))

    def forward(self, x):
        return self.norm(x.transpose(1, 2)).transpose(1, 2)


class _Forms(nn.Module):
    """A parameter that is read in an unusual form."""

    def __init__(self, r: random.Random, whole: RandomModule) -> None:
        super().__init__()
        self.kind = r.randrange(9)
        shape = [(WIDTH,), (LENGTH + 3, WIDTH), (), (3, WIDTH), (WIDTH,), (WIDTH, 5), (0, 3), (1, WIDTH), ()]
        self.weight = nn.Parameter(torch.randn(shape[self.kind]) * 0.5)
        if self.kind == 5:
            self.weight = nn.Parameter(self.weight.detach().t().contiguous().t())
        self.unread = nn.Parameter(torch.randn(3))

    def forward(self, x):
        w = self.weight
        if self.kind == 0:
            with torch.no_grad():
                scale = w.abs().mean()
            return x * scale
        if self.kind == 1:
            return x + w[: x.shape[1]] + F.embedding(torch.arange(x.shape[1]) % 3, w)
        if self.kind == 2:
            return x * w + w.detach()
        if self.kind == 3:
            return x + w[torch.tensor([0, 2, 0])].sum(0) + w.max(0)[0]
        if self.kind == 4:
            return x.addcmul(w, w.tanh())
        if self.kind == 5:
            return x + (x @ w) @ w.t()
        if self.kind == 6:
            return x + w.sum()
        if self.kind == 7:
            return torch.where(x > 0, x, w * x)
        return x * 1.5 + w.exp()


class _Table(nn.Module):
    """A list and a dictionary of parameters, frozen ones among them."""

    def __init__(self, r: random.Random, whole: RandomModule) -> None:
        super().__init__()
        self.several = nn.ParameterList(torch.randn(WIDTH) for _ in range(3))
        self.named = nn.ParameterDict({"a": torch.randn(5, WIDTH), "b": torch.randn(WIDTH, 1)})
        self.several[r.randrange(3)].requires_grad_(False)
        self.named["a"].requires_grad_(r.random() < 0.7)

    def forward(self, x):
        for p in self.several:
            x = x * p.cos()
        return x + self.named["a"].mean(0) + (x @ self.named["b"]).sigmoid()


class _Again(nn.Module):
    """A part of the module that is there already: it is called a second time."""

    def __init__(self, r: random.Random, whole: RandomModule) -> None:
        super().__init__()
        self.other = r.choice(list(whole.parts)) if whole.parts else nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        return self.other(x)


class _Penalty(nn.Module):
    """A term of all parameters of the module, which a later loss has, too."""

    def __init__(self, r: random.Random, whole: RandomModule) -> None:
        super().__init__()
        self.own = nn.Linear(WIDTH, 3)

    def forward(self, x):
        return x + sum(p.square().sum() for p in self.parameters()) + self.own(x).mean(-1, keepdim=True)


class _Normalised(nn.Module):
    """A layer whose weight is computed from others."""

    def __init__(self, r: random.Random, whole: RandomModule) -> None:
        super().__init__()
        self.layer = torch.nn.utils.parametrizations.weight_norm(nn.Linear(WIDTH, WIDTH))

    def forward(self, x):
        return self.layer(x)


class _Double(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        return x * w * 2

    @staticmethod
    def backward(ctx, g):
        x, w = ctx.saved_tensors
        return g * w * 2, (g * x * 2).sum((0, 1))


class _Custom(nn.Module):
    def __init__(self, r: random.Random, whole: RandomModule) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(WIDTH) * 0.5)

    def forward(self, x):
        return _Double.apply(x, self.weight)


class _Writes(nn.Module):
    """Values that are written in place."""

    def __init__(self, r: random.Random, whole: RandomModule) -> None:
        super().__init__()
        self.layer = nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        y = self.layer(x)
        y.mul_(0.5).add_(x)
        y[..., 0] = self.layer.bias.sum()
        return y


PARTS: tuple[Part, ...] = (
    _Feed, _Feed, _Attention, _Norm, _Tied, _Written, _BatchNorm, _Forms, _Forms, _Table, _Again, _Penalty,
    _Normalised, _Custom, _Writes,
)  # fmt: skip


class RandomModule(nn.Module):
    """Random parts after each other, and a loss, values and their statistics as results.

    `draws` says whether it may draw random numbers, `parts` of which kinds its parts are.
    """

    def __init__(self, seed: int, *, draws: bool = True, parts: tuple[Part, ...] = PARTS) -> None:
        super().__init__()
        r = random.Random(seed)
        torch.manual_seed(seed)
        self.draws, self.parts = draws, nn.ModuleList()
        self.embedding = nn.Embedding(r.choice([5, 8]), WIDTH)
        for _ in range(r.randrange(1, 5)):
            self.parts.append(r.choice(parts)(r, self))
        self.head = nn.Linear(WIDTH, self.embedding.num_embeddings, bias=r.random() < 0.5)
        if r.random() < 0.5:
            self.head.weight = self.embedding.weight
        parameters = list(self.parameters())
        r.choice(parameters).requires_grad_(r.random() < 0.5)
        self.results = r.randrange(4)
        self.to(torch.float64)

    def forward(self, x, tokens, *, scale=None):
        x = x + self.embedding(tokens)
        for part in self.parts:
            x = part(x)
        if scale is not None:
            x = x * scale
        scores = self.head(x)
        loss = F.cross_entropy(scores.flatten(0, 1), tokens.flatten()) + x.square().mean() * 0.1
        if self.results == 0:
            return {"loss": loss}
        if self.results == 1:
            return {"loss": loss, "values": [x, (scores.detach(), 3)]}
        if self.results == 2:
            return {"loss": loss, "values": x, "again": x, "statistics": {"mean": x.detach().mean()}}
        return {"loss": x.tanh().mean((0, 1, 2)), "values": scores}


def trained_values(results):
    """Return the tensor that a training differentiates: the loss, and some of the other results."""
    loss, values = results["loss"], results.get("values")
    if isinstance(values, torch.Tensor):
        loss = loss + values.cos().mean()
    elif values is not None:
        loss = loss + values[0].sin().mean()
    return loss
