"""Random programs of views, values and in-place writes.

A program is a list of instructions, each four small integers: an operator and three numbers that it takes
modulo whatever fits. Eager tries them first; those that it refuses (a ``view`` that the strides do not allow)
are left out, so that what remains runs everywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

Tensor = torch.Tensor
Instruction = tuple[int, int, int, int]


class Skip(Exception):
    """The instruction does not fit the tensor."""


def _dim(x: Tensor, n: int, least: int = 1) -> int:
    dims = [d for d in range(x.dim()) if x.shape[d] >= least]
    if not dims:
        raise Skip
    return dims[n % len(dims)]


def _select(x: Tensor, a: int, b: int) -> Tensor:
    d = _dim(x, a)
    return x.select(d, b % x.shape[d])


def _narrow(x: Tensor, a: int, b: int) -> Tensor:
    d = _dim(x, a, 2)
    start = b % (x.shape[d] - 1)
    return x.narrow(d, start, 1 + a % (x.shape[d] - start))


def _item(x: Tensor, a: int, b: int) -> Tensor:
    _dim(x, a)
    key: list[Any] = [slice(b % x.shape[0], None, 1 + a % 2), None, ...]
    return x[tuple(key[: 1 + a % 3])]


def _part(split: Callable[[Tensor, int, int], Sequence[Tensor]]) -> Callable[[Tensor, int, int], Tensor]:
    def part(x: Tensor, a: int, b: int) -> Tensor:
        d = _dim(x, a)
        parts = split(x, d, b)
        return parts[b % len(parts)]

    return part


def _transpose(x: Tensor, a: int, b: int) -> Tensor:
    return x.transpose(_dim(x, a), _dim(x, b))


def _squeeze(x: Tensor, a: int, b: int) -> Tensor:
    return x.squeeze(_dim(x, a))


def _diagonal(x: Tensor, a: int, b: int) -> Tensor:
    if x.dim() < 2:
        raise Skip
    return x.diagonal(b % 2, 0, 1)


def _flat(name: str) -> Callable[[Tensor, int, int], Tensor]:
    return lambda x, a, b: getattr(x, name)(-1)


def _halves(x: Tensor, a: int, b: int) -> Tensor:
    if x.numel() % 2 or not x.numel():
        raise Skip
    return x.reshape(2, -1)


#: operators whose result may lie in the memory of their argument
VIEWS: list[Callable[[Tensor, int, int], Tensor]] = [
    _select,
    _narrow,
    _item,
    _part(lambda x, d, b: x.split(1 + b % 2, d)),
    _part(lambda x, d, b: x.chunk(2, d)),
    _part(lambda x, d, b: x.unbind(d)),
    _transpose,
    _squeeze,
    _diagonal,
    _flat("view"),
    _flat("reshape"),
    _halves,
    lambda x, a, b: x.unsqueeze(a % (x.dim() + 1)),
    lambda x, a, b: x.permute(tuple(reversed(range(x.dim())))),
    lambda x, a, b: x.flatten(),
    lambda x, a, b: x.contiguous(),
    lambda x, a, b: x.detach(),
    lambda x, a, b: x.expand(1, *x.shape),
    lambda x, a, b: x.view_as(x),
    lambda x, a, b: x.to(torch.float32),
]

#: operators with a new tensor as result
VALUES: list[Callable[[Tensor, int, int], Tensor]] = [
    lambda x, a, b: x * 2,
    lambda x, a, b: x.clone(),
    lambda x, a, b: x + x.sum(),
    lambda x, a, b: x.expand(2, *x.shape) + 1,
]


def _copy(x: Tensor, a: int, b: int) -> None:
    x.copy_(x.detach().clone() * 3 + b)


def _set(x: Tensor, a: int, b: int) -> None:
    x[b % x.shape[_dim(x, 0) * 0]] = float(a)


#: writes; what is written never overlaps the target, because eager's order of reading and writing is not
#: defined
WRITES: list[Callable[[Tensor, int, int], Any]] = [
    lambda x, a, b: x.add_(b + 1),
    lambda x, a, b: x.mul_(2),
    lambda x, a, b: x.zero_(),
    lambda x, a, b: x.fill_(b),
    lambda x, a, b: x.relu_(),
    lambda x, a, b: torch.nn.functional.relu(x, inplace=True),
    _copy,
    _set,
]
OPERATORS = [*VIEWS, *VALUES, *WRITES]


def _step(pool: list[Tensor], instruction: Instruction) -> None:
    code, at, a, b = instruction
    result = OPERATORS[code](pool[at % len(pool)], a, b)
    if isinstance(result, torch.Tensor) and code < len(VIEWS) + len(VALUES):
        pool.append(result)


def accepted(instructions: Sequence[Instruction], inputs: Sequence[Tensor]) -> list[Instruction]:
    """The instructions that eager can run one after the other."""
    pool, kept = list(inputs), []
    for instruction in instructions:
        try:
            _step(pool, instruction)
        except (RuntimeError, Skip):
            continue
        kept.append(instruction)
    return kept


def program(instructions: Sequence[Instruction], returned: int) -> Callable[..., tuple[Tensor, ...]]:
    """The function that runs the instructions; bit ``i`` of ``returned`` says whether it returns tensor
    ``i``.
    """

    def run(*inputs: Tensor) -> tuple[Tensor, ...]:
        pool = list(inputs)
        for instruction in instructions:
            _step(pool, instruction)
        return tuple(t for i, t in enumerate(pool) if returned >> i & 1)

    return run
