"""Sorts, the largest elements, and running maxima with their places, in regions."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import thunder
from thunder_nvfuser.executor import replaying_executor

NAN = float("nan")
ROWS = torch.tensor([[1.0, 5, 5, 2, 5], [NAN, 2, 1, NAN, 3], [3, 3, -1, -1, 0], [2, NAN, 7, 7, -4]])


def running(x: torch.Tensor) -> Any:
    y = x * 2
    return [tuple(f(y, dim)) for f in (torch.cummax, torch.cummin) for dim in (0, 1)]


def ordered(x: torch.Tensor) -> Any:
    y = x * 2
    return [
        tuple(y.sort(dim=-1, stable=True)),
        tuple(y.sort(dim=0, descending=True, stable=True)),
        y.argsort(dim=1, stable=True),
        tuple(y.topk(2)),
        tuple(y.topk(3, 0, largest=False)),
    ]


def claimed(compiled: Any) -> set[str]:
    return {row.symbol for row in thunder.explain(compiled).rows if row.via == "fusion"}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64], ids=str)
def test_running_maxima_and_their_places(dtype: torch.dtype):
    compiled = thunder.jit(running, executors=[replaying_executor()])
    x = ROWS.to(dtype)
    torch.testing.assert_close(compiled(x), running(x), equal_nan=True, rtol=0, atol=0)
    assert {"torch.cummax", "torch.cummin"} <= claimed(compiled)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64], ids=str)
def test_sorts_and_the_largest_elements_by_option(dtype: torch.dtype):
    x = ROWS.nan_to_num(9).to(dtype) * 4 + torch.arange(20).view(4, 5).to(dtype)
    for allowed in (True, False):
        compiled = thunder.jit(ordered, executors=[replaying_executor()], nvfuser_sorts=allowed)
        torch.testing.assert_close(compiled(x), ordered(x), rtol=0, atol=0)
        assert ({"torch.sort", "torch.argsort", "torch.topk"} <= claimed(compiled)) is allowed
    assert "nvfuser_sorts=False leaves sorts to torch" in str(thunder.explain(compiled))


def test_gradients_of_sorts_and_running_maxima():
    def program(x: torch.Tensor) -> torch.Tensor:
        return (x * 2).cummax(1)[0].sin() * (x * 3).sort(1)[0].cos() + x.topk(1)[0]

    x = torch.randn(4, 6, requires_grad=True)
    compiled = thunder.jit(
        program, executors=[replaying_executor()], nvfuser_sorts=True, nvfuser_unchecked_indices=True
    )
    ours, theirs = (torch.autograd.grad(f(x).sum(), x) for f in (compiled, program))
    torch.testing.assert_close(ours, theirs)
