"""Functions of autograd that write to an argument, do not mark it as dirty, and return it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.autograd import Function

import thunder

Tensor = torch.Tensor


class Assign(Function):
    """Writes where torch does not notice, as solvers of differential equations do."""

    @staticmethod
    def forward(ctx: Any, table: Tensor, value: Tensor, index: Any) -> Tensor:
        ctx.index = index
        table.data[index] = value
        return table

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        return g, g[ctx.index], None


class Adds(Function):
    """Writes to its argument, saves it, and returns something else."""

    @staticmethod
    def forward(ctx: Any, total: Tensor, value: Tensor) -> Tensor:
        ctx.save_for_backward(total)
        total.add_(value)
        return total * value

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        return g * ctx.saved_tensors[0], g * 2


def stages_of_a_solver(x: Tensor) -> Any:
    k = Assign.apply(torch.empty(2, 4), x[0] * 2, (..., 0))
    for i in range(3):
        k = Assign.apply(k, (k[..., : i + 1] * 0.5).sum(-1) * x[1], (..., i + 1))
    return k.sum(-1), k[..., -1]


def reads_the_first_name(x: Tensor) -> Any:
    table = torch.zeros(3)
    first = Assign.apply(table, x[0] * 2, 0)
    square = first * first
    second = Assign.apply(first, x[1], 1)
    return square + first + second + table


def writes_to_the_result(x: Tensor) -> Any:
    table = torch.zeros(3)
    result = Assign.apply(table, x[0] * 2, 0)
    result.data.add_(5)
    return table + result * result


def writes_to_what_requires_grad(x: Tensor) -> Any:
    y = x * 1
    view = y.view(3)
    result = Assign.apply(y, x[1], 0)
    return y + result + view


def writes_to_a_part(x: Tensor) -> Any:
    y = x * 1
    part = y[1:]
    result = Assign.apply(part, x[1], 0)
    return y + result.sum() + part.sum()


def returns_something_else(x: Tensor) -> Any:
    y = x * 1
    return Adds.apply(y, x) + y


PROGRAMS = [
    stages_of_a_solver,
    reads_the_first_name,
    writes_to_the_result,
    writes_to_what_requires_grad,
    writes_to_a_part,
    returns_something_else,
]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda fn: fn.__name__)
def test_values_and_gradients_are_those_of_eager(program: Callable[..., Any]) -> None:
    compiled, outcomes = thunder.jit(program), []
    for fn in (program, compiled, compiled):
        x = (torch.arange(4.0).view(2, 2) if program is stages_of_a_solver else torch.arange(1.0, 4.0)) + 1
        x.requires_grad_()
        results = fn(x)
        results = results if isinstance(results, tuple) else (results,)
        sum(r.square().sum() for r in results).backward()
        outcomes.append((results, x.grad))
    for outcome in outcomes[1:]:
        torch.testing.assert_close(outcome, outcomes[0])
    assert thunder.cache_misses(compiled) == 1


def test_a_parameter_that_is_written_is_written_in_each_call() -> None:
    def program(p: Tensor, x: Tensor) -> Tensor:
        return Assign.apply(p, x[1] * 3, 0) * x

    tables = []
    for fn in (program, thunder.jit(program)):
        p, x = torch.ones(3, requires_grad=True), torch.arange(3.0)
        for _ in range(2):
            fn(p, x).sum().backward()
        tables.append((p.detach(), p.grad))
    torch.testing.assert_close(*tables)
