"""Random programs of elementwise operators, views, reductions and places, in any layout, against float64."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch

import thunder
from sweeping import one_in
from thunder_triton.executor import ex
from triton_executor.interpreted.generated_inputs import layout

BOUNDS = {torch.float64: 1e-10, torch.float32: 2e-5, torch.bfloat16: 8e-2, torch.float16: 1e-2}

UNARY = {
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "abs": torch.abs,
    "cos": torch.cos,
    "erf": torch.erf,
    "neg": torch.neg,
    "scale": lambda x: x * 0.75 + 0.25,
    "relu": torch.relu,
    "cumulative": lambda x: x.cumsum(-1).to(x.dtype) * 0.25 if x.dim() else x,
    "largest": lambda x: x - x.max(-1, keepdim=True).values if x.numel() and x.dim() else x,
    "last": lambda x: x.index_select(-1, torch.arange(x.shape[-1]) % 2) if x.dim() else x,
    "lower": lambda x: x.tril() if x.dim() > 1 else x,
}
BINARY = {
    "add": torch.add,
    "sub": torch.sub,
    "mul": torch.mul,
    "maximum": torch.maximum,
    "where": lambda x, y: torch.where(x > y, x * 0.5, y),
    "ratio": lambda x, y: x / (y.abs() + 1),
    "cat": lambda x, y: torch.cat([x, y])[: len(x)] if x.dim() else x,
}


def moved(x: torch.Tensor, choose: random.Random) -> torch.Tensor:
    """Return the elements of a tensor in another place or shape."""
    if x.dim() == 0:
        return x.expand(2)
    d = choose.randrange(x.dim())
    kind = choose.choice(("flip", "swap", "flatten", "split", "narrow", "expand", "pad", "step"))
    if kind == "flip":
        return x.flip(d)
    if kind == "swap":
        return x.transpose(d, -1)
    if kind == "flatten":
        return x.reshape(-1)
    if kind == "split" and x.shape[d] % 2 == 0:
        return x.reshape(*x.shape[:d], 2, -1, *x.shape[d + 1 :]) if x.numel() else x
    if kind == "narrow" and x.shape[d] > 1:
        return x.narrow(d, 1, x.shape[d] - 1)
    if kind == "expand" and x.dim() < 4:
        return x.unsqueeze(d).expand(*x.shape[:d], 2, *x.shape[d:])
    if kind == "pad":
        return torch.nn.functional.pad(x, (1, 2), value=0.5)
    if kind == "step":
        return x[(slice(None),) * d + (slice(None, None, 2),)]
    return x


def reduced(x: torch.Tensor, choose: random.Random) -> torch.Tensor:
    """Return a reduction, or values less one of their row."""
    if x.dim() == 0 or x.numel() == 0:
        return x
    dims = choose.sample(range(x.dim()), choose.randint(1, x.dim()))
    kind = choose.choice(("sum", "mean", "amax", "var", "centred", "softmax"))
    if kind == "softmax":
        return x.softmax(dims[0])
    if kind == "centred":
        return x - x.mean(dims, keepdim=True)
    if kind == "var":
        return x.var(dims, unbiased=False)
    if kind == "amax":
        return x.amax(dims)
    return (x.sum(dims) if kind == "sum" else x.mean(dims)) * 0.5


def program(seed: int, *inputs: torch.Tensor) -> Any:
    """Run the random program of a seed, which depends on the shapes of its inputs."""
    choose = random.Random(seed)
    values = list(inputs)
    for _ in range(choose.randint(4, 9)):
        x = choose.choice(values[-3:])
        step = choose.random()
        if step < 0.35:
            values.append(UNARY[choose.choice(sorted(UNARY))](x))
        elif step < 0.6:
            partners = [y for y in values if y.shape == x.shape]
            values.append(BINARY[choose.choice(sorted(BINARY))](x, choose.choice(partners)))
        elif step < 0.8:
            values.append(moved(x, choose))
        else:
            values.append(reduced(x, choose))
    return [value * 1 for value in values[-2:]]


def laid_out(x: torch.Tensor, choose: random.Random) -> torch.Tensor:
    """Return equal elements in another layout."""
    kind = choose.choice(("contiguous", "transposed", "strided", "offset"))
    if kind == "transposed":
        return x.mT.contiguous().mT
    if kind == "strided":
        return torch.stack([x, x], -1)[..., 1]
    return torch.cat([x[:1], x])[1:] if kind == "offset" else x.clone()


@pytest.mark.parametrize("seed", one_in(40, range(400)))
def test_random_programs(seed: int):
    choose = random.Random(seed)
    torch.manual_seed(seed)
    dtype = choose.choice(sorted(BOUNDS, key=str))
    shape = [choose.choice((1, 2, 3, 4, 5, 8, 17)) for _ in range(choose.randint(2, 3))]
    shape = [0, *shape[1:]] if choose.random() < 0.05 else shape
    inputs = [laid_out(torch.randn(shape, dtype=dtype), choose) for _ in range(2)]
    compiled = thunder.jit(lambda *values: program(seed, *values), executors=[ex])
    results = compiled(*inputs)
    eager = program(seed, *inputs)
    wide = program(seed, *(x.double() for x in inputs))
    bound = BOUNDS[dtype]
    for result, same, reference in zip(results, eager, wide, strict=True):
        assert (result.dtype, result.shape) == (same.dtype, same.shape)
        assert layout(result) == layout(same)
        error = (same.double() - reference).abs()  # a chain may amplify a rounding, as it does in eager
        difference = (result.double() - reference).abs()
        assert (
            (difference <= 2 * error.max() + bound * (1 + reference.abs())).all()
            if len(error.flatten())
            else True
        )
