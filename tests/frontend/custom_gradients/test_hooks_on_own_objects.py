"""Hooks that write to objects which the program has made: when the hook runs, not where it is registered."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch

import thunder

Tensor = torch.Tensor


class Count:
    """An object whose method is a hook, or that is one itself."""

    def __init__(self) -> None:
        self.n = 0

    def __call__(self, g: Tensor) -> None:
        self.n += 1

    def add(self, g: Tensor) -> None:
        self.n += 1


def on_variable() -> tuple[Any, Callable[[], int]]:
    n = 0

    def hook(g: Tensor) -> None:
        nonlocal n
        n += 1

    return hook, lambda: n


def on_list() -> tuple[Any, Callable[[], int]]:
    got: list[Any] = []
    return lambda g: got.append(g), lambda: len(got)


def on_dict() -> tuple[Any, Callable[[], int]]:
    got: dict[str, int] = {}

    def hook(g: Tensor) -> None:
        got["n"] = got.get("n", 0) + 1

    return hook, lambda: got.get("n", 0)


def on_attribute() -> tuple[Any, Callable[[], int]]:
    count = Count()
    return lambda g: count.add(g), lambda: count.n


def of_method() -> tuple[Any, Callable[[], int]]:
    count = Count()
    return count.add, lambda: count.n


def of_object() -> tuple[Any, Callable[[], int]]:
    count = Count()
    return count, lambda: count.n


def of_partial() -> tuple[Any, Callable[[], int]]:
    count = Count()
    return partial(lambda c, g: c.add(g), count), lambda: count.n


HOOKS = [on_variable, on_list, on_dict, on_attribute, of_method, of_object, of_partial]


@pytest.mark.parametrize("backwards", [0, 1, 2])
@pytest.mark.parametrize("make", HOOKS)
def test_a_hook_writes_to_an_object_of_the_program_when_it_runs(make: Any, backwards: int) -> None:
    def program(x: Tensor) -> tuple[int, int, Tensor]:
        hook, count = make()
        y = x * 2
        y.register_hook(hook)
        before, loss = count(), (y * y).sum()
        for _ in range(backwards):
            loss.backward(retain_graph=True)
        return before, count(), loss.detach()

    seen = []
    for call in (program, thunder.jit(program, executors="torch")):
        x = torch.arange(3.0, requires_grad=True)
        before, after, loss = call(x)
        seen.append((before, after, loss.item(), None if x.grad is None else x.grad.tolist()))
    assert seen[0] == seen[1]
    assert seen[0][:2] == (0, backwards)


def test_a_program_that_returns_its_input_may_count_in_a_hook() -> None:
    def program(x: Tensor) -> tuple[int, Tensor]:
        hook, count = on_variable()
        y = x * 2
        y.register_hook(hook)
        (y * y).sum().backward()
        return count(), x

    x = torch.arange(3.0, requires_grad=True)
    assert thunder.jit(program)(x)[0] == program(x)[0] == 1
