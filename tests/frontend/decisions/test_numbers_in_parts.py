"""Numbers out of tensors, where a part of the program around which they were found needs their values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import thunder

#: what a program asks of a number ``n`` and a tensor ``x``
USES: dict[str, Callable[[Any, Tensor], Any]] = {
    "key that is there for some": lambda n, x: x * {1: 2, 2: 3}.get(n, 5),
    "member of a set": lambda n, x: x * (n in {1, 3}),
    "item": lambda n, x: x * (1.5, 2.5, 3.5, 4.5)[n],
    "layer": lambda n, x: LAYERS[n](x),
    "text": lambda n, x: x * len("ab" * n) + len(f"{n:>{n}}"),
    "comparison": lambda n, x: x * 2 if n > 1 else x + 1,
    "arithmetic": lambda n, x: x * (7 // n) + round(n / 2) * (n**2 % 3),
    "size": lambda n, x: x.sum() * torch.arange(n).sum(),
    "loop": lambda n, x: sum((x * i for i in range(n)), x),
    "hash": lambda n, x: x * hash((n, 1.5)),
}
LAYERS = nn.ModuleList([nn.Linear(4, 4, dtype=torch.float64) for _ in range(4)]).requires_grad_(False)


class AskedLater(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, n: int, use: Any) -> Tensor:
        ctx.n, ctx.use = n, use
        return x * 2

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        return ctx.use(ctx.n, g).expand(3, 4), None, None


class AskedByState(AskedLater):
    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        SEEN.append(ctx.n)
        return ctx.use(ctx.n, g).expand(3, 4), None, None


class FoundInForward(AskedLater):
    @staticmethod
    def forward(ctx: Any, x: Tensor, t: Tensor, use: Any) -> Tensor:
        ctx.n, ctx.use = int(t), use
        return x * (2 if ctx.n < 3 else 5)


class FoundAndAskedByState(FoundInForward):
    backward = AskedByState.backward


SEEN: list[Any] = []


def found_in_forward(x: Tensor, n: int, use: Any) -> Tensor:
    return FoundInForward.apply(x, torch.tensor(0) + n, use)


def found_and_asked_by_state(x: Tensor, n: int, use: Any) -> Tensor:
    return FoundAndAskedByState.apply(x, torch.tensor(0) + n, use)


def mapped(x: Tensor, n: int, use: Any) -> Tensor:
    return torch.vmap(lambda row: use(n, row))(x)


def mapped_twice(x: Tensor, n: int, use: Any) -> Tensor:
    return torch.vmap(lambda a: torch.vmap(lambda b: use(n, a * b))(x))(x + 1)


def differentiated(x: Tensor, n: int, use: Any) -> Any:
    return torch.func.grad(lambda y: use(n, y).sum())(x)


PARTS: dict[str, Callable[[Tensor, int, Any], Any]] = {
    "mapped": mapped,
    "mapped twice": mapped_twice,
    "differentiated": differentiated,
    "a backward": AskedLater.apply,
    "a backward that runs as it is": AskedByState.apply,
    "a backward of a forward that finds it": found_in_forward,
    "the same that runs as it is": found_and_asked_by_state,
}


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("part", PARTS)
def test_a_number_from_around_a_part_is_decided_on(part: str, use: str) -> None:
    def program(x: Tensor, t: Tensor) -> Any:
        return PARTS[part](x, int(t), USES[use])

    compiled = thunder.jit(program, executors=["torch"], recompile_limit=None)
    for value in (1, 2, 3, 2, 1):
        found = []
        for fn in (program, compiled):
            x = torch.linspace(-1, 2, 12, dtype=torch.float64).reshape(3, 4).requires_grad_()
            result = fn(x, torch.tensor(value))
            if result.requires_grad:
                result.sum().backward()
            found.append((result, x.grad, SEEN[-1:]))
        torch.testing.assert_close(found[1], found[0], rtol=1e-12, atol=0)
    assert thunder.cache_misses(compiled) <= 3
    assert thunder.compile_stats(compiled).runs_by_python == 0


def test_the_check_comes_before_the_call_of_a_mapped_function() -> None:
    def program(x: Tensor, t: Tensor) -> Tensor:
        n = int(t)
        return torch.vmap(lambda row: row.sin() * n if n > 1 else row)(x)

    compiled = thunder.jit(program, executors=["torch"])
    compiled(torch.ones(3, 4), torch.tensor(2))
    names = [b.sym.name for b in thunder.last_traces(compiled)[0].bound_symbols]
    assert names.index("item") < names.index("check_decision") < names.index("sin")


def test_numbers_of_opaque_calls_are_decisions() -> None:
    opaque = thunder.opaque(lambda x, n: x * n + len([0] * n))
    compiled = thunder.jit(lambda x, t: opaque(x, int(t)) * 2, executors=["torch"])
    for value in (1, 2, 1, 2):
        x = torch.ones(3, requires_grad=True)
        compiled(x, torch.tensor(value)).sum().backward()
        torch.testing.assert_close(x.grad, torch.full((3,), 2.0 * value))
    assert thunder.cache_misses(compiled) == 2


def test_numbers_of_operators_without_a_row_are_decisions() -> None:
    def program(x: Tensor, t: Tensor) -> Any:
        window = torch.ones(4)
        return torch.stft(x, 4, int(t), return_complex=True, window=window), torch.renorm(
            x.reshape(4, 4), 2, 0, t.item() / 2
        )

    compiled = thunder.jit(program, executors=["torch"])
    for value in (1, 2, 3, 1):
        torch.testing.assert_close(
            compiled(torch.arange(16.0), torch.tensor(value)),
            program(torch.arange(16.0), torch.tensor(value)),
        )
