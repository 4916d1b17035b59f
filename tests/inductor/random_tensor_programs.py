"""Random programs of elementwise operators, reductions, views, moves and writes, and their gradients."""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn import functional as F

__all__ = ["KINDS", "RandomProgram", "random_program"]

#: kind → its values: of all dtypes, or floats that require gradients; "products" has matrix products too
KINDS = ("values", "writes", "gradients", "gradients and writes", "products")


def _names(text: str) -> list[str]:
    return text.split()


SHAPES = [(3, 4), (4,), (1, 4), (3, 1), (), (0, 4), (2, 3, 4), (1,)]
DTYPES = [torch.float64, torch.float32, torch.bfloat16, torch.float16]
DTYPES += [torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool]
NUMBERS = [2, 0.5, -1, True, 0, 3.7, -0.0, 255, 1e30, float("nan"), float("inf"), -7]
UNARY = _names("""
    neg sin exp sqrt reciprocal round floor ceil trunc sign sgn tanh sigmoid isnan isfinite
    isinf logical_not bitwise_not log1p expm1 rsqrt erf lgamma exp2 log2 square relu cosh atan
    frac nan_to_num asinh atanh erfinv
""")
#: eager's gelu of infinity is NaN for many elements, and infinity for few
ACTIVATIONS = _names("""
    silu softplus elu hardtanh leaky_relu relu6 hardswish logsigmoid mish selu softsign
    hardshrink
""")
BINARY = _names("""
    add sub mul div floor_divide remainder fmod pow maximum minimum atan2 eq ne lt le gt ge
    logical_and logical_or logical_xor bitwise_and bitwise_or bitwise_xor hypot xlogy fmax fmin
    rsub logaddexp
""")
REDUCTIONS = ["sum", "mean", "amax", "amin", "prod", "var", "std", "any", "all", "argmax", "argmin"]
#: views and moves of a tensor; the second argument is another one
MOVES: list[Callable[[Any, Any], Any]] = [
    lambda x, y: x.transpose(0, -1),
    lambda x, y: x.flip(0),
    lambda x, y: x.unsqueeze(0).expand(2, *x.shape),
    lambda x, y: x[1:],
    lambda x, y: x[..., ::2],
    lambda x, y: x.diagonal(),
    lambda x, y: x.reshape(-1, 2),
    lambda x, y: x.permute(*range(1, x.dim()), 0),
    lambda x, y: torch.cat([x, y]),
    lambda x, y: torch.stack([x, y]),
    lambda x, y: F.pad(x, (1, 2), value=1.0),
    lambda x, y: x.tril(),
    lambda x, y: x.squeeze(),
    lambda x, y: x.roll(1, 0),
    lambda x, y: x.unfold(-1, 2, 1),
    lambda x, y: x[0],
]
#: writes to a tensor, or to a part of it; the second argument is another one
WRITES: list[Callable[[Any, Any], Any]] = [
    lambda x, y: x.add_(y),
    lambda x, y: x.mul_(2),
    lambda x, y: x.copy_(y),
    lambda x, y: x.transpose(0, -1).mul_(2),
    lambda x, y: x[..., ::2].add_(1),
    lambda x, y: x[0].copy_(y),
    lambda x, y: x.diagonal().zero_(),
    lambda x, y: x.masked_fill_(x > 0, 1),
    lambda x, y: x[1:].sub_(y),
    lambda x, y: x.view(-1).clamp_(-1, 2),
]
PRODUCTS: list[Callable[[Any, Any], Any]] = [
    torch.matmul,
    lambda x, y: x @ y.transpose(0, -1),
    lambda x, y: F.linear(x, y),
    lambda x, y: x.transpose(0, -1) @ x,
]
DIFFERENTIABLE = _names("sin cos tanh sigmoid erf atan square relu exp neg softplus silu gelu elu mish")
DIFFERENTIABLE_BINARY = _names("add sub mul maximum minimum atan2 hypot logaddexp rsub")
DIFFERENTIABLE_REDUCTIONS = ["sum", "mean", "amax", "prod", "logsumexp", "softmax", "cumsum"]


@dataclass
class RandomProgram:
    """A function, its arguments, and the operators in it for messages."""

    inputs: list[torch.Tensor]
    calls: list[tuple[Callable[..., Any], tuple[int, ...], str]]
    outputs: list[int]

    def __call__(self, *tensors: torch.Tensor) -> list[torch.Tensor]:
        """Return the results that the program has of these tensors."""
        values: list[torch.Tensor] = list(tensors)
        for function, places, _ in self.calls:
            values.append(function(*(values[i] for i in places)))
        return [values[i] for i in self.outputs]


def random_program(seed: int, kind: str = "values") -> RandomProgram:
    """Return a program of a kind that eager runs."""
    choice, generator = random.Random(seed), torch.Generator().manual_seed(seed)
    smooth = kind.startswith("gradients")
    inputs = [_leaf(choice, generator) if smooth else _tensor(choice, generator) for _ in range(3)]
    program, values = RandomProgram(deepcopy(inputs), [], []), list(inputs)
    if smooth:  # leaves cannot be written
        program.calls = [(lambda x: x * 1, (i,), f"mul %{i} 1") for i in range(3)]
        values += [x * 1 for x in inputs]
    length = len(program.calls) + choice.randint(3, 9)
    while len(program.calls) < length:
        if "writes" in kind and choice.random() < 0.3:
            function, places, text = _pair(choice, values, WRITES, "write", 3 if smooth else 0)
        elif kind == "products" and choice.random() < 0.3:
            function, places, text = _pair(choice, values, PRODUCTS, "product", 0)
        else:
            function, places, text = (_smooth_call if smooth else _call)(choice, values)
        try:
            with warnings.catch_warnings(action="ignore"):
                value = function(*(values[i] for i in places))
        except (RuntimeError, TypeError, IndexError, AttributeError):  # eager refuses the call
            continue
        if not value.is_complex() and value.numel() < 4000 and not _overflows(value, smooth):
            values.append(value)
            program.calls.append((function, places, text))
    program.outputs = sorted({choice.randrange(3, len(values)), len(values) - 1})
    return program


