"""Compiles again and again, with memory that stays flat."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from functools import partial

import pytest
import torch

import thunder
from soak.memory_use import MemoryUse, assert_flat


def _numbers() -> Iterator[Callable[[], None]]:
    """One function, compiled again for each number; eight entries are kept."""

    def f(x: torch.Tensor, k: float) -> torch.Tensor:
        return (x * k).sin() + k

    compiled = thunder.jit(
        f, executors=["torch"], cache="constant values", max_cache_entries=8, recompile_limit=None
    )
    x = torch.linspace(-1, 1, 3)

    def call(k: float) -> None:
        torch.testing.assert_close(compiled(x, k), f(x, k))
        assert thunder.cache_hits(compiled) == 0

    for i in itertools.count():
        yield partial(call, float(i))


def _answers() -> Iterator[Callable[[], None]]:
    """One function with a question about data, and numbers."""

    def f(x: torch.Tensor, k: float) -> torch.Tensor:
        return x * k if x.sum() > 0 else x - k

    compiled = thunder.jit(
        f, executors=["torch"], cache="constant values", max_cache_entries=8, recompile_limit=None
    )

    def call(i: int) -> None:
        x = torch.linspace(-1, 1, 3) + (1 if i % 2 else -1)
        torch.testing.assert_close(compiled(x, float(i // 2)), f(x, float(i // 2)))

    for i in itertools.count():
        yield partial(call, i)


def _functions() -> Iterator[Callable[[], None]]:
    """A new function each time, which is trained and dropped."""

    def call(k: int) -> None:
        def f(x: torch.Tensor) -> torch.Tensor:
            return (x * k).sin() + k

        x = torch.linspace(-1, 1, 3).requires_grad_()
        (gradient,) = torch.autograd.grad(thunder.jit(f, executors=["torch"])(x).sum(), x)
        torch.testing.assert_close(gradient, k * torch.cos(x * k))

    for i in itertools.count():
        yield partial(call, i)


def _raising() -> Iterator[Callable[[], None]]:
    """A new function each time, which raises, or is refused."""

    def call(k: int) -> None:
        def f(x: torch.Tensor) -> torch.Tensor:
            if k % 2:
                raise ValueError(x * k)
            return x + len(open("/dev/null").read())

        with pytest.raises(ValueError if k % 2 else thunder.ThunderError, match=r"tensor|open"):
            thunder.jit(f, executors=["torch"])(torch.ones(2))

    for i in itertools.count():
        yield partial(call, i)


#: name → what is compiled again
KINDS: dict[str, Callable[[], Iterator[Callable[[], None]]]] = {
    "numbers": _numbers,
    "answers": _answers,
    "functions": _functions,
    "raising": _raising,
}


def recompiled(kind: str, count: int) -> dict[str, float]:
    """Compile ``count`` times after a quarter as many; fail where objects or memory are left."""
    calls = KINDS[kind]()
    for call in itertools.islice(calls, count // 4 + 16):
        call()
    before = MemoryUse.now()
    for call in itertools.islice(calls, count):
        call()
    after = MemoryUse.now()
    # some objects per thread or kind come late; a leak has one for each compile at least
    assert_flat(before, after, objects=max(60, count // 20), resident=20 + count / 500)
    return {
        "compiles": count,
        "objects left": after.objects - before.objects,
        "MB left": round(after.resident - before.resident, 1),
    }
