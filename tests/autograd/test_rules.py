"""Whose gradient rule an operator gets, and what becomes of one that fails or is missing."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import thunder
from comparison.inputs import leaf
from thunder import TensorProxy
from thunder.core.transforms import register_grad
from thunder.extend import OperatorExecutor
from thunder.ir.gradient_declarations import NONDIFFERENTIABLE
from thunder.ops import prims
from thunder.ops.gradient_rules import nondifferentiable
from thunder.ops.prims import get_grad, put_grad
from thunder.ops.prims.gradient import put_grads


def like(x: Any, *args: Any) -> Any:
    return TensorProxy(like=x)


def cubed(x: torch.Tensor) -> torch.Tensor:
    return x * x * x


@pytest.fixture
def ex() -> OperatorExecutor:
    """An executor of the test's own, with ids that no other test takes."""
    fresh = next(n for n in range(10_000) if n not in _taken)
    _taken.add(fresh)
    return OperatorExecutor(f"rules_ex_{fresh}")


_taken: set[int] = set()


def gradient(fn: Any, x: torch.Tensor, **options: Any) -> torch.Tensor:
    return torch.autograd.grad(thunder.jit(fn, **options)(x).sum(), x)[0]


def test_an_operator_of_ones_own_without_a_rule_is_missing_gradient(ex: OperatorExecutor) -> None:
    cube = ex.register_operator("cube", meta=like, fn=cubed)

    def program(x):
        return cube(x) + 1

    with pytest.raises(thunder.MissingGradient, match="cube") as caught:
        gradient(program, leaf(3), executors=[ex])
    assert "test_rules.py" in str(caught.value)
    assert "grad_transform" in str(caught.value)
    x = leaf(3, grad=False)
    torch.testing.assert_close(thunder.jit(program, executors=[ex])(x), cubed(x) + 1)


def test_register_grad_gives_an_operator_of_ones_own_its_gradient(ex: OperatorExecutor) -> None:
    cube = ex.register_operator("cube", meta=like, fn=cubed)

    def rule(x: Any) -> Any:
        out = cube(x)
        put_grad(x, get_grad(out) * 3 * x * x)
        return out

    register_grad(cube, rule)
    x = leaf(3)
    compiled = thunder.jit(lambda x: cube(x) + 1, executors=[ex])
    torch.testing.assert_close(torch.autograd.grad(compiled(x).sum(), x)[0], 3 * x.detach() ** 2)
    assert torch.autograd.gradgradcheck(compiled, (x,))


def test_the_grad_transform_of_the_claiming_executor_comes_first(ex: OperatorExecutor) -> None:
    mul = ex.register_operator("mul", like=thunder.torch.mul, fn=torch.mul)
    asked: list[str] = []

    def rule(a: Any, b: Any) -> Any:
        asked.append("executor")
        out = mul(a, b)
        put_grad(a, get_grad(out) * 100)
        return out

    ex.register_implementation(thunder.torch.mul, mul, grad_transform=rule)
    x = leaf(3)
    found = gradient(lambda x: x * 2, x, executors=[ex])
    assert asked
    torch.testing.assert_close(found, torch.full((3,), 100.0, dtype=torch.float64))
    torch.testing.assert_close(gradient(lambda x: x * 2, x), torch.full((3,), 2.0, dtype=torch.float64))


def test_a_grad_transform_is_left_alone_where_its_executor_does_not_claim(ex: OperatorExecutor) -> None:
    mul = ex.register_operator("mul", like=thunder.torch.mul, fn=torch.mul)

    def rule(a: Any, b: Any) -> Any:
        out = mul(a, b)
        put_grad(a, get_grad(out) * 100)
        return out

    ex.register_implementation(thunder.torch.mul, mul, checker=lambda a, b: False, grad_transform=rule)
    torch.testing.assert_close(
        gradient(lambda x: x * 2, leaf(3), executors=[ex]), torch.full((3,), 2.0, dtype=torch.float64)
    )


# -- a forward and a backward kernel, as a library of kernels has them ---------------------------------------


def norm_forward(x: torch.Tensor, weight: torch.Tensor, eps: float) -> tuple[torch.Tensor, torch.Tensor]:
    r = torch.rsqrt((x * x).mean(-1, keepdim=True) + eps)
    return x * r * weight, r


def norm_backward(g: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, r: torch.Tensor) -> torch.Tensor:
    h = g * weight
    return r * (h - x * r * r * (h * x).mean(-1, keepdim=True))


def test_a_pair_of_kernels_is_used_for_forward_and_backward(ex: OperatorExecutor) -> None:
    def row(x: Any) -> Any:
        return TensorProxy(shape=(*x.shape[:-1], 1), device=x.device, dtype=x.dtype, requires_grad=False)

    forward = ex.register_operator(
        "norm_forward", meta=lambda x, weight, eps: (TensorProxy(like=x), row(x)), fn=norm_forward
    )
    backward = ex.register_operator(
        "norm_backward", meta=lambda g, x, weight, r: TensorProxy(like=x), fn=norm_backward
    )
    norm = ex.register_operator(
        "norm", meta=lambda x, w, eps: TensorProxy(like=x), fn=lambda x, w, eps: norm_forward(x, w, eps)[0]
    )

    def execution(x: Any, weight: Any, eps: float) -> Any:
        return forward(x, weight, eps)[0]

    def rule(x: Any, weight: Any, eps: float) -> Any:
        out, r = forward(x, weight, eps)
        put_grad(x, backward(get_grad(out), x, weight, r))
        return out

    def checker(x: Any, weight: Any, eps: float) -> bool:
        return not weight.requires_grad

    ex.register_implementation(norm, execution_transform=execution, checker=checker, grad_transform=rule)
    x, w = leaf(4, 8), leaf(8, seed=1, grad=False)
    compiled = thunder.jit(lambda x, w: norm(x, w, 1e-5) * 2, executors=[ex])
    found = torch.autograd.grad(compiled(x, w).square().sum(), x)
    expected = torch.autograd.grad((norm_forward(x, w, 1e-5)[0] * 2).square().sum(), x)
    torch.testing.assert_close(found, expected)
    names = [
        [b.sym.name for b in t(compiled)[-1].bound_symbols]
        for t in (thunder.last_traces, thunder.last_backward_traces)
    ]
    assert "norm_forward" in names[0]
    assert "norm_backward" in names[1]
    with pytest.raises(thunder.MissingGradient, match="norm"):
        compiled(x, w.clone().requires_grad_())


