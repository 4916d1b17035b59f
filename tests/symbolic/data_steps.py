"""Steps of random programs whose sizes depend on data: masks, positions, distinct values, counts, numbers."""

from __future__ import annotations

import operator
import random
from collections.abc import Callable, Mapping

import torch

from symbolic.shape_programs import program_of
from symbolic.shape_steps import matrix

Step = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]

#: no value that programs compute is near it, so that rounding changes no mask
LIMIT = 0.1234567


def rows(x):
    """Return which rows are chosen, ``(n,)``."""
    return matrix(x.detach()).sum(1) > LIMIT


def _integers(x):
    return (x.detach().nan_to_num(0, 0, 0).clamp(-3, 3) + LIMIT).round()


def _scattered(x, y):
    chosen = rows(x)
    result = torch.zeros_like(x)
    result[chosen] = x[chosen].sin()
    return result


def _written(x, y):
    z = x.clone()
    mask = z > LIMIT
    z[mask] = z[mask] * 2 + 1
    return z


def _counted(x, y):
    values, where, counts = torch.unique(_integers(x), return_inverse=True, return_counts=True)
    return x * counts[where] + values.sum()


def _first(x, y):
    n = rows(x).sum().item()
    return x[:n]


def _first_checked(x, y):
    n = rows(x).sum().item()
    torch._check(n <= x.shape[0])
    return torch.cat([x[:n], x.narrow(0, n, x.shape[0] - n) * 2])


def _routed(x, y):
    result = torch.zeros_like(x)
    for chosen in (rows(x), ~rows(x)):
        (where,) = torch.where(chosen)
        result = result.index_add(0, where, x[where] * 2)
    return result


def _experts(x, y):
    """Return the rows, each times the number of its group, in the order of the groups."""
    groups = _groups(x)
    counts = torch.stack([(groups == g).sum() for g in range(3)])
    parts = x[groups.argsort(stable=True)].split(counts.tolist())
    return torch.cat([part * (g + 1) for g, part in enumerate(parts)])


def _groups(x):
    return rows(x).long() + rows(-x).long() * 2


def _cut(x, y):
    cuts = torch.stack([rows(x).sum() // 2, rows(x).sum()])
    return torch.cat([part * (i + 1) for i, part in enumerate(torch.tensor_split(x, cuts))])


def _classes(x, y):
    groups = _groups(x)
    return x.sum() + torch.nn.functional.one_hot(groups) if groups.numel() else x


def _mean_of_first(x, y):
    n = int(rows(x).sum())
    return x * x[:n].sum() / (n + 1) + torch.arange(operator.index(rows(x).sum())).sum()


#: each takes tensors of at least one dimension and of any size, and returns one
DATA_STEPS: dict[str, Step] = {
    "elements": lambda x, y: x[x > LIMIT],
    "elements of the other": lambda x, y: y[y > LIMIT].sum() + x,
    "rows": lambda x, y: x[rows(x)],
    "rows by position": lambda x, y: x.index_select(0, torch.where(rows(x))[0]),
    "rows by nonzero": lambda x, y: x[rows(x).nonzero()[:, 0]],
    "masked_select": lambda x, y: torch.masked_select(x, x > LIMIT) * 2,
    "masked mean": lambda x, y: x * x[x > LIMIT].mean(),
    "masked sum": lambda x, y: x - (x[x > LIMIT] ** 2).sum() / (rows(x).sum() + 1),
    "scattered": _scattered,
    "masked write": _written,
    "distinct": lambda x, y: torch.unique(_integers(x)) * x.sum(),
    "distinct rows": lambda x, y: torch.unique(_integers(matrix(x)), dim=0) + x.sum(),
    "in a row": lambda x, y: torch.unique_consecutive(_integers(x)) + x.sum(),
    "counted": _counted,
    "experts": _experts,
    "cut": _cut,
    "classes": _classes,
    "mean of the first": _mean_of_first,
    "by a tensor": lambda x, y: x[: rows(x).sum()] * 2,
    "bincount": lambda x, y: torch.bincount(_integers(x).abs().long().flatten()) + x.sum(),
    "repeated": lambda x, y: x.repeat_interleave(rows(x).long() * 2, 0),
    "first": _first,
    "first checked": _first_checked,
    "arange": lambda x, y: torch.arange(rows(x).sum().item()) * x.sum(),
    "new_zeros": lambda x, y: x.new_zeros(rows(x).sum().item(), 3) + x.sum(),
    "routed": _routed,
    "size": lambda x, y: x * x[rows(x)].shape[0],
}


def random_data_program(
    rng: random.Random, others: Mapping[str, Step]
) -> tuple[Callable[..., tuple[torch.Tensor, object]], list[str]]:
    """Return a program of two tensors, and the names of its steps, some of which depend on data."""
    names = [rng.choice(list(DATA_STEPS)), *(rng.choice([*DATA_STEPS, *others]) for _ in range(3))]
    rng.shuffle(names)
    return program_of(DATA_STEPS[name] if name in DATA_STEPS else others[name] for name in names), names


def random_data(rng: random.Random, shape: list[int]) -> torch.Tensor:
    """Return a tensor of which none, few or all elements are chosen by masks."""
    draws = torch.Generator().manual_seed(rng.randrange(1 << 30))
    data = torch.randn(shape, generator=draws, dtype=torch.float64)
    return data + rng.choice([-9.0, -1.0, 0.0, 0.0, 1.0, 9.0])
