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


def with_checker(ex: OperatorExecutor) -> Any:
    """The operator `norm`, whose own function runs where a checker agrees."""
    norm = ex.opmap["norm"]

    def checker(x: Any, weight: Any, eps: float) -> bool | Refusal:
        return eps < 1 or Refusal("eps", "too large", eps=eps)

    ex.register_implementation(norm, norm, checker=checker)
    return norm


@pytest.mark.parametrize("listed", [True, False])
def test_an_operator_runs_its_own_function_only_where_its_checker_agrees(
    ex: OperatorExecutor, listed: bool
) -> None:
    norm = with_checker(ex)
    jf = thunder.jit(lambda x, w, eps: norm(x, w, eps), executors=[ex] if listed else [])
    x, w = torch.randn(4, 8), torch.ones(8)
    assert torch.equal(jf(x, w, 1e-5), norm_impl(x, w, 1e-5))
    assert called(jf) == ["norm"]
    assert "# t0 = norm(" not in str(thunder.last_traces(jf)[-1])
    with pytest.raises(thunder.NoExecutor, match=r"no executor claims jit_ex\.norm") as caught:
        jf(x, w, 2.0)
    assert "jit_ex:  too large (eps=2.0)" in str(caught.value)
    assert caught.value.where[0].text.startswith("jf = thunder.jit(lambda x, w, eps: norm(")


def test_what_the_checker_of_an_operator_refuses_others_are_asked_for(ex: OperatorExecutor) -> None:
    norm = with_checker(ex)
    other = OperatorExecutor("jit_other")
    slow = other.register_operator("slow_norm", meta=norm_meta, fn=norm_impl, replace=True)
    other.register_implementation(norm, slow)
    jf = thunder.jit(lambda x, w, eps: norm(x, w, eps), executors=[ex, other])
    x, w = torch.randn(4, 8), torch.ones(8)
    placed = []
    for eps in (1e-5, 2.0):
        jf(x, w, eps)
        (row,) = thunder.explain(jf).rows
        placed.append((row.claimed_by, [(r.executor, r.code) for r in row.refusals]))
    assert placed == [("jit_ex", []), ("jit_other", [("jit_ex", "eps")])]


def test_a_composite_that_its_checker_refuses_is_run_by_its_parts() -> None:
    ex = OperatorExecutor("jit_parts")
    norm = ex.register_operator(
        "norm", like=thunder.torch.softmax, fn=torch.softmax, replaces=torch.softmax, replace=True
    )
    ex.register_implementation(norm, norm, checker=lambda *args, **kwargs: Refusal("never", "never at all"))
    x = torch.randn(4, 8)
    jf = thunder.jit(lambda x: torch.softmax(x, -1), executors=[ex])
    torch.testing.assert_close(jf(x), torch.softmax(x, -1))
    first, *parts = thunder.explain(jf).rows
    assert (first.claimed_by, first.via, [r.code for r in first.refusals]) == (None, "decomposed", ["never"])
    assert {row.claimed_by for row in parts} == {"torch"}


def test_a_checker_that_a_hook_gives_to_an_operator_is_asked(ex: OperatorExecutor) -> None:
    class Careful:
        @hookimpl
        def thunder_checkers(self, executor: Any) -> list[Any]:
            refuses = lambda x, weight, eps: eps < 1  # noqa: E731
            return [("jit_ex.norm", refuses)] if executor.name == "jit_ex" else []

    norm, x, w = ex.opmap["norm"], torch.randn(4, 8), torch.ones(8)
    with get_manager().temporary(Careful(), "careful"):
        jf = thunder.jit(lambda x, w, eps: norm(x, w, eps), executors=[ex])
        assert torch.equal(jf(x, w, 1e-5), norm_impl(x, w, 1e-5))
        with pytest.raises(thunder.NoExecutor, match=r"no executor claims jit_ex\.norm"):
            jf(x, w, 2.0)


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