# -- faults in rules -----------------------------------------------------------------------------------------


def test_an_error_in_a_rule_names_the_operator_and_the_line(ex: OperatorExecutor) -> None:
    cube = ex.register_operator("cube", meta=like, fn=cubed)

    def rule(x: Any) -> Any:
        out = cube(x)
        put_grad(x, get_grad(out).nonsense())
        return out

    register_grad(cube, rule)

    def program(x):
        y = x * 2
        return cube(y)

    with pytest.raises(Exception, match="nonsense") as caught:
        gradient(program, leaf(3), executors=[ex])
    notes = "\n".join([str(caught.value), *getattr(caught.value, "__notes__", [])])
    assert "cube" in notes
    assert f"test_rules.py:{program.__code__.co_firstlineno + 2}" in notes


def test_a_gradient_that_does_not_fit_is_refused(ex: OperatorExecutor) -> None:
    cube = ex.register_operator("cube", meta=like, fn=cubed)

    def rule(x: Any) -> Any:
        out = cube(x)
        put_grad(x, get_grad(out).sum())
        return out

    register_grad(cube, rule)
    with pytest.raises(thunder.PluginError, match="does not fit") as caught:
        gradient(lambda x: cube(x), leaf(3), executors=[ex])
    assert f".rule, of {cube.id}" in str(caught.value)
    assert caught.value.where[0].text == "gradient(lambda x: cube(x), leaf(3), executors=[ex])"


def test_an_argument_that_a_rule_puts_none_for_has_no_gradient(ex: OperatorExecutor) -> None:
    both = ex.register_operator("both", meta=lambda a, b: TensorProxy(like=a), fn=lambda a, b: a * b)

    def rule(a: Any, b: Any) -> Any:
        out = both(a, b)
        put_grads((a, b), (get_grad(out) * b, None))
        return out

    register_grad(both, rule)
    a, b = leaf(3), leaf(3, seed=1)
    out = thunder.jit(lambda a, b: both(a, b), executors=[ex])(a, b)
    found = torch.autograd.grad(out.sum(), (a, b), allow_unused=True)
    torch.testing.assert_close(found[0], b.detach())
    assert found[1] is None


def test_a_gradient_that_nobody_put_is_zeros(ex: OperatorExecutor) -> None:
    split = ex.register_operator(
        "halves", meta=lambda x: (TensorProxy(like=x), TensorProxy(like=x)), fn=lambda x: (x * 2, x * 3)
    )

    def rule(x: Any) -> Any:
        a, b = split(x)
        put_grad(x, get_grad(a) * 2 + get_grad(b) * 3)
        return a, b

    register_grad(split, rule)
    found = gradient(lambda x: split(x)[1], leaf(3), executors=[ex])
    torch.testing.assert_close(found, torch.full((3,), 3.0, dtype=torch.float64))


def test_register_grad_of_an_unknown_operator_is_refused() -> None:
    with pytest.raises(thunder.ThunderError, match="nonsense"):
        register_grad("torch.nonsense", lambda x: x)


# -- operators without gradient ------------------------------------------------------------------------------


def test_an_operator_declared_nondifferentiable_after_its_first_call_is_so(ex: OperatorExecutor) -> None:
    cube = ex.register_operator("cube", meta=like, fn=cubed)

    def program(x):
        return cube(x) + x

    with pytest.raises(thunder.MissingGradient, match="cube"):
        gradient(program, leaf(3), executors=[ex])
    nondifferentiable(cube.id)
    torch.testing.assert_close(gradient(program, leaf(3), executors=[ex]), torch.ones(3).double())
    assert not thunder.jit(cube, executors=[ex])(leaf(3)).requires_grad


def test_an_operator_defined_like_one_without_gradient_has_none(ex: OperatorExecutor) -> None:
    plain = ex.register_operator("plain", like=prims.detach, fn=torch.detach)
    assert plain.declared_gradient is NONDIFFERENTIABLE
    found = gradient(lambda x: plain(x) * x, x := leaf(3), executors=[ex])
    torch.testing.assert_close(found, x.detach())


def test_register_grad_gives_a_nondifferentiable_operator_a_gradient(ex: OperatorExecutor) -> None:
    cube = ex.register_operator("cube", meta=like, fn=cubed)
    nondifferentiable(cube.id)

    def rule(x: Any) -> Any:
        out = cube(x)
        put_grad(x, get_grad(out) * 7)
        return out

    register_grad(cube, rule)
    found = gradient(lambda x: cube(x) + x, leaf(3), executors=[ex])
    torch.testing.assert_close(found, torch.full((3,), 8.0, dtype=torch.float64))


def test_an_operator_has_one_gradient_declaration(ex: OperatorExecutor) -> None:
    cube = ex.register_operator("cube", meta=like, fn=cubed)
    nondifferentiable(cube.id)
    with pytest.raises(thunder.ThunderError, match="has a gradient already"):
        nondifferentiable(cube.id)
