"""What a backward inside the program reads is computed once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

import thunder

WITHOUT_FUSION = [ex for ex in thunder.get_default_executors() if ex.name != "inductor"]


def attention(x: Tensor, w: Tensor) -> Tensor:
    h = (x @ w).view(2, 8, 2, 8).transpose(1, 2)
    return F.scaled_dot_product_attention(h, h, h).sum()


def norm(x: Tensor, w: Tensor) -> Tensor:
    return F.layer_norm(x @ w, (16,)).pow(2).mean()


def loss(x: Tensor, w: Tensor) -> Tensor:
    return F.cross_entropy((x @ w).flatten(0, 1), torch.arange(16) % 16)


def pooled(x: Tensor, w: Tensor) -> Tensor:
    return F.max_pool2d((x @ w)[None], 2).pow(2).sum()


def normalised(x: Tensor, w: Tensor) -> Tensor:
    return F.batch_norm((x @ w).transpose(1, 2), torch.zeros(16), torch.ones(16), training=True).pow(3).sum()


FORWARDS: list[Callable[[Tensor, Tensor], Tensor]] = [attention, norm, loss, pooled, normalised]


def gradient_of(forward: Callable[[Tensor, Tensor], Tensor]) -> Callable[..., Any]:
    def program(x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
        value = forward(x, w)
        (gradient,) = torch.autograd.grad(value, w)
        return value.detach(), gradient

    return program


def inputs() -> tuple[Tensor, Tensor]:
    torch.manual_seed(0)
    return torch.randn(2, 8, 16), torch.randn(16, 16, requires_grad=True)


@pytest.mark.parametrize("forward", FORWARDS, ids=lambda f: f.__name__)
def test_each_kernel_of_the_forward_runs_once(forward: Callable[[Tensor, Tensor], Tensor]) -> None:
    program, (x, w) = gradient_of(forward), inputs()
    compiled = thunder.jit(program, executors=WITHOUT_FUSION)
    for _ in range(2):
        torch.testing.assert_close(compiled(x, w), program(x, w))
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as ours:
        compiled(x, w)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as theirs:
        program(x, w)
    assert kernels(theirs)
    assert not kernels(ours) - kernels(theirs), "a kernel runs more often than in eager"


#: kernels that a second run of a forward would run twice
COUNTED = {
    f"aten::{name}"
    for name in (
        *("_scaled_dot_product_flash_attention_for_cpu", "native_layer_norm", "native_batch_norm"),
        *("_log_softmax", "nll_loss_forward", "max_pool2d_with_indices"),
    )
}


def kernels(profile: Any) -> Counter[str]:
    return Counter({event.key: event.count for event in profile.key_averages() if event.key in COUNTED})


@pytest.mark.parametrize("forward", FORWARDS, ids=lambda f: f.__name__)
def test_second_derivatives_are_those_of_eager(forward: Callable[[Tensor, Tensor], Tensor]) -> None:
    if forward is attention:
        pytest.skip("torch has no second derivative of its fused attention")

    def program(x: Tensor, w: Tensor) -> Tensor:
        (gradient,) = torch.autograd.grad(forward(x, w), w, create_graph=True)
        (second,) = torch.autograd.grad(gradient.pow(2).sum(), w)
        return second

    x, w = inputs()
    compiled = thunder.jit(program, executors=WITHOUT_FUSION)
    torch.testing.assert_close(compiled(x, w), program(x, w), rtol=1e-4, atol=1e-4)


def test_a_call_that_a_decision_has_run_is_computed_again() -> None:
    def program(x: Tensor, w: Tensor) -> Tensor:
        value = norm(x, w)
        if value > 0:
            value = value * 2
        (gradient,) = torch.autograd.grad(value, w)
        return gradient

    x, w = inputs()
    torch.testing.assert_close(thunder.jit(program)(x, w), program(x, w))
