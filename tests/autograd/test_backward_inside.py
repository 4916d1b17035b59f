"""A backward inside of a program computes cheap values again, and what the program computes stays eager's."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

import thunder
from autograd.random_steps import outcome, random_step
from sweeping import one_in
from thunder.ir.symbol import BoundSymbol, BoundSymbolTag

TORCH = [thunder.get_executor("torch")]


def chain(x: Tensor, w: Tensor) -> Tensor:
    for _ in range(3):
        x = F.gelu(x @ w) * torch.sigmoid(x)
    return x.square().mean()


def step_of(loss: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Return a program that descends along the gradient of a loss."""

    def step(x: Tensor, w: Tensor) -> Tensor:
        value = loss(x, w)
        value.backward()
        with torch.no_grad():
            w -= 0.1 * w.grad
        w.grad = None
        return value.detach()

    return step


def calls(compiled: Any) -> Sequence[BoundSymbol]:
    return thunder.last_traces(compiled)[-1].bound_symbols


def computed_again(compiled: Any) -> list[str]:
    """Return the names of the operators whose calls a backward inside of the program runs again."""
    return [b.sym.name for b in calls(compiled) if BoundSymbolTag.COMPUTED_AGAIN in b.own_tags]


def arguments() -> tuple[Tensor, Tensor]:
    torch.manual_seed(1)
    return torch.randn(64, 16), torch.randn(16, 16).div(4).requires_grad_()


def test_cheap_values_are_computed_again_and_products_are_not() -> None:
    compiled = thunder.jit(step_of(chain), executors=TORCH)
    compiled(*arguments())
    names = computed_again(compiled)
    assert {"gelu", "sigmoid"} & set(names)
    assert not {"matmul", "mm", "addmm"} & set(names)
    kept = thunder.jit(step_of(chain), executors=TORCH, rematerialization="none")
    kept(*arguments())
    assert not computed_again(kept)


def test_the_backward_reads_fewer_bytes_of_the_forward() -> None:
    def read(policy: str) -> int:
        compiled = thunder.jit(step_of(chain), executors=TORCH, rematerialization=policy)
        compiled(*arguments())
        backward = [b for b in calls(compiled) if BoundSymbolTag.BACKWARD in b.own_tags]
        forward = [b for b in calls(compiled) if BoundSymbolTag.BACKWARD not in b.own_tags]
        computed = {p.name: p for b in forward for p in b.flat_proxy_outs if isinstance(p.shape, tuple)}
        return sum(
            computed[n].numel for n in {p.name for b in backward for p in b.flat_proxy_args} & {*computed}
        )

    assert read("min-cut") < read("none")


def test_what_a_later_statement_reads_is_not_computed_again() -> None:
    def program(x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
        y = torch.exp(x @ w)
        (g,) = torch.autograd.grad((y * y.sin()).sum(), w)
        return y.detach() * 2, g

    compiled = thunder.jit(program, executors=TORCH)
    compiled(*arguments())
    assert "exp" not in computed_again(compiled)


def test_a_checkpointed_region_runs_again_in_a_backward_inside() -> None:
    def loss(x: Tensor, w: Tensor) -> Tensor:
        return checkpoint(lambda h: F.gelu(h @ w) @ w, x, use_reentrant=False).square().mean()

    ours, theirs = arguments(), arguments()
    compiled = thunder.jit(step_of(loss), executors=TORCH)
    torch.testing.assert_close(compiled(*ours), step_of(loss)(*theirs))
    torch.testing.assert_close(ours, theirs)
    assert "matmul" in computed_again(compiled)


@pytest.mark.parametrize("block", one_in(16, range(64)))
def test_random_steps_compute_what_eager_computes(block: int) -> None:
    runs_again = 0
    for seed in range(6):
        program, text = random_step(random.Random(100 * block + seed))
        expected = outcome(program)
        compiled = thunder.jit(program, executors=TORCH)
        torch.testing.assert_close(outcome(compiled), expected, msg=lambda m, t=text: f"{m}\n{t}")
        runs_again += bool(computed_again(compiled))
    assert runs_again
