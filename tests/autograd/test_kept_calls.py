"""Kernels of packages that have no gradient rule run in training, with the gradient of torch's operator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import thunder
from thunder.core.transforms import get_grad, put_grads
from thunder.extend import OperatorExecutor, Refusal, TemporaryExecutor


def tensor(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.float64, requires_grad=True)


def kernel_of(function: Callable[..., Any]) -> tuple[OperatorExecutor, list[int]]:
    """An executor that runs a function of torch by a kernel, and the list in which the kernel counts."""
    runs: list[int] = []

    def kernel(*args: Any, **kwargs: Any) -> Any:
        runs.append(1)
        return function(*args, **kwargs)

    executor = OperatorExecutor("kept")
    mine = executor.register_operator("mine", like=function, fn=kernel, replace=True)
    executor.register_implementation(function, mine)
    return executor, runs


def attention(q: Any, k: Any, v: Any) -> Any:
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


# the operator, a program, the shapes of its arguments
COMPOSITES: dict[str, tuple[Callable[..., Any], Callable[..., Any], list[tuple[int, ...]]]] = {
    "layer_norm": (F.layer_norm, lambda x, w, b: F.layer_norm(x, (8,), w, b), [(3, 8), (8,), (8,)]),
    "rms_norm": (F.rms_norm, lambda x, w: F.rms_norm(x, (8,), w), [(3, 8), (8,)]),
    "group_norm": (F.group_norm, lambda x, w, b: F.group_norm(x, 2, w, b), [(2, 4, 3), (4,), (4,)]),
    "softmax": (F.softmax, lambda x: F.softmax(x, -1), [(3, 8)]),
    "gelu": (F.gelu, F.gelu, [(3, 8)]),
    "attention": (F.scaled_dot_product_attention, attention, [(1, 2, 4, 8)] * 3),
    "cross_entropy": (F.cross_entropy, lambda x: F.cross_entropy(x, torch.arange(3)), [(3, 8)]),
    "normalize": (F.normalize, F.normalize, [(3, 8)]),
    "mse_loss": (F.mse_loss, F.mse_loss, [(3, 8), (3, 8)]),
    "sum": (torch.sum, torch.sum, [(3, 8)]),
}


@pytest.mark.parametrize("name", COMPOSITES)
def test_a_kernel_for_a_composite_runs_in_training_with_torchs_gradient(name: str) -> None:
    function, program, shapes = COMPOSITES[name]
    executor, runs = kernel_of(function)
    inputs = [tensor(*shape) for shape in shapes]
    compiled = thunder.jit(lambda *args: program(*args) ** 2, executors=[executor])
    ours = torch.autograd.grad(compiled(*inputs).sum(), inputs)
    assert len(runs) == 1, "in the forward, and not in the backward"
    theirs = torch.autograd.grad((program(*inputs) ** 2).sum(), inputs)
    torch.testing.assert_close(ours, theirs)
    claims = [row.trace for row in thunder.explain(compiled).rows if row.claimed_by == "kept"]
    assert claims == ["forward"]


def test_the_gradient_of_a_kernel_without_a_rule_has_a_second_derivative() -> None:
    executor, _ = kernel_of(F.layer_norm)
    compiled = thunder.jit(lambda x, w: F.layer_norm(x, (4,), w), executors=[executor])
    assert torch.autograd.gradgradcheck(compiled, (tensor(2, 4), tensor(4)))


def test_only_the_arguments_of_a_kernel_without_a_rule_are_saved() -> None:
    executor, _ = kernel_of(F.layer_norm)
    compiled = thunder.jit(lambda x, w, b: F.layer_norm(x, (8,), w, b), executors=[executor])
    compiled(tensor(3, 8), tensor(8), tensor(8))
    assert "native_layer_norm" not in str(thunder.last_traces(compiled)[-1]).partition("# ")[0]
    symbols = [bsym.sym.name for bsym in thunder.last_traces(compiled)[-1].bound_symbols]
    assert "mine" in symbols
    assert "native_layer_norm" not in symbols


def test_an_operator_that_replaces_a_torch_function_runs_in_training() -> None:
    runs: list[int] = []

    def kernel(a: torch.Tensor) -> torch.Tensor:
        runs.append(1)
        return a.clamp(min=0)

    executor = OperatorExecutor("kept")
    executor.register_operator("relu", like=torch.relu, fn=kernel, replaces=torch.relu, replace=True)
    x = torch.tensor([-1.0, 2.0], requires_grad=True)
    compiled = thunder.jit(lambda x: torch.relu(x) * 3, executors=[executor])
    compiled(x).sum().backward()
    assert (len(runs), x.grad.tolist()) == (1, [0.0, 3.0])


def test_an_operator_like_a_python_function_runs_in_training() -> None:
    runs: list[int] = []

    def gate(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return torch.sigmoid(w) * x

    def kernel(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        runs.append(1)
        return gate(x, w)

    executor = OperatorExecutor("kept")
    executor.register_operator("gate", like=gate, fn=kernel, replaces=gate, replace=True)
    compiled = thunder.jit(lambda x, w: gate(x, w) ** 2, executors=[executor])
    inputs = [tensor(3), tensor(3)]
    ours = torch.autograd.grad(compiled(*inputs).sum(), inputs)
    assert len(runs) == 1
    torch.testing.assert_close(ours, torch.autograd.grad((gate(*inputs) ** 2).sum(), inputs))


def test_an_execution_transform_of_a_composite_runs_in_training() -> None:
    executor = OperatorExecutor("kept")
    executor.register_implementation(
        "torch.nn.functional.layer_norm",
        execution_transform=lambda x, shape, weight, bias, eps: x * weight,  # visibly something else
    )
    x, w = tensor(3, 8), tensor(8)
    compiled = thunder.jit(lambda x, w: F.layer_norm(x, (8,), w), executors=[executor])
    result = compiled(x, w)
    torch.testing.assert_close(result, x * w)
    ours = torch.autograd.grad(result.sum(), (x, w))
    torch.testing.assert_close(ours, torch.autograd.grad(F.layer_norm(x, (8,), w).sum(), (x, w)))


def test_a_call_that_draws_random_numbers_is_not_computed_again_and_the_ledger_says_so() -> None:
    executor, runs = kernel_of(F.dropout)
    compiled = thunder.jit(lambda x: F.dropout(x, 0.5), executors=[executor])
    x = torch.ones(100, requires_grad=True)
    result = compiled(x)
    result.sum().backward()
    assert torch.equal(result, x.grad), "one mask"
    assert not runs
    (row,) = thunder.explain(compiled).why_not("kept", symbol="torch.nn.functional.dropout").rows
    assert [(r.code, "draw other random numbers" in r.message) for r in row.refusals] == [("gradient", True)]
    with pytest.raises(thunder.RequirementNotMet, match="must be run by executor 'kept'"):
        thunder.jit(
            lambda x: F.dropout(x, 0.5), executors=[executor], require={"torch.nn.functional.dropout": "kept"}
        )(x)


def test_the_refusal_of_a_checker_is_in_the_ledger_of_a_training_program() -> None:
    executor = OperatorExecutor("kept")
    mine = executor.register_operator("mine", like=F.layer_norm, fn=F.layer_norm, replace=True)
    executor.register_implementation(
        F.layer_norm, mine, checker=lambda input, *args: Refusal("odd", "takes no such widths")
    )
    compiled = thunder.jit(lambda x: F.layer_norm(x, (3,)), executors=[executor])
    compiled(tensor(2, 3)).sum().backward()
    (row,) = thunder.explain(compiled).why_not("kept", symbol="torch.nn.functional.layer_norm").rows
    assert [(row.claimed_by, r.code, r.message) for r in row.refusals] == [
        (None, "odd", "takes no such widths")
    ]


def test_the_rule_of_another_package_computes_the_call_and_the_ledger_says_so() -> None:
    executor, runs = kernel_of(F.softplus)
    other = OperatorExecutor("others")

    def rule(input: Any, beta: Any, threshold: Any) -> Any:
        result = thunder.torch.log1p(thunder.torch.exp(input))
        put_grads((input,), (get_grad(result) * thunder.torch.sigmoid(input),))
        return result

    other.register_implementation("torch.nn.functional.softplus", grad_transform=rule)
    compiled = thunder.jit(lambda x: F.softplus(x), executors=[other, executor])
    compiled(tensor(3)).sum().backward()
    assert not runs
    (row,) = thunder.explain(compiled).why_not("kept", symbol="torch.nn.functional.softplus").rows
    assert "computes the call itself" in row.refusals[0].message


def test_a_rule_that_calls_its_operator_has_the_kernel() -> None:
    executor, runs = kernel_of(F.softplus)
    other = OperatorExecutor("others")

    def rule(input: Any, beta: Any, threshold: Any) -> Any:
        result = thunder.torch.softplus(input, beta, threshold)
        put_grads((input,), (get_grad(result) * thunder.torch.sigmoid(input),))
        return result

    other.register_implementation("torch.nn.functional.softplus", grad_transform=rule)
    compiled = thunder.jit(lambda x: F.softplus(x), executors=[other, executor])
    compiled(tensor(3)).sum().backward()
    assert len(runs) == 1
    refusals = [r for row in thunder.explain(compiled).rows for r in row.refusals if r.executor == "kept"]
    assert all(r.code != "gradient" for r in refusals)


def test_an_operator_of_one_compile_has_formulas() -> None:
    executor = TemporaryExecutor("kept_once")
    square = executor.register_operator(
        "square",
        meta=lambda x: thunder.TensorProxy(like=x),
        fn=lambda x: x * x,
        vjp={"x": lambda c: c.g * 2 * c.x},
    )
    compiled = thunder.jit(lambda x: square(x), executors=[executor])
    assert torch.autograd.gradcheck(compiled, (tensor(3),))
