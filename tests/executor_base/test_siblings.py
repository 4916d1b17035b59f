"""Regions that do not depend on each other become one where they read the same tensor near each other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import thunder
from thunder.extend import partition

FUSIBLE = {"torch.sin", "torch.cos", "torch.exp", "torch.mul", "torch.sum"}


def regions(program: Callable[..., Any], *inputs: torch.Tensor, horizontal: Any = "siblings") -> list[str]:
    """Return the calls of each region of a program, by their names."""
    compiled = thunder.jit(program)
    compiled(*inputs)
    trace = thunder.last_traces(compiled)[0]
    found = partition(trace, lambda bsym: bsym.sym.id in FUSIBLE, horizontal=horizontal)
    return [" ".join(bsym.sym.name for bsym in region.bsyms) for region in found]


def around_a_product(x: torch.Tensor, w: torch.Tensor) -> Any:
    return torch.exp(torch.sin(x)) @ w, torch.exp(torch.cos(x))


@pytest.mark.parametrize(
    ("horizontal", "expected"),
    [("siblings", ["sin exp cos exp"]), (True, ["sin exp cos exp"]), (False, ["sin exp", "cos exp"])],
)
def test_calls_that_read_the_same_tensor_are_one_region(horizontal: Any, expected: list[str]) -> None:
    x = torch.randn(4, 4)
    assert regions(around_a_product, x, x, horizontal=horizontal) == expected


def test_groups_of_other_tensors_stay_apart() -> None:
    def program(x: torch.Tensor, y: torch.Tensor) -> Any:
        return torch.exp(torch.sin(x)), torch.exp(torch.cos(y))

    assert regions(program, torch.randn(4), torch.randn(4)) == ["sin exp", "cos exp"]


def test_a_tensor_smaller_than_the_results_does_not_make_siblings() -> None:
    def program(x: torch.Tensor, y: torch.Tensor, w: torch.Tensor) -> Any:
        return torch.mul(x, w), torch.mul(y, w)

    x, y, w = torch.randn(4, 4), torch.randn(4, 4), torch.randn(4)
    assert regions(program, x, y, w) == ["mul", "mul"]


def test_a_sum_is_a_sibling_of_an_elementwise_call() -> None:
    x = torch.randn(4, 4)
    assert regions(lambda x: (x.sum(0), torch.exp(x)), x) == ["sum exp"]


def test_groups_far_from_each_other_stay_apart() -> None:
    def program(x: torch.Tensor, w: torch.Tensor) -> Any:
        y = torch.sin(x)
        for _ in range(30):
            y = y @ w
        return y, torch.cos(x)

    assert regions(program, torch.randn(4, 4), torch.randn(4, 4)) == ["sin", "cos"]


def test_siblings_that_depend_on_each_other_through_another_call_stay_apart() -> None:
    def program(x: torch.Tensor, w: torch.Tensor) -> Any:
        return torch.mul(torch.sin(x) @ w, x)

    assert regions(program, torch.randn(4, 4), torch.randn(4, 4)) == ["sin", "mul"]
