"""Executors that a program makes, in compiled programs."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import thunder
from thunder import TensorProxy
from thunder.extend import OperatorExecutor, Refusal
from thunder.plugins import get_manager, hookimpl


def norm_impl(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + eps) * weight


def norm_meta(x: Any, weight: Any, eps: float) -> Any:
    return TensorProxy(like=x)


@pytest.fixture
def ex() -> OperatorExecutor:
    """An executor with the operators `norm` and `fast_norm`."""
    ex = OperatorExecutor("jit_ex")
    ex.register_operator("norm", meta=norm_meta, fn=norm_impl)
    ex.register_operator("fast_norm", meta=norm_meta, fn=norm_impl)
    return ex


def called(jfn: Any) -> list[str]:
    """The operators of the final trace."""
    return [b.sym.name for b in thunder.last_traces(jfn)[-1].bound_symbols if b.sym.executor is not None]


def test_operator_called_in_a_program_runs_its_function_even_if_its_executor_is_not_listed(
    ex: OperatorExecutor,
) -> None:
    norm = ex.opmap["norm"]

    def f(x: Any, w: Any) -> Any:
        return norm(x, w, 1e-5) + 1

    x, w = torch.randn(4, 8), torch.ones(8)
    for executors in ([ex], []):
        jf = thunder.jit(f, executors=executors)
        assert torch.equal(jf(x, w), norm_impl(x, w, 1e-5) + 1)
        assert called(jf) == ["norm", "add"]


def test_operator_with_another_implementation_is_rewritten_where_the_checker_agrees(
    ex: OperatorExecutor,
) -> None:
    norm, fast = ex.opmap["norm"], ex.opmap["fast_norm"]

    def checker(x: Any, weight: Any, eps: float) -> bool | Refusal:
        return eps < 1 or Refusal("eps", "too large")

    ex.register_implementation(norm, checker=checker, execution_transform=lambda x, w, eps: fast(x, w, eps))
    x, w = torch.randn(4, 8), torch.ones(8)
    for eps, expected in ((1e-5, "fast_norm"), (2.0, "norm")):
        jf = thunder.jit(lambda x, w, eps=eps: norm(x, w, eps), executors=[ex])
        assert torch.equal(jf(x, w), norm_impl(x, w, eps))
        assert called(jf) == [expected]


def test_replaced_function_becomes_the_operator_where_the_executor_is_listed() -> None:
    def doubled(x: Any) -> Any:
        return x + x

    ex = OperatorExecutor("doubling")
    ex.register_operator("double", meta=lambda x: TensorProxy(like=x), fn=lambda x: 2 * x, replaces=doubled)

    def f(x: Any) -> Any:
        return doubled(x)

    x = torch.randn(3)
    with_ex, without = thunder.jit(f, executors=[ex]), thunder.jit(f)
    assert torch.equal(with_ex(x), 2 * x)
    assert torch.equal(without(x), 2 * x)
    assert called(with_ex) == ["double"]
    assert called(without) == ["add"]


def test_state_that_a_plugin_contributes_is_guarded_and_named_in_the_reasons() -> None:
    mode = ["train"]

    class Plugin:
        @hookimpl
        def thunder_cache_state(self) -> dict[str, str]:
            return {"toy.mode": mode[0]}

    with get_manager().temporary(Plugin(), name="toy state"):
        jf = thunder.jit(lambda x: x * 2)
        for value, misses in (("train", 1), ("train", 1), ("eval", 2), ("train", 2)):
            mode[0] = value
            assert torch.equal(jf(torch.ones(2)), torch.full((2,), 2.0))
            assert thunder.cache_misses(jf) == misses
        mode[0] = "other"
        jf(torch.ones(2))
        assert "toy.mode" in str(thunder.last_recompile_reasons(jf))


class Doubled(torch.autograd.Function):
    """A function whose inside a trace would show."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, factor: float = 2.0) -> torch.Tensor:
        return x * factor

    @staticmethod
    def backward(ctx: Any, g: torch.Tensor) -> Any:
        return g * 2, None


@pytest.mark.parametrize("listed", [True, False])
def test_the_apply_of_an_autograd_function_is_replaced_where_the_executor_is_listed(listed: bool) -> None:
    ex = OperatorExecutor("jit_ex")
    ex.register_operator(
        "doubled",
        meta=lambda x, factor=2.0: TensorProxy(like=x),
        fn=lambda x, factor: Doubled.apply(x, factor),
        replaces=Doubled.apply,
    )
    jf = thunder.jit(lambda x: Doubled.apply(x) + 1, executors=[ex] if listed else [])
    x = torch.randn(3)
    assert torch.equal(jf(x), x * 2 + 1)
    assert called(jf) == (["doubled", "add"] if listed else ["mul", "add"])
