"""Hooks and backwards of one program that share what it has made: lists, objects, variables of functions."""

from __future__ import annotations

import functools
import itertools
import threading
from collections import Counter, defaultdict, deque
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.autograd.graph import register_multi_grad_hook
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


@program
def containers_of_other_kinds(x: Tensor, seen: Seen) -> Tensor:
    table: dict[str, list[Tensor]] = defaultdict(list)
    last: deque[Tensor] = deque(maxlen=2)
    counts: Counter[str] = Counter()

    def hook(g: Tensor) -> None:
        table["a"].append(g)
        last.append(g)
        counts["n"] += 1
        seen.append((len(table["a"]), len(last), counts["n"]))

    y = x.exp()
    z = y * 2
    y.register_hook(hook)
    z.register_hook(hook)
    return z


@program
def a_lock_and_an_iterator(x: Tensor, seen: Seen) -> Tensor:
    lock, numbers = threading.Lock(), itertools.count(5)

    def hook(g: Tensor) -> None:
        with lock:
            seen.append(next(numbers))

    y = x.exp()
    y.register_hook(hook)
    y.register_hook(hook)
    return y * 2


@program
def containers_of_themselves(x: Tensor, seen: Seen) -> Tensor:
    items: list[Any] = [0]
    items.append(items)
    node = SimpleNamespace(n=0)
    node.me = node

    def hook(g: Tensor) -> None:
        items[1][0] += 1
        node.me.n += 1
        seen.append((items[0], node.n))

    y = x.exp()
    y.register_hook(hook)
    return y * 2


@program
def changed_after_the_hook_is_registered(x: Tensor, seen: Seen) -> Tensor:
    n, items, weight = 1, [1], x.detach().sum()
    y = x.exp()
    y.register_hook(lambda g: seen.append((n, len(items), weight)))
    n = 2
    items.append(3)
    weight = y.detach().sum()
    return y * 2


@program
def of_any_gradient(x: Tensor, seen: Seen) -> Tensor:
    a, b = x.exp(), x.sin()
    register_multi_grad_hook((a, b), lambda g: seen.append(g.sum()), mode="any")
    return a * b


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
    if way is in_the_program and name in ("in_a_checkpoint", "of_any_gradient"):
        pytest.skip("is refused: a region with effects is run again; the number of the backward is asked")
    expected = way(PROGRAMS[name], _eager)
    assert expected[1]
    torch.testing.assert_close(way(PROGRAMS[name], thunder.jit), expected)


def returns_a_list(x: Tensor) -> Any:
    got: list[Tensor] = []
    y = x.exp()
    y.register_hook(got.append)
    z = y * 2
    z.register_hook(got.append)
    return z, got


def returns_a_dict(x: Tensor) -> Any:
    got: dict[str, Tensor] = {}
    y = x.exp()
    y.register_hook(lambda g: got.__setitem__("y", g))
    return y * 2, {"gradients": got}


def returns_a_part(x: Tensor) -> Any:
    inner: list[Tensor] = []
    outer = {"inner": inner}
    y = x.exp()
    y.register_hook(lambda g: outer["inner"].append(g * len(outer)))
    return y * 2, inner


def returns_a_function(x: Tensor) -> Any:
    n = 0

    def hook(g: Tensor) -> None:
        nonlocal n
        n += 1

    y = x.exp()
    y.register_hook(hook)
    return y * 2, lambda: n


def returns_what_a_backward_reads(x: Tensor) -> Any:
    got: list[Tensor] = []

    class Double(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            ctx.got = got
            return x * 2

        @staticmethod
        def backward(ctx: Any, g: Tensor) -> Tensor:
            ctx.got.append(g)
            return g * 2

    return Double.apply(x), got


STORED: list[Any] = []


def stores_a_list(x: Tensor) -> Any:
    got: list[Tensor] = []
    STORED.append(got)
    y = x.exp()
    y.register_hook(got.append)
    return y * 2, len(STORED)


@pytest.mark.parametrize(
    "fn",
    [
        returns_a_list,
        returns_a_dict,
        returns_a_part,
        returns_a_function,
        returns_what_a_backward_reads,
        stores_a_list,
    ],
)
def test_the_caller_sees_what_hooks_write_to_objects_of_the_program(fn: Any) -> None:
    def run(fn: Any) -> Any:
        STORED.clear()
        found = []
        inputs = [torch.arange(1.0, n).requires_grad_() for n in (4, 4, 5)]
        results = list(map(fn, inputs))
        for result, got in results:
            result.sum().backward(retain_graph=True)
            result.sum().backward()
            got = got() if callable(got) else got
            found.append((got, [len(items) for items in STORED]))
        return [x.grad for x in inputs], found, list(STORED)

    torch.testing.assert_close(run(thunder.jit(fn)), run(fn))


def test_a_hook_that_removes_itself_is_refused() -> None:
    def removes_itself(x: Tensor) -> Tensor:
        y = x.exp()

        def hook(g: Tensor) -> None:
            handle.remove()

        handle = y.register_hook(hook)
        return y * 2

    with pytest.raises(UnsupportedProgram, match="removes a hook when the backward runs"):
        thunder.jit(removes_itself)(torch.ones(3, requires_grad=True))


def test_a_method_of_a_container_that_leaves_the_program_is_that_of_the_container() -> None:
    def run(wrap: Any) -> Any:
        w, seen = torch.ones(3, requires_grad=True), []

        def fn(x: Tensor) -> Any:
            new: list[Any] = []
            w.register_hook(seen.append)
            return x * w, seen.append, new.append, new

        y, append, append_new, new = wrap(fn)(torch.arange(3.0))
        append(w.detach())
        append_new(y.detach())
        y.sum().backward()
        return seen, new

    torch.testing.assert_close(run(thunder.jit), run(_eager))
