"""Under autocast, a replaced function without a rule is traced: its casts are eager's."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch

import thunder
from thunder import TensorProxy
from thunder.base.errors import PluginWarning
from thunder.extend import OperatorExecutor

_numbers = itertools.count()


class Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x, w)
        return x @ w

    @staticmethod
    def backward(ctx: Any, g: torch.Tensor) -> Any:
        x, w = ctx.saved_tensors
        return g.to(w.dtype) @ w.t(), x.t() @ g.to(x.dtype)


def functions() -> dict[str, Any]:
    """New functions, of which no operator was registered."""

    def product(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return x @ w

    def normalised(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return torch.softmax(x @ w, -1)

    def added(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return x + w.sum()

    return {"product": product, "normalised": normalised, "added": added, "apply": Product.apply}


def registered(function: Any, **registration: Any) -> OperatorExecutor:
    def meta(x: Any, w: Any) -> Any:
        return TensorProxy(like=x, shape=(x.shape[0], w.shape[1]))

    executor = OperatorExecutor(f"autocast_ex{next(_numbers)}")
    executor.register_operator(
        "op",
        meta=meta,
        fn=lambda x, w: torch.zeros(x.shape[0], w.shape[1]),
        replaces=function,
        **registration,
    )
    return executor


@pytest.mark.parametrize("name", ["product", "normalised", "added", "apply"])
def test_eager_s_casts_are_made_within_the_function(name: str) -> None:
    function = functions()[name]
    executor = registered(function)
    x, w = torch.randn(4, 4), torch.randn(4, 4)
    compiled = thunder.jit(lambda x, w: function(x, w), executors=[executor])
    with torch.autocast("cpu", torch.bfloat16):
        with pytest.warns(PluginWarning, match="says nothing about autocast, which is on") as warned:
            result = compiled(x, w)
        eager = function(x, w)
    assert "autocast='lower', 'fp32', 'promote' or None of register_operator" in str(warned[0].message)
    torch.testing.assert_close(result, eager)
    assert torch.equal(compiled(x, w), torch.zeros(4, 4)), "without autocast the kernel runs"


@pytest.mark.parametrize("rule", ["lower", None])
def test_a_declared_rule_lets_the_kernel_run(rule: Any) -> None:
    executor = registered(functions()["product"], autocast=rule)
    function = next(iter(executor.replacements))
    x, w = torch.randn(4, 4), torch.randn(4, 4)
    compiled = thunder.jit(lambda x, w: function(x, w), executors=[executor])
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(compiled(x, w), torch.zeros(4, 4))
