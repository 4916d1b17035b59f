"""Hooks and backwards of one program that share what it has made: lists, objects, variables of functions."""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

import thunder
from thunder.base.errors import UnsupportedProgram

Seen = list[Any]
PROGRAMS: dict[str, Callable[[Tensor, Seen], Tensor]] = {}


def program(fn: Callable[[Tensor, Seen], Tensor]) -> Callable[[Tensor, Seen], Tensor]:
    PROGRAMS[fn.__name__] = fn
    return fn


@program
def a_list(x: Tensor, seen: Seen) -> Tensor:
    got: list[Tensor] = []
    y = x.exp()
    y.register_hook(got.append)
    y.register_hook(lambda g: seen.append((len(got), got[-1].sum())))
    return y * 2


@program
def a_variable_of_one_function(x: Tensor, seen: Seen) -> Tensor:
    n = 0

    def hook(g: Tensor) -> None:
        nonlocal n
        n += 1
        seen.append(n)

    y = x.exp()
    y.register_hook(hook)
    y.register_hook(hook)
    return y * 2


@program
def a_variable_of_two_functions(x: Tensor, seen: Seen) -> Tensor:
    n = 0

    def count(g: Tensor) -> None:
        nonlocal n
        n += 1

    y, z = x.exp(), x.sin()
    y.register_hook(count)
    z.register_hook(lambda g: seen.append(n))
    return y * z


@program
def a_variable_of_an_inner_function(x: Tensor, seen: Seen) -> Tensor:
    n = 0

    def count() -> None:
        nonlocal n
        n += 1

    def hook(g: Tensor) -> None:
        count()
        count()
        seen.append(n)

    y = x.exp()
    y.register_hook(hook)
    return y * 2


@program
def a_function_in_its_own_variable(x: Tensor, seen: Seen) -> Tensor:
    calls = [0]

    def hook(g: Tensor, depth: int = 2) -> None:
        calls[0] += 1
        seen.append((depth, calls[0]))
        if depth:
            hook(g, depth - 1)

    y = x.exp()
    y.register_hook(hook)
    y.register_hook(lambda g: seen.append(calls[0]))
    return y * 2


@program
def an_object(x: Tensor, seen: Seen) -> Tensor:
    state = SimpleNamespace(n=0, total=x.detach().sum())

    def hook(g: Tensor) -> Tensor:
        state.n += 1
        state.total = state.total + g.sum()
        seen.append((state.n, state.total))
        return g * state.n

    y = x.exp()
    z = y * 2
    y.register_hook(hook)
    z.register_hook(hook)
    return z * 3


@program
def arguments_of_a_partial(x: Tensor, seen: Seen) -> Tensor:
    table: dict[str, Tensor] = {}

    def keep(name: str, into: dict[str, Tensor], g: Tensor) -> None:
        into[name] = g
        seen.append((len(into), "y" in into))

    y = x.exp()
    z = y * 2
    y.register_hook(functools.partial(keep, "y", table))
    z.register_hook(functools.partial(keep, "z", table))
    return z * 3


@program
def in_a_checkpoint(x: Tensor, seen: Seen) -> Tensor:
    got: list[int] = []

    def region(x: Tensor) -> Tensor:
        y = x.exp()
        y.register_hook(lambda g: got.append(1))
        y.register_hook(lambda g: seen.append(len(got)))
        return y.sin()

    return checkpoint(region, x, use_reentrant=False)  # type: ignore[no-any-return]


@program
def a_function_and_a_hook(x: Tensor, seen: Seen) -> Tensor:
    got: list[int] = []

    class Double(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            ctx.got = got
            return x * 2

        @staticmethod
        def backward(ctx: Any, g: Tensor) -> Tensor:
            ctx.got.append(1)
            return g * 2

    y = x.exp()
    y.register_hook(lambda g: seen.append(len(got)))
    return Double.apply(y)  # type: ignore[no-any-return]


@program
def on_both_sides_of_a_decision(x: Tensor, seen: Seen) -> Tensor:
    got: list[int] = []
    y = x.exp()
    y.register_hook(lambda g: got.append(1))
    z = y * 2 if y.sum() > 0 else y * 3
    z.register_hook(lambda g: seen.append(len(got)))
    y.register_hook(lambda g: seen.append(len(got)))
    return z


def by_the_caller(fn: Callable[[Tensor, Seen], Tensor], wrap: Any) -> Any:
    """Run the backward of each call twice, when all calls have run."""
    seen: Seen = []
    compiled = wrap(lambda x: fn(x, seen))
    inputs = [torch.arange(1.0, n).requires_grad_() for n in (4, 4, 5)]
    results = list(map(compiled, inputs))
    for result in results:
        result.sum().backward(retain_graph=True)
        result.sum().backward()
    return [x.grad for x in inputs], seen


def in_the_program(fn: Callable[[Tensor, Seen], Tensor], wrap: Any) -> Any:
    seen: Seen = []

    def step(x: Tensor) -> None:
        (fn(x, seen) + fn(x, seen)).sum().backward()

    compiled = wrap(step)
    inputs = [torch.arange(1.0, n).requires_grad_() for n in (4, 4, 5)]
    for x in inputs:
        compiled(x)
    return [x.grad for x in inputs], seen


def of_two_parts(fn: Callable[[Tensor, Seen], Tensor], wrap: Any) -> Any:
    """Run a program with the hooks twice, each of which has its own objects."""
    return by_the_caller(lambda x, seen: fn(x, seen) * fn(x + 1, seen), wrap)


def _eager(fn: Any) -> Any:
    return fn


@pytest.mark.parametrize("way", [by_the_caller, in_the_program, of_two_parts])
@pytest.mark.parametrize("name", PROGRAMS)
def test_hooks_of_one_call_share_what_the_program_made(name: str, way: Any) -> None:
    if name == "in_a_checkpoint" and way is in_the_program:
        pytest.skip("a region is run again inside of the program, where its hooks have effects")
    expected = way(PROGRAMS[name], _eager)
    assert expected[1]
    torch.testing.assert_close(way(PROGRAMS[name], thunder.jit), expected)


def test_a_variable_that_is_assigned_after_the_hook_is_registered_is_refused() -> None:
    def removes_itself(x: Tensor) -> Tensor:
        y = x.exp()

        def hook(g: Tensor) -> None:
            handle.remove()

        handle = y.register_hook(hook)
        return y * 2

    with pytest.raises(UnsupportedProgram, match="is assigned again after the call"):
        thunder.jit(removes_itself)(torch.ones(3, requires_grad=True))
