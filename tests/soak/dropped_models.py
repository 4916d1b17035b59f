"""Models that are compiled, trained and dropped in one process: nothing of them is left."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable

import torch
from torch import nn

import thunder
from soak.memory_use import MemoryUse, assert_flat


class Attention(nn.Module):
    """A block of attention, with a mask and a residual."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norm, self.qkv = nn.LayerNorm(width), nn.Linear(width, 3 * width)
        self.out, self.heads = nn.Linear(width, width), heads

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return ``(batch, length, width)``."""
        batch, length, width = x.shape
        q, k, v = self.qkv(self.norm(x)).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return x + self.out(y.transpose(1, 2).reshape(batch, length, width))


class Recurrent(nn.Module):
    """A cell in a loop, whose state is an attribute."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.cell, self.steps = nn.GRUCell(width, width), 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return ``(batch, width)``."""
        h = torch.zeros(x.shape[0], x.shape[2])
        for step in range(x.shape[1]):
            h = self.cell(x[:, step], h)
        self.steps += 1
        return h


def _sequence(width: int, depth: int) -> nn.Module:
    return nn.Sequential(*(nn.Sequential(nn.Linear(width, width), nn.GELU()) for _ in range(depth)))


#: models, with the shape of their input
MODELS: list[tuple[Callable[[], nn.Module], tuple[int, ...]]] = [
    (lambda: _sequence(8, 4), (3, 8)),
    (lambda: nn.Sequential(*(Attention(16, 4) for _ in range(2))), (2, 5, 16)),
    (lambda: Recurrent(8), (2, 3, 8)),
    (lambda: nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten()), (2, 3, 6, 6)),
    (lambda: nn.TransformerEncoderLayer(16, 4, 32, dropout=0.0, batch_first=True), (2, 5, 16)),
    (lambda: nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.5), nn.Softmax(-1)), (3, 8)),
]


def dropped(count: int, settings: dict[str, object] | None = None, *, objects: int = 1) -> dict[str, float]:
    """Compile and train ``count`` models one after the other; fail where one is left, or memory.

    ``objects`` may be left for each.
    """
    for number in range(min(count, len(MODELS))):
        _train(number, settings)
    gc.collect()
    before = MemoryUse.now()
    for number in range(count):
        left = [reference for reference in _train(number, settings) if reference() is not None]
        if left:
            gc.collect()
        kept = [name for name in map(_name, left) if name]
        assert kept == [], f"model {number % len(MODELS)}: {kept} are alive"
    after = MemoryUse.now()
    assert_flat(before, after, objects=200 + objects * count, resident=20 + count / 10)
    return {
        "models": count,
        "objects left": after.objects - before.objects,
        "MB left": round(after.resident - before.resident, 1),
    }


def _train(number: int, settings: dict[str, object] | None) -> list[weakref.ref[object]]:
    """Train a model for two steps, its shapes change; return references to all that was made."""
    make, shape = MODELS[number % len(MODELS)]
    torch.manual_seed(number)
    model = make()
    compiled = thunder.jit(model, **(settings or {"executors": ["torch"]}))  # type: ignore[arg-type]
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for rows in (shape[0], shape[0] + 1):
        x = torch.randn(rows, *shape[1:])
        compiled(x).square().sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    last = thunder.last_traces(compiled)[-1]
    return [weakref.ref(made) for made in (model, compiled, last, *model.parameters())]


def _name(reference: weakref.ref[object]) -> str:
    found = reference()
    return "" if found is None else type(found).__name__
