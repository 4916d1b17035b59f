"""Functions of autograd whose forward keeps tensors elsewhere than in ``ctx``.

Each program runs three times, in eager and compiled, with a backward after each call; results, gradients and
what was kept must agree.
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.autograd import Function

import thunder

KEPT = SimpleNamespace()
LISTED: list[Tensor] = []


class InAnAttribute(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, w: Tensor) -> Tensor:
        KEPT.inner = x + 1
        ctx.save_for_backward(x, w)
        return x * w

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, Tensor]:  # type: ignore[override]
        x, w = ctx.saved_tensors
        return g * w, g * x


class InContainers(InAnAttribute):
    @staticmethod
    def forward(ctx: Any, x: Tensor, w: Tensor) -> Tensor:
        y = x * w
        LISTED.append(y.sum())
        KEPT.both = {"before": (y, y[:1]), "again": y}
        ctx.save_for_backward(x, w)
        return y.clone()


class ReadsItLater(Function):
    """Its backward reads what the last forward kept, which may be another call's."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, w: Tensor) -> Tensor:
        KEPT.scale = x.detach() * 3
        ctx.save_for_backward(w)
        return x * w + KEPT.scale

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, Tensor]:  # type: ignore[override]
        (w,) = ctx.saved_tensors
        return g * KEPT.scale, g * w


class InAnArgument(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, kept: list[Tensor]) -> Tensor:
        kept.append(x * 2)
        return x * 3

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None]:  # type: ignore[override]
        return g * 3, None


def used_afterwards(x: Tensor, w: Tensor) -> Tensor:
    y: Tensor = InAnAttribute.apply(x, w)
    return y + KEPT.inner.sum() * w


def in_a_list_of_the_program(x: Tensor, w: Tensor) -> Tensor:
    kept: list[Tensor] = []
    y: Tensor = InAnArgument.apply(x * w, kept)
    return y.sin() + kept[0]


PROGRAMS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "an attribute": lambda x, w: InAnAttribute.apply(x, w),
    "an attribute that is used": used_afterwards,
    "containers": lambda x, w: InContainers.apply(x, w),
    "a list of the program": in_a_list_of_the_program,
    "read by the backward": lambda x, w: ReadsItLater.apply(x, w),
    "read by the backward, two calls": lambda x, w: ReadsItLater.apply(ReadsItLater.apply(x, w).cos(), w),
}


def three_steps(program: Callable[[Tensor, Tensor], Tensor]) -> list[Tensor]:
    """Return the results of three calls, their gradients, and what they kept."""
    torch.manual_seed(0)
    vars(KEPT).clear()
    LISTED.clear()
    found: list[Tensor] = []
    for _ in range(3):
        x, w = (torch.randn(3, dtype=torch.float64, requires_grad=True) for _ in range(2))
        y = program(x, w)
        y.pow(2).sum().backward()
        assert x.grad is not None
        assert w.grad is not None
        both = getattr(KEPT, "both", {"before": (), "again": x})
        others = [t for t in vars(KEPT).values() if isinstance(t, Tensor)]
        found += [y, x.grad, w.grad, *others, *LISTED, *both["before"], both["again"]]
    return found


@pytest.mark.parametrize("name", PROGRAMS)
def test_what_a_forward_keeps_is_a_result_without_gradient(name: str) -> None:
    expected, found = three_steps(PROGRAMS[name]), three_steps(thunder.jit(PROGRAMS[name]))
    for a, b in zip(expected, found, strict=True):
        torch.testing.assert_close(b, a)
        assert b.requires_grad == a.requires_grad


class Remembered(nn.Module):
    """Computes with the random numbers of its last forward when it is asked to."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner, self.state = inner, torch.get_rng_state()

    def forward(self, x: Tensor, again: bool = False) -> Tensor:
        if not again:
            self.state = torch.get_rng_state()
            y: Tensor = self.inner(x)
            return y
        with torch.random.fork_rng(devices=[]):
            torch.set_rng_state(self.state)
            y = self.inner(x)
        return y


class Reversed(Function):
    """``y = x + f(x₀)`` for halves ``x₀, x``: the backward computes the input from the result."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, block: Remembered) -> Tensor:
        a, b = x.chunk(2)
        b = b + block(a)
        ctx.block, ctx.y = block, torch.cat((a, b)).detach()
        return torch.cat((a, b))

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None]:  # type: ignore[override]
        a, ga, gb = ctx.y.chunk(2)[0], *g.chunk(2)
        with torch.enable_grad():
            a = a.detach().requires_grad_()
            torch.autograd.backward(ctx.block(a, again=True), gb)
        assert a.grad is not None
        return torch.cat((ga + a.grad, gb)), None


def test_a_reversible_block_keeps_the_state_of_its_random_numbers() -> None:
    def trained(compile_it: bool) -> list[Tensor]:
        torch.manual_seed(0)
        block = Remembered(nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5))).double()

        def program(x: Tensor) -> Tensor:
            y: Tensor = Reversed.apply(Reversed.apply(x * 1, block).sin(), block)
            return y

        call, found = thunder.jit(program) if compile_it else program, []
        for seed in range(3):
            torch.manual_seed(seed)
            x = torch.randn(2, 4, dtype=torch.float64, requires_grad=True)
            y = call(x)
            y.sum().backward()
            found += [y.detach(), x.grad, *(p.grad.clone() for p in block.parameters()), block.state]
        return found

    for a, b in zip(trained(compile_it=False), trained(compile_it=True), strict=True):
        torch.testing.assert_close(b, a)
