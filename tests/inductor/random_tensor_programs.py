"""Random programs of elementwise operators, reductions, views and moves, over floats, integers and bools."""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn import functional as F

__all__ = ["RandomProgram", "random_program"]


def _names(text: str) -> list[str]:
    return text.split()


SHAPES = [(3, 4), (4,), (1, 4), (3, 1), (), (0, 4), (2, 3, 4), (1,)]
DTYPES = [torch.float64, torch.float32, torch.bfloat16, torch.int64, torch.int32, torch.uint8, torch.bool]
NUMBERS = [2, 0.5, -1, True, 0, 3.7, -0.0, 255, 1e30, float("nan"), float("inf"), -7]
UNARY = _names("""
    neg sin exp sqrt reciprocal round floor ceil trunc sign sgn tanh sigmoid isnan isfinite
    isinf logical_not bitwise_not log1p expm1 rsqrt erf lgamma exp2 log2 square relu cosh atan
    frac nan_to_num asinh atanh erfinv
""")
ACTIVATIONS = _names("""
    silu gelu softplus elu hardtanh leaky_relu relu6 hardswish logsigmoid mish selu softsign
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


def random_program(seed: int) -> RandomProgram:
    """Return a program that eager runs."""
    choice, generator = random.Random(seed), torch.Generator().manual_seed(seed)
    inputs = [_tensor(choice, generator) for _ in range(3)]
    program, values = RandomProgram(inputs, [], []), list(inputs)
    length = choice.randint(3, 9)
    while len(program.calls) < length:
        function, places, text = _call(choice, values)
        try:
            with warnings.catch_warnings(action="ignore"):
                value = function(*(values[i] for i in places))
        except (RuntimeError, TypeError, IndexError):  # eager refuses the call
            continue
        if not value.is_complex() and value.numel() < 4000:
            values.append(value)
            program.calls.append((function, places, text))
    program.outputs = sorted({choice.randrange(3, len(values)), len(values) - 1})
    return program


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
