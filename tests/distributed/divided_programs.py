"""Random programs after a layer in parts: operators are reached by values that are divided in many ways."""

from __future__ import annotations

import random
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn

Step = Callable[[torch.Tensor], torch.Tensor]
SIZES = (1, 2, 3, 4, 6, 8)


def _dim(r: random.Random, x: torch.Tensor) -> int:
    return r.randrange(-x.ndim, x.ndim)


def _pointwise(r: random.Random, x: torch.Tensor) -> Step:
    return r.choice(
        [
            F.gelu,
            torch.tanh,
            lambda t: t * 2 + 1,
            lambda t: t / (1 + t.abs()),
            lambda t: torch.where(t > 0, t, 0.1 * t),
            lambda t: t.masked_fill(t < 0, 0.5),
            lambda t: t.float().double(),
            lambda t: t.clone().contiguous(),
            lambda t: t.clamp(-1, 1) + t.detach(),
            lambda t: torch.addcmul(t, t, t),
        ]
    )


def _broadcast(r: random.Random, x: torch.Tensor) -> Step:
    shape = [extent if r.random() < 0.5 else 1 for extent in x.shape]
    shape = shape[r.randrange(len(shape) + 1) :]
    other = torch.linspace(0.5, 1.5, torch.Size(shape).numel(), dtype=x.dtype).reshape(shape)
    return r.choice(
        [
            lambda t: t * other,
            lambda t: other - t,
            lambda t: t + other.expand(t.shape),
            lambda t: t * t.cumsum(0).mean(-1, keepdim=True),
        ]
    )


def _moved(r: random.Random, x: torch.Tensor) -> Step:
    a, b = _dim(r, x), _dim(r, x)
    order = r.sample(range(x.ndim), x.ndim)
    return r.choice(
        [
            lambda t: t.transpose(a, b),
            lambda t: t.permute(order),
            lambda t: t.flip(a),
            lambda t: t.unsqueeze(a).expand(*(-1 for _ in range(t.ndim + 1))).squeeze(a),
            lambda t: torch.movedim(t, a, b),
            lambda t: torch.cat((t, t.cos()), a),
            lambda t: torch.stack((t, t.sin()), a).sum(a),
            lambda t: torch.roll(t, 1, a),
        ]
    )


def _reshaped(r: random.Random, x: torch.Tensor) -> Step:
    dim = r.randrange(x.ndim)
    divisors = [n for n in SIZES if x.shape[dim] % n == 0]
    first = r.choice(divisors)
    inner = x.shape[dim] // first
    choices = [
        lambda t: t.unflatten(dim, (first, inner)),
        lambda t: t.reshape(*t.shape[:dim], first, inner, *t.shape[dim + 1 :]),
        lambda t: t.contiguous().view(t.shape),
    ]
    if dim + 1 < x.ndim:
        choices.append(lambda t: t.flatten(dim, dim + 1))
        choices.append(lambda t: t.reshape(*t.shape[:dim], -1, *t.shape[dim + 2 :]))
    return r.choice(choices)


def _cut(r: random.Random, x: torch.Tensor) -> Step:
    dim = _dim(r, x)
    if x.shape[dim] < 2:
        return lambda t: t
    return r.choice(
        [
            lambda t: t.chunk(2, dim)[0],
            lambda t: t.split(t.shape[dim] - 1, dim)[0],
            lambda t: t.narrow(dim, 1, t.shape[dim] - 1),
            lambda t: t.narrow(dim, 0, t.shape[dim] // 2),
            lambda t: t[..., :2],
            lambda t: t.select(dim, 1).unsqueeze(dim),
            lambda t: t.index_select(dim, torch.tensor([1, 0])),
            lambda t: t[..., ::2],
            lambda t: t[1:],
            lambda t: F.pad(t, (1, 1)),
        ]
    )


def _reduced(r: random.Random, x: torch.Tensor) -> Step:
    dim, keep = _dim(r, x), r.random() < 0.7 or x.ndim < 3
    dims = sorted(r.sample(range(x.ndim), 2)) if x.ndim > 2 else [dim]
    return r.choice(
        [
            lambda t: t.sum(dim, keepdim=keep),
            lambda t: t.mean(dim, keepdim=keep),
            lambda t: t.amax(dim, keepdim=keep),
            lambda t: t.sum(dims, keepdim=True),
            lambda t: t.var(dim, keepdim=keep, correction=0),
            lambda t: t.softmax(dim),
            lambda t: t.log_softmax(dim),
            lambda t: t.cumsum(dim),
            lambda t: t - t.logsumexp(dim, keepdim=True),
            lambda t: F.layer_norm(t, t.shape[-1:]),
            lambda t: F.rms_norm(t, t.shape[-1:], torch.linspace(0.5, 1, t.shape[-1], dtype=t.dtype)),
            lambda t: F.normalize(t, dim=dim),
        ]
    )


def _multiplied(r: random.Random, x: torch.Tensor) -> Step:
    matrix = torch.linspace(-1, 1, x.shape[-1] * 4, dtype=x.dtype).reshape(x.shape[-1], 4)
    columns = torch.linspace(-1, 1, x.shape[-2] * 2, dtype=x.dtype).reshape(2, x.shape[-2])
    return r.choice(
        [
            lambda t: t @ t.transpose(-1, -2),
            lambda t: t.transpose(-1, -2) @ t,
            lambda t: t @ t.cumsum(0).transpose(-1, -2),  # a factor that is whole, with a gradient
            lambda t: t.cumsum(-1).transpose(-1, -2) @ t,
            lambda t: t @ matrix,
            lambda t: columns @ t,
            lambda t: F.linear(t, matrix.t()),
            lambda t: torch.einsum("...ij,jk->...ik", t, matrix),
            lambda t: torch.matmul(t, matrix[:, 0]).unsqueeze(-1),
        ]
    )


KINDS = (_pointwise, _broadcast, _moved, _reshaped, _cut, _reduced, _multiplied)


class Random(nn.Module):
    """Two layers, of which one is read, and random steps after it."""

    def __init__(self, seed: int, count: int = 5) -> None:
        super().__init__()
        r = random.Random(seed)
        torch.manual_seed(seed)
        self.columns, self.rows = nn.Linear(6, 8), nn.Linear(6, 8)
        self.after = nn.Parameter(torch.randn(8))
        self.is_sequence = r.random() < 0.4
        self.to(torch.float64)
        x, steps = torch.randn(2, 4, 8, dtype=torch.float64), []
        while len(steps) < count:
            step = r.choice(KINDS)(r, x)
            y = step(x)
            if y.ndim >= 2 and y.ndim <= 5 and 1 < y.numel() <= 512:
                x, steps = y, [*steps, step]
        self.steps = tuple(steps)

    def forward(self, x):
        x = (self.rows if self.is_sequence else self.columns)(x) * self.after
        for step in self.steps:
            x = step(x)
        return x.sin().sum() + x.square().mean()
