"""Operators of `torch.library` under autocast: by their rule, or with a kernel that runs under it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import thunder


@torch.library.custom_op("autocasting::product", mutates_args=())
def product(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return x @ w


@torch.library.custom_op("autocasting::ruled", mutates_args=())
def ruled(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return x @ w


@torch.library.custom_op("autocasting::double", mutates_args=())
def double(x: torch.Tensor) -> torch.Tensor:
    return x * 2


for definition in (product, ruled):
    definition.register_fake(lambda x, w: x.new_empty(x.shape[0], w.shape[1]))
double.register_fake(torch.empty_like)
ruled.register_autocast("cpu", torch.float16)


def _save(ctx: Any, inputs: Any, output: Any) -> None:
    ctx.save_for_backward(*inputs)


def _gradients(ctx: Any, g: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    x, w = ctx.saved_tensors
    return g @ w.t(), x.t() @ g


ruled.register_autograd(_gradients, setup_context=_save)

library = torch.library.Library("autocasting", "FRAGMENT")
library.define("by_hand(Tensor x) -> Tensor")
library.impl("by_hand", lambda x: x * 2, "CompositeExplicitAutograd")
library.impl("by_hand", lambda x: x.bfloat16() * 2, "AutocastCPU")

X, W = torch.randn(3, 3), torch.randn(3, 3)


@pytest.mark.parametrize(
    "program",
    [
        lambda: ruled(X, W),
        lambda: ruled(X.double(), W.double()),
        lambda: double(X),
        lambda: product(X.double(), W.double()),
        lambda: product(X.bfloat16(), W.bfloat16()),
    ],
    ids=["its rule", "float64 under its rule", "no matter of dtypes", "float64", "bfloat16"],
)
def test_an_operator_computes_what_eager_computes(program: Callable[[], torch.Tensor]) -> None:
    compiled = thunder.jit(program)
    with torch.autocast("cpu", torch.bfloat16):
        torch.testing.assert_close(compiled(), program(), rtol=0, atol=0)


def test_its_gradient_passes_the_casts() -> None:
    x, w = X.clone().requires_grad_(), W.clone().requires_grad_()
    with torch.autocast("cpu", torch.bfloat16):
        result, expected = thunder.jit(lambda x, w: ruled(x, w))(x, w), ruled(x, w)
    for actual, wanted in zip(
        torch.autograd.grad(result.sum(), (x, w)), torch.autograd.grad(expected.sum(), (x, w)), strict=True
    ):
        torch.testing.assert_close(actual, wanted, rtol=0, atol=0)


def test_a_kernel_that_computes_in_another_dtype_under_autocast_is_an_error() -> None:
    compiled = thunder.jit(lambda: product(X, W))
    torch.testing.assert_close(compiled(), product(X, W))
    with torch.autocast("cpu", torch.bfloat16):
        assert product(X, W).dtype is torch.bfloat16  # although its fake implementation says float32
        with pytest.raises(thunder.PluginError, match="register_autocast") as error:
            compiled()
    assert "meta:  cpu f32[3, 3]" in str(error.value)
    assert "result:  cpu bf16[3, 3]" in str(error.value)


def test_a_rule_in_another_form_is_refused() -> None:
    with (
        torch.autocast("cpu", torch.bfloat16),
        pytest.raises(thunder.core.errors.UnsupportedOperator, match="has a rule for autocast, which is on"),
    ):
        thunder.jit(lambda: torch.ops.autocasting.by_hand(X))()
    torch.testing.assert_close(thunder.jit(lambda: torch.ops.autocasting.by_hand(X))(), X * 2)
