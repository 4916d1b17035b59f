"""Random programs of several dtypes, layouts and sizes, zero among them, with gradients, against eager."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
import torch

import thunder
from sweeping import one_in
from thunder_triton.executor import ex
from triton_executor.interpreted.generated_inputs import layout

Tensor = torch.Tensor
#: in float64 alone, so that a difference is a fault and no rounding
FLOAT = torch.float64
DTYPES = (FLOAT, FLOAT, torch.int64, torch.int32, torch.bool)


def kind(x: Tensor) -> str:
    return "float" if x.is_floating_point() else "bool" if x.dtype is torch.bool else "int"


UNARY: dict[str, dict[str, Callable[[Tensor], Tensor]]] = {
    "float": {
        "sin": torch.sin,
        "scaled": lambda x: x * 0.5 + 0.25,
        "clamped": lambda x: x.clamp(-1, 2),
        "silu": torch.nn.functional.silu,
        "positive": lambda x: x > 0.1,
        "rounded": lambda x: x.detach().round().to(torch.int64),
        "leaky": lambda x: torch.nn.functional.leaky_relu(x, 0.2),
    },
    "int": {
        "tripled": lambda x: x * 3 - 1,
        "masked": lambda x: x & 7,
        "turned": lambda x: ~x,
        "float": lambda x: (x & 15).to(FLOAT) * 0.1,
        "positive": lambda x: x > 1,
        "bounded": lambda x: x.clamp(-3, 5),
    },
    "bool": {
        "not": torch.logical_not,
        "int": lambda x: x.to(torch.int32) * 2,
        "float": lambda x: x.to(FLOAT) - 0.5,
        "chosen": lambda x: torch.where(x, 1.5, -0.5).to(FLOAT),
    },
}
BINARY: dict[str, dict[str, Callable[[Tensor, Tensor], Tensor]]] = {
    "float": {
        "add": torch.add,
        "mul": torch.mul,
        "less": torch.lt,
        "maximum": torch.maximum,
        "ratio": lambda x, y: x / (y.abs() + 1),
        "where": lambda x, y: torch.where(x > y, x * 2, y),
    },
    "int": {
        "add": torch.add,
        "mul": lambda x, y: (x & 31) * (y & 31),
        "equal": torch.eq,
        "xor": torch.bitwise_xor,
        "minimum": torch.minimum,
    },
    "bool": {"and": torch.logical_and, "or": torch.bitwise_or, "xor": torch.ne},
}


def moved(x: Tensor, choose: random.Random) -> Tensor:
    """Return the elements in another place, shape or number."""
    if x.dim() == 0:
        return x.expand(choose.choice((1, 3)))
    d = choose.randrange(x.dim())
    match choose.choice(
        ("flip", "swap", "flatten", "narrow", "expand", "pad", "step", "cat", "roll", "tril")
    ):
        case "flip":
            return x.flip(d)
        case "swap":
            return x.transpose(d, -1)
        case "flatten":
            return x.reshape(-1)
        case "narrow":
            return x.narrow(d, min(1, x.shape[d]), max(x.shape[d] - 1, 0))
        case "expand" if x.dim() < 4:
            return x.unsqueeze(d).expand(*x.shape[:d], choose.choice((1, 2, 0)), *x.shape[d:])
        case "pad":
            return torch.nn.functional.pad(x, (choose.choice((0, 1, -1)) if x.shape[-1] else 0, 2), value=1)
        case "step":
            return x[(slice(None),) * d + (slice(None, None, 2),)]
        case "cat":
            return torch.cat([x, x.flip(d)], d)
        case "roll" if x.numel():
            return x.roll(1, d)
        case "tril" if x.dim() > 1:
            return x.tril(choose.choice((-1, 0, 1)))
    return x


def reduced(x: Tensor, choose: random.Random) -> Tensor:
    """Return a reduction of several dimensions, a scan, or elements at places."""
    if x.dim() == 0:
        return x
    dims = choose.sample(range(x.dim()), choose.randint(1, x.dim()))
    d, keepdim = dims[0], choose.random() < 0.5
    name = choose.choice(("sum", "amax", "any", "all", "scan", "mean", "place", "largest", "gather", "write"))
    if name in ("any", "all"):
        return getattr(torch, name)(x, d, keepdim)
    if name == "sum" and x.dtype is not torch.bool:
        return x.sum(dims, keepdim)
    if name == "scan" and x.dtype is not torch.bool:
        return (x & 3).cumsum(d) if kind(x) == "int" else x.cumsum(d)
    if name == "mean" and kind(x) == "float":
        return x - x.mean(dims, keepdim=True)
    if 0 in x.shape:
        return x
    if name == "amax":
        return x.amax(dims, keepdim)
    if name == "place" and x.dtype is not torch.bool:
        return x.argmax(d, keepdim)
    if name == "largest" and x.dtype is not torch.bool:
        return x.max(d, keepdim).values
    index = (torch.arange(2).reshape([2 if i == d else 1 for i in range(x.dim())]) * 5) % x.shape[d]
    index = index.expand([2 if i == d else size for i, size in enumerate(x.shape)])
    if name == "gather":
        return x.gather(d, index)
    if name == "write" and x.dtype is not torch.bool:
        return x.scatter_add(d, index, x.gather(d, index))
    return x


def program(seed: int, *inputs: Tensor) -> list[Tensor]:
    """Run the random program of a seed, which depends on the shapes of its inputs."""
    choose, values = random.Random(seed), list(inputs)
    for _ in range(choose.randint(4, 10)):
        x, step = choose.choice(values[-4:]), choose.random()
        if step < 0.35:
            table = UNARY[kind(x)]
            values.append(table[choose.choice(sorted(table))](x))
        elif step < 0.55:
            partners = [y for y in values if y.dtype == x.dtype and _fits(x, y)]
            binary = BINARY[kind(x)]
            values.append(binary[choose.choice(sorted(binary))](x, choose.choice(partners)))
        elif step < 0.75:
            values.append(moved(x, choose))
        else:
            values.append(reduced(x, choose))
    return [value.logical_not() if value.dtype is torch.bool else value * 1 for value in values[-3:]]


def _fits(x: Tensor, y: Tensor) -> bool:
    """Return whether two tensors broadcast to the shape of one of them."""
    pairs = zip(reversed(x.shape), reversed(y.shape), strict=False)
    return all(a == b or 1 in (a, b) for a, b in pairs)


def drawn(choose: random.Random, shape: list[int], dtype: torch.dtype) -> Tensor:
    """Return an input of any layout: contiguous, permuted, strided, expanded, or with an offset."""
    how = choose.choice(("contiguous", "permuted", "strided", "expanded", "offset"))
    full = [size + 1 if how == "offset" and d == 0 else size for d, size in enumerate(shape)]
    if how == "expanded":
        full[choose.randrange(len(full))] = 1
    x = torch.randn(full, dtype=FLOAT) * 2
    x = x if dtype is FLOAT else x > 0 if dtype is torch.bool else x.round().to(dtype)
    if how == "permuted":
        order = choose.sample(range(len(shape)), len(shape))
        x = x.permute(order).contiguous().permute([order.index(d) for d in range(len(shape))])
    if how == "strided":
        x = torch.stack([x, x], -1)[..., 1]
    x = x[1:] if how == "offset" else x
    expanded = [1 if a == b else b for a, b in zip(shape, x.shape, strict=True)]
    return x.expand([a if b == 1 else b for a, b in zip(shape, x.shape, strict=True)]) if expanded else x


def check(seed: int) -> None:
    """Compare results, layouts and gradients of the program of a seed with eager's."""
    choose = random.Random(seed)
    torch.manual_seed(seed)
    shape = [choose.choice((1, 2, 3, 4, 7, 17)) for _ in range(choose.randint(1, 3))]
    if choose.random() < 0.15:
        shape[choose.randrange(len(shape))] = 0
    inputs = [drawn(choose, shape, choose.choice(DTYPES)) for _ in range(3)]
    leaves = [x.requires_grad_() for x in inputs if x.is_floating_point() and choose.random() < 0.6]
    compiled = thunder.jit(lambda *values: program(seed, *values), executors=[ex])
    found, expected = compiled(*inputs), program(seed, *inputs)
    for ours, eager in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, eager, rtol=1e-10, atol=1e-10)
        assert layout(ours) == layout(eager)
        assert ours.requires_grad == eager.requires_grad
    gradients = [_gradients(results, leaves) for results in (found, expected)]
    for ours, eager in zip(*gradients, strict=True):
        torch.testing.assert_close(ours, eager, rtol=1e-9, atol=1e-9)


def _gradients(results: list[Tensor], leaves: list[Tensor]) -> Any:
    differentiable = [(r * r.detach().cos()).sum() for r in results if r.requires_grad]
    if not differentiable:
        return []
    total = torch.stack(differentiable).sum()
    return [g for g in torch.autograd.grad(total, leaves, allow_unused=True) if g is not None]


@pytest.mark.parametrize("seed", one_in(200, range(2000)))
def test_mixed_programs_are_those_of_eager(seed: int):
    check(seed)