def _overflows(value: torch.Tensor, smooth: bool) -> bool:
    return smooth and not bool((value.abs() < 1e3).all())


def _leaf(choice: random.Random, generator: torch.Generator) -> torch.Tensor:
    """Return a tensor of floats that may require gradients."""
    shape, dtype = choice.choice(SHAPES), choice.choice([torch.float64, torch.float64, torch.float32])
    x = torch.rand(shape, generator=generator, dtype=dtype) * 2 - 1
    if choice.random() < 0.3 and x.dim() > 1:
        x = x.transpose(0, 1).contiguous().transpose(0, 1)
    return x.requires_grad_(choice.random() < 0.8)


def _pair(
    choice: random.Random,
    values: Sequence[torch.Tensor],
    functions: Sequence[Callable[..., Any]],
    text: str,
    first: int,
) -> tuple[Callable[..., Any], tuple[int, ...], str]:
    """Return a function of two tensors, of which the first has at least this place."""
    i, j = choice.randrange(first, len(values)), choice.randrange(len(values))
    number = choice.randrange(len(functions))
    return functions[number], (i, j), f"{text} {number} %{i} %{j}"


def _smooth_call(
    choice: random.Random, values: Sequence[torch.Tensor]
) -> tuple[Callable[..., Any], tuple[int, ...], str]:
    """Return a call that has a gradient."""
    i, j = (choice.randrange(len(values)) for _ in range(2))
    match choice.choices(range(4), [5, 5, 3, 3])[0]:
        case 0:
            name = choice.choice(DIFFERENTIABLE)
            return getattr(torch, name, None) or getattr(F, name), (i,), f"{name} %{i}"
        case 1:
            name = choice.choice(DIFFERENTIABLE_BINARY)
            return getattr(torch, name), (i, j), f"{name} %{i} %{j}"
        case 2:
            name, dim = choice.choice(DIFFERENTIABLE_REDUCTIONS), choice.choice([0, -1])
            return lambda x: getattr(torch, name)(x, dim=dim), (i,), f"{name} %{i} dim={dim}"
        case _:
            move = choice.choice(MOVES)
            return move, (i, j), f"move {MOVES.index(move)} %{i} %{j}"


def _tensor(choice: random.Random, generator: torch.Generator) -> torch.Tensor:
    dtype, shape = choice.choice(DTYPES), choice.choice(SHAPES)
    x = torch.randint(-5, 6, shape, generator=generator)
    if dtype.is_floating_point:
        special = torch.tensor([*[0.5] * 8, -0.0, float("nan"), float("inf"), -float("inf")])
        x = x / 2 * special[torch.randint(len(special), shape, generator=generator)]
    x = x.abs().to(dtype) if dtype is torch.uint8 else x.to(dtype)
    layout = choice.random()
    if layout < 0.2 and x.dim() > 1:
        return x.transpose(0, 1).contiguous().transpose(0, 1)
    if layout < 0.4 and x.dim():
        return torch.stack([x, x], -1)[..., 0]
    return x


def _call(
    choice: random.Random, values: Sequence[torch.Tensor]
) -> tuple[Callable[..., Any], tuple[int, ...], str]:
    """Return a function, the places of its arguments, and a text."""
    i, j, k = (choice.randrange(len(values)) for _ in range(3))
    kind = choice.choices(range(8), [6, 2, 5, 3, 2, 3, 1, 1])[0]
    name = choice.choice([UNARY, ACTIVATIONS, BINARY, BINARY, REDUCTIONS, [""], [""], [""]][kind])
    number, dim, keepdim = choice.choice(NUMBERS), choice.choice([0, -1]), choice.random() < 0.5
    move, dtype = choice.choice(MOVES), choice.choice(DTYPES)
    if not dtype.is_floating_point and values[i].is_floating_point():
        dtype = torch.bool  # conversions of nan and of large numbers to integers are undefined
    match kind:
        case 0:
            return getattr(torch, name), (i,), f"{name} %{i}"
        case 1:
            return getattr(F, name), (i,), f"{name} %{i}"
        case 2:
            return getattr(torch, name), (i, j), f"{name} %{i} %{j}"
        case 3:
            return lambda x: getattr(torch, name)(x, number), (i,), f"{name} %{i} {number}"
        case 4:
            text = f"{name} %{i} dim={dim} keepdim={keepdim}"
            return lambda x: getattr(torch, name)(x, dim=dim, keepdim=keepdim), (i,), text
        case 5:
            return move, (i, j), f"move {MOVES.index(move)} %{i} %{j}"
        case 6:
            return lambda x: x.to(dtype), (i,), f"to {dtype} %{i}"
        case _:
            return lambda c, x, y: torch.where(c.bool(), x, y), (i, j, k), f"where %{i} %{j} %{k}"
