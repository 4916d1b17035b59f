"""What a program writes and returns beside divided values is that of one process, and so are gradients."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import nn

import thunder
from distributed.trainings import distance, gradients_of
from sweeping import one_in
from thunder.distributed import column_parallel, context_parallel, ddp, fsdp, run_ranks

TRANSFORMS = {
    "ddp": ddp,
    "fsdp": fsdp,
    "columns": lambda: column_parallel(target_modules=["layer"]),
    "sequences": lambda: context_parallel(divide={"x": 1}, otherwise="gather"),
}


class Writing(nn.Module):
    """A layer with a mean of its results, which it writes before or after it computes with them."""

    def __init__(self, way: str) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer, self.way = nn.Linear(6, 6).double(), way
        self.register_buffer("mean", torch.zeros(6, dtype=torch.float64))

    def forward(self, x):
        y = self.layer(x)
        if self.way == "buffer":
            self.mean.add_(y.detach().mean((0, 1)), alpha=0.1)
            return y + self.mean, y
        if self.way == "buffer without gradients":
            with torch.no_grad():
                self.mean.copy_(y.mean((0, 1)))
            return (y * self.mean,)
        if self.way == "views":
            return y, y[0], x.view(-1), self.layer.weight.t()
        with torch.no_grad():
            x.mul_(2.0)
        return self.layer(x), x[:, 0]


WAYS = ("buffer", "buffer without gradients", "views", "input")


@pytest.mark.parametrize(("name", "way"), one_in(3, itertools.product(TRANSFORMS, WAYS)))
def test_results_beside_writes_are_those_of_one_process(name: str, way: str):
    def program():
        plain, compiled = Writing(way), thunder.jit(Writing(way), transforms=[TRANSFORMS[name]()])
        x = torch.randn(2, 4, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
        found = []
        for module in (plain, compiled):
            own = x.clone()
            results = module(own)
            sum(r.sin().sum() for r in results if r.requires_grad).backward()
            values = {str(i): r.detach() for i, r in enumerate(results)}
            found.append({**values, **gradients_of(module), "x": own, "mean": module.get_buffer("mean")})
        return distance(*found)

    assert run_ranks(program, 2) == pytest.approx([0.0, 0.0], abs=1e-12)
