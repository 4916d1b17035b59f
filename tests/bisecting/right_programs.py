"""Programs that are right: each a function of tensors of one dtype, with the tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

#: name → a function of a dtype that returns a program and its arguments
PROGRAMS: dict[str, Callable[[torch.dtype], tuple[Any, tuple[Any, ...]]]] = {}


def program(make: Callable[[torch.dtype], tuple[Any, tuple[Any, ...]]]) -> Any:
    PROGRAMS[make.__name__] = make
    return make


def leaf(*shape: int, dtype: torch.dtype, seed: int = 0, requires_grad: bool = True) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator).to(dtype).requires_grad_(requires_grad)


def seeded(module: nn.Module, dtype: torch.dtype) -> nn.Module:
    with torch.no_grad():
        for i, p in enumerate(module.parameters()):
            p.copy_(torch.randn(p.shape, generator=torch.Generator().manual_seed(i)) / 4)
    return module.to(dtype)


@program
def perceptron(dtype: torch.dtype) -> Any:
    return seeded(nn.Sequential(nn.Linear(24, 32), nn.GELU(), nn.Linear(32, 8)), dtype), (
        leaf(12, 24, dtype=dtype),
    )


@program
def normalised(dtype: torch.dtype) -> Any:
    model = nn.Sequential(nn.Linear(24, 32), nn.LayerNorm(32), nn.SiLU(), nn.Linear(32, 8), nn.Softmax(-1))
    return seeded(model, dtype), (leaf(12, 24, dtype=dtype),)


@program
def attention(dtype: torch.dtype) -> Any:
    def f(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)

    return f, tuple(leaf(2, 3, 10, 8, dtype=dtype, seed=i) for i in range(3))


@program
def written_attention(dtype: torch.dtype) -> Any:
    def f(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        scores = q @ k.transpose(-1, -2) / 8**0.5
        mask = torch.ones(10, 10, dtype=torch.bool).tril()
        return scores.masked_fill(~mask, float("-inf")).softmax(-1) @ v

    return f, tuple(leaf(2, 3, 10, 8, dtype=dtype, seed=i) for i in range(3))


@program
def batch_normalised(dtype: torch.dtype) -> Any:
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()
    )
    return seeded(model, dtype), (leaf(4, 3, 8, 8, dtype=dtype),)


@program
def dropped_out(dtype: torch.dtype) -> Any:
    return seeded(nn.Sequential(nn.Linear(24, 32), nn.Dropout(0.4), nn.Tanh()), dtype), (
        leaf(12, 24, dtype=dtype),
    )


@program
def language_model(dtype: torch.dtype) -> Any:
    embedding, head = leaf(20, 16, dtype=dtype), leaf(20, 16, dtype=dtype, seed=1)
    tokens = torch.arange(24).reshape(4, 6) % 20

    def f(w: Tensor, h: Tensor, tokens: Tensor) -> Tensor:
        hidden = F.embedding(tokens, w)
        logits = F.linear(torch.tanh(hidden), h)
        return F.cross_entropy(logits.flatten(0, 1).float(), tokens.flatten())

    return f, (embedding, head, tokens)


@program
def rms_gate(dtype: torch.dtype) -> Any:
    def f(x: Tensor, w: Tensor, a: Tensor, b: Tensor) -> Tensor:
        h = x.float()
        h = (h * torch.rsqrt(h.square().mean(-1, keepdim=True) + 1e-6)).to(x.dtype) * w
        return F.silu(h @ a) * (h @ b)

    shapes = ((10, 24), (24,), (24, 16), (24, 16))
    return f, tuple(leaf(*s, dtype=dtype, seed=i) for i, s in enumerate(shapes))


@program
def reductions(dtype: torch.dtype) -> Any:
    def f(x: Tensor) -> Any:
        return x.sum(0), x.mean(1), x.var(-1), x.amax(0), x.logsumexp(1), x.norm(dim=1), x.cumsum(1)

    return f, (leaf(17, 33, dtype=dtype),)


@program
def long_sums(dtype: torch.dtype) -> Any:
    def f(x: Tensor) -> Any:
        return (x * 3).sum(-1), (x.square() + 1).mean(-1), (x.sin() - x).sum()

    return f, (leaf(2, 20_000, dtype=dtype),)


@program
def cancelling(dtype: torch.dtype) -> Any:
    def f(x: Tensor, y: Tensor) -> Any:
        return (x + 100) - (y + 100), (x * y - y * x.clamp(-1, 1)).sum(0), torch.expm1(x) - x.exp() + 1

    return f, (leaf(20, 30, dtype=dtype), leaf(20, 30, dtype=dtype, seed=1))


@program
def comparisons(dtype: torch.dtype) -> Any:
    def f(x: Tensor, y: Tensor) -> Any:
        near = x * y
        return (
            torch.where(near > x, near, x),
            near > y / 3,
            near.clamp(min=0.25),
            (near >= 0).sum(0),
            F.relu(near - x),
        )

    return f, (leaf(20, 30, dtype=dtype), leaf(20, 30, dtype=dtype, seed=1))


@program
def selections(dtype: torch.dtype) -> Any:
    def f(x: Tensor, i: Tensor) -> Any:
        return (
            x[i],
            x.gather(1, i[:, None].expand(-1, 3)),
            x.index_add(0, i, x[: len(i)]),
            x.flip(0)[1::2],
            x.argmax(1),
        )

    return f, (leaf(12, 9, dtype=dtype), torch.tensor([3, 0, 3, 8, 5]))


@program
def layouts(dtype: torch.dtype) -> Any:
    def f(x: Tensor) -> Any:
        y = x.transpose(0, 2)
        return (y * 2).exp(), y.reshape(-1)[::3].sin(), x.permute(1, 0, 2).contiguous() + 1, y.softmax(0)

    return f, (leaf(6, 7, 8, dtype=dtype),)


@program
def written_in_place(dtype: torch.dtype) -> Any:
    def f(x: Tensor, state: Tensor) -> Tensor:
        y = x * 2
        y[1:3] += 1
        y.mul_(x.sigmoid())
        state.mul_(0.9).add_(y.detach().mean(0))
        return y + state

    return f, (leaf(6, 8, dtype=dtype), leaf(8, dtype=dtype, seed=1, requires_grad=False))


@program
def recurrent(dtype: torch.dtype) -> Any:
    def f(x: Tensor, w: Tensor, u: Tensor) -> Tensor:
        h = torch.zeros_like(x[0] @ w)
        for step in x:
            z = torch.sigmoid(step @ w + h @ u)
            h = z * h + (1 - z) * torch.tanh(step @ w - h @ u)
        return h

    shapes = ((6, 4, 8), (8, 16), (16, 16))
    return f, tuple(leaf(*s, dtype=dtype, seed=i) for i, s in enumerate(shapes))


@program
def group_normalised(dtype: torch.dtype) -> Any:
    model = nn.Sequential(nn.Conv2d(4, 8, 1), nn.GroupNorm(2, 8), nn.Hardswish(), nn.AdaptiveAvgPool2d(2))
    return seeded(model, dtype), (leaf(3, 4, 6, 6, dtype=dtype),)


@program
def products(dtype: torch.dtype) -> Any:
    def f(a: Tensor, b: Tensor) -> Any:
        return torch.einsum("bij,bkj->bik", a, b), (a @ b.mT).sum(-1), torch.bmm(a, b.mT).pow(2)

    return f, (leaf(3, 6, 40, dtype=dtype), leaf(3, 5, 40, dtype=dtype, seed=1))


@program
def ill_conditioned(dtype: torch.dtype) -> Any:
    def f(x: Tensor) -> Any:
        big = x * 50
        return big.sin(), big.exp().log(), (big.square() - big * big).abs().sqrt().sum(), big.softmax(-1)

    return f, (leaf(8, 16, dtype=dtype),)


@program
def offsets(dtype: torch.dtype) -> Any:
    def f(x: Tensor) -> Tensor:
        h = x.float() + 300
        return (h - h.mean(-1, keepdim=True)).to(x.dtype) * 2

    return f, (leaf(8, 16, dtype=dtype),)


@program
def transformer_block(dtype: torch.dtype) -> Any:
    def norm(x: Tensor) -> Tensor:
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)

    def f(x: Tensor, w: Tensor, up: Tensor, down: Tensor) -> Tensor:
        q, k, v = (norm(x) @ w).view(2, 10, 3, 2, 8).permute(2, 0, 3, 1, 4)
        angle = torch.arange(10, dtype=x.dtype)[:, None] * torch.tensor(
            [1.0, 0.1, 1.0, 0.1] * 2, dtype=x.dtype
        )
        q, k = (y * angle.cos() + torch.cat((-y[..., 4:], y[..., :4]), -1) * angle.sin() for y in (q, k))
        x = x + F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)
        return norm(x + F.silu(norm(x) @ up) @ down)

    shapes = ((2, 10, 16), (16, 48), (16, 32), (32, 16))
    return f, tuple(leaf(*s, dtype=dtype, seed=i) for i, s in enumerate(shapes))


@program
def losses(dtype: torch.dtype) -> Any:
    def f(x: Tensor, y: Tensor) -> Any:
        return (
            F.mse_loss(x, y),
            F.smooth_l1_loss(x, y),
            F.kl_div(x.log_softmax(-1), y.softmax(-1), reduction="sum"),
        )

    return f, (leaf(9, 21, dtype=dtype), leaf(9, 21, dtype=dtype, seed=1))
