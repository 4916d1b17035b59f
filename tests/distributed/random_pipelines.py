"""Random programs trained in stages by many ranks, compared with one process in float64."""

from __future__ import annotations

import random
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from distributed import random_modules
from distributed.random_modules import LENGTH, WIDTH
from distributed.trainings import distance
from thunder.distributed import pipeline

#: those that write to buffers are refused
PARTS = tuple(
    part for part in random_modules.PARTS if part not in (random_modules._Written, random_modules._BatchNorm)
)
SCHEDULES = ("gpipe", "1f1b", "interleaved", "zero bubble")


class RandomStack(nn.Module):
    """Random parts, each of which reads some of the values before it: so values skip stages."""

    def __init__(self, r: random.Random, count: int, *, draws: bool) -> None:
        super().__init__()
        self.draws, self.parts = draws, nn.ModuleList()
        self.embedding = nn.Embedding(7, WIDTH)
        self.sources: list[list[int]] = []
        for i in range(count):
            self.parts.append(r.choice(PARTS)(r, self))
            self.sources.append([i, *(r.randrange(i + 1) for _ in range(r.choice([0, 0, 1, 2])))])
        self.head = nn.Linear(WIDTH, 7, bias=r.random() < 0.5)
        if r.random() < 0.5:
            self.head.weight = self.embedding.weight
        r.choice(list(self.parameters())).requires_grad_(r.random() < 0.5)
        self.last = r.randrange(count)
        self.to(torch.float64)

    def forward(self, x, tokens, options):
        values = [x + self.embedding(tokens)]
        mask = (tokens != options["ignored"]).unsqueeze(-1)
        for part, sources in zip(self.parts, self.sources, strict=True):
            h = sum(values[source] for source in sources) / len(sources)
            values.append(part(h) * mask)
        if options["kind"] == "sum":
            return self.head(values[-1] + values[self.last]), values[-1]
        return self.head(values[-1]) * options["scale"], values[self.last]


def loss(model, x, tokens, options):
    """Return a loss of two results, a mean over the batch."""
    scores, values = model(x, tokens, options)
    return F.cross_entropy(scores.flatten(0, 1), tokens.flatten()) + values.tanh().square().mean()


class Training:
    """A random training: a module, a batch, a schedule."""

    def __init__(self, seed: int) -> None:
        self.seed, r = seed, random.Random(seed)
        self.schedule = SCHEDULES[seed % len(SCHEDULES)]
        self.ranks = r.choice([2, 2, 3, 4])
        is_interleaved = self.schedule == "interleaved"
        self.stages = self.ranks * (2 if is_interleaved else 1)
        self.count = self.stages + r.choice([1, 2])
        self.microbatches = self.ranks * r.choice([1, 2]) if is_interleaved else r.choice([1, 2, 3, 5])
        self.batch = self.microbatches * r.choice([1, 2]) + r.choice([0, 0, 1])
        self.draws, self.steps = r.random() < 0.4, r.choice([1, 2])
        torch.manual_seed(seed)
        self.x = torch.randn(self.batch, LENGTH, WIDTH, dtype=torch.float64)
        self.tokens = torch.randint(0, 5, (self.batch, LENGTH))
        self.options = {"kind": r.choice(["sum", "scale"]), "scale": 0.5, "ignored": r.randrange(3)}

    def module(self) -> nn.Module:
        """Return the module, with the same values in each rank."""
        torch.manual_seed(self.seed)
        return RandomStack(random.Random(self.seed), self.count, draws=self.draws)

    def expected(self) -> tuple[list[float], dict[str, torch.Tensor]]:
        """Return the losses and gradients of one process, which runs the microbatches after each other."""
        module, losses = self.module(), []
        torch.manual_seed(3)
        sizes = [
            self.batch // self.microbatches + (m < self.batch % self.microbatches)
            for m in range(self.microbatches)
        ]
        for _ in range(self.steps):
            total = 0.0
            for x, tokens in zip(self.x.split(sizes), self.tokens.split(sizes), strict=True):
                part = loss(module, x, tokens, self.options) * (len(x) / self.batch)
                part.backward()
                total += part.item()
            losses.append(total)
        return losses, gradients(module)

    def staged(self) -> tuple[list[float], dict[str, torch.Tensor]]:
        """Return the losses and gradients of this rank."""
        module = self.module()
        step = pipeline(
            module,
            loss,
            microbatches=self.microbatches,
            stages=self.stages,
            schedule=self.schedule,
            executors=["torch"],
        )
        torch.manual_seed(3)
        losses = [step(self.x, self.tokens, self.options).item() for _ in range(self.steps)]
        return losses, gradients(module)


def gradients(module: nn.Module) -> dict[str, torch.Tensor]:
    """Return the gradients of a module by the names of its parameters."""
    return {name: p.grad for name, p in module.named_parameters() if p.grad is not None}


def differences(training: Training, results: list[Any]) -> tuple[float, float]:
    """Return how far the losses and gradients of all ranks are from those of one process.

    Raises AssertionError if ranks have the gradient of the same parameter, or none has one.
    """
    losses, expected = training.expected()
    found: dict[str, torch.Tensor] = {}
    for own, mine in results:
        assert not found.keys() & mine.keys(), "a parameter belongs to one stage"
        found |= mine
        assert len(own) == len(losses)
    far = max(abs(a - b) for own, _ in results for a, b in zip(own, losses, strict=True))
    return far, distance(found, expected)
