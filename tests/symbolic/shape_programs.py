"""Random programs that compute with sizes, for the comparison with eager."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping

import torch
import torch.nn.functional as F

Step = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def _matrix(x):
    return x.reshape(x.shape[0], -1) if x.dim() else x.reshape(1, 1)


def _masked(x, y):
    m = _matrix(x)
    n = m.shape[-1]
    square = m.unsqueeze(0).expand(n, *m.shape)[:, 0] if m.shape[0] else m.new_zeros(n, n)
    return square.masked_fill(torch.triu(torch.ones(n, n, dtype=torch.bool), 1), -1.0)


def _branch_on_sum(x, y):
    return x * 2 if x.shape[0] + y.shape[0] > 6 else x - 1


def _branch_on_elements(x, y):
    return x + y.sum() if x.numel() % 3 == 0 else x * y.numel()


def _halves(x, y):
    half = x.shape[0] // 2
    return torch.cat([x[half:], x[:half]])


def _rows_in_common(x, y):
    n = min(x.shape[0], y.shape[0])
    return x[:n] if n > 1 else x[:1]


def _padded(x, y):
    return F.pad(x, (0, x.shape[-1] % 4))


def _positions(x, y):
    return x + torch.arange(x.shape[-1], dtype=x.dtype) / max(x.shape[-1], 1)


def _pieces(x, y):
    return sum(piece.sum() * i for i, piece in enumerate(x.split(2), 1)) + x


def _broadcast(x, y):
    return x.unsqueeze(0) * y.reshape(-1, *[1] * x.dim()) if y.numel() < 40 else x


def _grouped(x, y):
    return x.reshape(2, -1).sum(0) if x.numel() % 2 == 0 else x.reshape(-1)


def _written(x, y):
    z = x.clone()
    z[: x.shape[0] // 2] = 0
    return z


def _looped(x, y):
    total = x
    for i in range(min(x.shape[0], 3)):
        total = total + x[i] * i
    return total


#: each takes tensors of at least one dimension and of any size, and returns one
STEPS: dict[str, Step] = {
    "sin": lambda x, y: torch.sin(x) + 1,
    "double": lambda x, y: x + x * 0.5,
    "sum_first": lambda x, y: x.sum(0, keepdim=True),
    "sum_last": lambda x, y: x.sum(-1, keepdim=x.dim() == 1),
    "mean": lambda x, y: x - x.mean() if x.numel() else x,
    "amax": lambda x, y: x - x.amax(-1, keepdim=True) if x.shape[-1] else x,
    "softmax": lambda x, y: torch.softmax(x, -1),
    "layer_norm": lambda x, y: F.layer_norm(x, x.shape[-1:]) if x.numel() else x,
    "transpose": lambda x, y: x.transpose(0, -1),
    "contiguous": lambda x, y: x.transpose(0, -1).contiguous(),
    "flatten": lambda x, y: x.flatten(),
    "matrix": lambda x, y: _matrix(x) if x.shape[0] else x,
    "rows_last": lambda x, y: x.reshape(-1, x.shape[-1]) if x.shape[-1] else x,
    "gram": lambda x, y: _matrix(x) @ _matrix(x).t() if x.shape[0] else x,
    "outer": lambda x, y: x.flatten()[:5, None] * y.flatten()[:4],
    "tail": lambda x, y: x[1:],
    "ends": lambda x, y: x[..., :-1] + x[..., 1:],
    "every_other": lambda x, y: x[::2],
    "last": lambda x, y: x[-1:] * 3,
    "unsqueeze": lambda x, y: x.unsqueeze(1) if x.dim() < 4 else x,
    "expand": lambda x, y: x.unsqueeze(0).expand(2, *x.shape) if x.dim() < 4 else x,
    "repeat": lambda x, y: x.repeat(2, *[1] * (x.dim() - 1)) if x.numel() < 200 else x,
    "cat": lambda x, y: torch.cat([x, x * 2], -1) if x.numel() < 200 else x,
    "stack": lambda x, y: torch.stack([x, x.cos()], 1) if x.dim() < 4 else x,
    "flip": lambda x, y: x.flip(0).roll(1, -1),
    "chunk": lambda x, y: x.chunk(2, 0)[0],
    "cumsum": lambda x, y: x.cumsum(0),
    "where": lambda x, y: torch.where(x > 0, x, x * x.shape[0]),
    "zeros": lambda x, y: x + torch.zeros(x.shape[-1]),
    "full": lambda x, y: x * x.new_full(tuple(x.shape), float(x.dim())),
    "sort": lambda x, y: x.sort(-1)[0],
    "index": lambda x, y: x[torch.arange(x.shape[0] // 2)],
    "eye": lambda x, y: _matrix(x) + torch.eye(x.shape[0], _matrix(x).shape[1]) if x.shape[0] else x,
    "scale": lambda x, y: x / (x.shape[0] + 1) * (y.shape[0] * 2 - 1),
    "masked": lambda x, y: _masked(x, y) if x.shape[0] and x.numel() < 200 else x,
    "branch_on_sum": _branch_on_sum,
    "branch_on_elements": _branch_on_elements,
    "halves": _halves,
    "rows_in_common": _rows_in_common,
    "padded": _padded,
    "positions": _positions,
    "pieces": _pieces,
    "broadcast": _broadcast,
    "grouped": _grouped,
    "written": _written,
    "looped": _looped,
    "other": lambda x, y: x + y.flatten()[:1].sum(),
    "clone": lambda x, y: x.clone().mul_(2),
}


def random_program(
    rng: random.Random, known: Mapping[str, Step] = STEPS
) -> tuple[Callable[..., tuple[torch.Tensor, object]], list[str]]:
    """Return a program of two tensors, and the names of its steps, which are among the known ones."""
    names = [rng.choice(list(known)) for _ in range(rng.randint(2, 5))]
    return program_of([known[name] for name in names]), names


def program_of(steps: Iterable[Step]) -> Callable[..., tuple[torch.Tensor, object]]:
    """Return the program of two tensors that applies steps in turn, and sums what they return."""
    steps = tuple(steps)

    def program(x, y):
        total = y.sum()
        for step in steps:
            x = step(x, y)
            total = total + (x * x).sum() * 0.5
        return x, total, x.shape, x.shape[0] * 2

    return program


def random_shapes(rng: random.Random, rank: int, other: int) -> tuple[list[int], list[int]]:
    """Return the shapes of the arguments; short and empty ones are not rare."""
    return [[rng.choice([0, 1, 2, 3, 4, 5, 6]) for _ in range(n)] for n in (rank, other)]  # type: ignore[return-value]
