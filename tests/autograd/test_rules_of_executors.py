"""Gradient rules of executors: alone, for both, second derivatives, results without grad."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import thunder
from comparison.inputs import leaf
from thunder import TensorProxy
from thunder.core.prims import OpTags
from thunder.core.transforms import get_grad, put_grad, put_grads, register_grad
from thunder.extend import OperatorExecutor, Refusal
from thunder.ir.gradient_declarations import _replacements

ltorch: Any = thunder.torch


def like(x: Any, *others: Any) -> Any:
    return TensorProxy(like=x)


def claimed(compiled: Any) -> dict[str, str | None]:
    return {row.symbol: row.claimed_by for row in thunder.explain(compiled).rows}


# -- a rule alone --------------------------------------------------------------------------------------------


def scaled_sine(a: Any) -> Any:
    """A rule whose gradient is ten times too large, so that it is seen."""
    out = ltorch.sin(a)
    put_grad(a, get_grad(out) * ltorch.cos(a) * 10)
    return out


def test_a_gradient_rule_alone_is_used_for_a_call_that_torch_runs() -> None:
    ex = OperatorExecutor("alone_ex")
    ex.register_implementation("torch.sin", grad_transform=scaled_sine)
    compiled, x = thunder.jit(lambda x: torch.sin(x) * 2, executors=[ex]), leaf(3)
    found = torch.autograd.grad(compiled(x).sum(), x)[0]
    torch.testing.assert_close(found, 20 * x.detach().cos())
    assert claimed(compiled)["torch.sin"] == "torch"
    assert "has a gradient rule for torch.sin and nothing to run it" in str(thunder.explain(compiled))


def test_a_gradient_rule_after_the_claiming_executor_is_not_used() -> None:
    kernels, rules = OperatorExecutor("kernels_ex"), OperatorExecutor("later_rules_ex")
    kernels.register_implementation("torch.sin", kernels.register_operator("s", like=torch.sin, fn=torch.sin))
    rules.register_implementation("torch.sin", grad_transform=scaled_sine)
    x = leaf(3)
    for order, factor in (([kernels, rules], 1), ([rules, kernels], 10)):
        compiled = thunder.jit(lambda x: torch.sin(x), executors=order)
        found = torch.autograd.grad(compiled(x).sum(), x)[0]
        torch.testing.assert_close(found, factor * x.detach().cos())


def test_the_checker_of_a_gradient_rule_alone_decides() -> None:
    ex = OperatorExecutor("alone_checked_ex")
    ex.register_implementation(
        "torch.sin",
        checker=lambda a: a.ndim == 2 or Refusal("dims", "takes matrices"),
        grad_transform=scaled_sine,
    )
    compiled = thunder.jit(lambda x: torch.sin(x), executors=[ex])
    for x, factor in ((leaf(3), 1), (leaf(3, 2), 10)):
        found = torch.autograd.grad(compiled(x).sum(), x)[0]
        torch.testing.assert_close(found, factor * x.detach().cos())


def test_a_gradient_rule_alone_of_an_own_operator() -> None:
    ex = OperatorExecutor("alone_own_ex")
    grow = ex.register_operator("grow", meta=like, fn=torch.exp)

    def rule(x: Any) -> Any:
        out = grow(x)
        put_grad(x, get_grad(out) * out)
        return out

    ex.register_implementation(grow, grad_transform=rule)
    compiled = thunder.jit(lambda x: grow(x) * 2, executors=[ex])
    assert torch.autograd.gradcheck(compiled, (leaf(3),))
    assert torch.autograd.gradgradcheck(compiled, (leaf(3),))
    assert claimed(compiled)["alone_own_ex.grow"] == "alone_own_ex"


def test_a_gradient_rule_alone_keeps_the_implementation_that_was_declared_before() -> None:
    ex = OperatorExecutor("alone_later_ex")
    sine = ex.register_operator("sine", like=ltorch.sin, fn=torch.sin)
    ex.register_implementation("torch.sin", sine)
    ex.register_implementation("torch.sin", grad_transform=scaled_sine)
    compiled, x = thunder.jit(lambda x: torch.sin(x), executors=[ex]), leaf(3)
    torch.testing.assert_close(torch.autograd.grad(compiled(x).sum(), x)[0], 10 * x.detach().cos())
    assert claimed(compiled)["torch.sin"] == "alone_later_ex"


@pytest.mark.parametrize("transform", ["grad_transform", "execution_transform"])
def test_a_transform_that_is_not_a_function_is_refused(transform: str) -> None:
    with pytest.raises(thunder.RegistrationError, match=f"{transform}= .* has to be a function"):
        OperatorExecutor("not_callable_ex").register_implementation("torch.sin", **{transform: 3})


# -- results -------------------------------------------------------------------------------------------------


def test_a_rule_may_return_its_argument() -> None:
    ex = OperatorExecutor("identity_ex")
    identity = ex.register_operator("identity", meta=like, fn=torch.clone)

    def reversed_gradient(x: Any) -> Any:
        put_grad(x, -get_grad(x))
        return x

    ex.register_implementation(identity, grad_transform=reversed_gradient)
    x = leaf(3)
    out = thunder.jit(lambda x: identity(x * 2) * 3, executors=[ex])(x)
    torch.testing.assert_close(out, x * 6)
    torch.testing.assert_close(torch.autograd.grad(out.sum(), x)[0], torch.full_like(x, -6))


def test_a_rule_may_return_one_value_twice_and_reads_both_gradients() -> None:
    ex = OperatorExecutor("twice_ex")
    both = ex.register_operator("both", meta=lambda x: (like(x), like(x)), fn=lambda x: (x * 2, x * 2))

    def rule(x: Any) -> Any:
        doubled = ltorch.mul(x, 2)
        put_grad(x, get_grad(doubled) * 2)
        return doubled, doubled

    ex.register_implementation(both, grad_transform=rule)
    with pytest.raises(thunder.PluginError, match="does not read the gradient of result 1"):
        thunder.jit(lambda x: both(x), executors=[ex])(leaf(3))


# -- one function for both -----------------------------------------------------------------------------------


def test_one_function_is_the_execution_transform_and_the_gradient_rule() -> None:
    ex = OperatorExecutor("both_ex")
    kernel = ex.register_operator("cosine", meta=like, fn=torch.cos)

    def cosine(input: Any) -> Any:
        out = kernel(input)
        put_grad(input, get_grad(out) * -ltorch.sin(input))
        return out

    ex.register_implementation("torch.cos", execution_transform=cosine, grad_transform=cosine)
    compiled, x = thunder.jit(lambda x: torch.cos(x) * 2, executors=[ex]), leaf(3)
    torch.testing.assert_close(compiled(x.detach()), 2 * x.detach().cos())
    names = [b.sym.name for b in thunder.last_traces(compiled)[-1].bound_symbols]
    assert names == ["cosine", "python_del", "mul", "python_del", "python_return"]
    assert torch.autograd.gradcheck(compiled, (x,))
    assert torch.autograd.gradgradcheck(compiled, (x,))


# -- second derivatives --------------------------------------------------------------------------------------


def norm_forward(x: torch.Tensor, w: torch.Tensor, eps: float) -> tuple[torch.Tensor, torch.Tensor]:
    r = torch.rsqrt((x * x).mean(-1, keepdim=True) + eps)
    return x * r * w, r


def norm_backward(g: Any, x: Any, w: Any, r: Any) -> tuple[torch.Tensor, torch.Tensor]:
    h = g * w
    return r * (h - x * r * r * (h * x).mean(-1, keepdim=True)), (g * x * r).sum(0)


def test_a_second_derivative_of_kernels_is_that_of_the_operator() -> None:
    ex = OperatorExecutor("second_ex")
    forward = ex.register_operator(
        "norm_forward",
        meta=lambda x, w, eps: (like(x), TensorProxy(like=x, shape=(*x.shape[:-1], 1), requires_grad=False)),
        fn=norm_forward,
    )
    backward = ex.register_operator(
        "norm_backward", meta=lambda g, x, w, r: (like(x), like(w)), fn=norm_backward
    )

    def rms_norm(input: Any, normalized_shape: Any, weight: Any = None, eps: Any = None) -> Any:
        out, r = forward(input, weight, eps)
        put_grads((input, weight), backward(get_grad(out), input, weight, r))
        return out

    ex.register_implementation(
        "torch.nn.functional.rms_norm", execution_transform=rms_norm, grad_transform=rms_norm
    )
    compiled = thunder.jit(
        lambda x, w: torch.nn.functional.rms_norm(x * 2, (4,), w, 1e-5).sin(), executors=[ex]
    )
    x, w = leaf(3, 4), leaf(4, seed=1)
    assert torch.autograd.gradcheck(compiled, (x, w))
    assert "norm_backward" in {b.sym.name for b in thunder.last_backward_traces(compiled)[-1].bound_symbols}
    assert torch.autograd.gradgradcheck(compiled, (x, w))


@pytest.fixture(scope="module")
def sines() -> OperatorExecutor:
    """An executor whose rule of torch.sin has a kernel for its backward."""
    ex = OperatorExecutor("sines_ex")
    backward = ex.register_operator(
        "sine_backward", meta=lambda g, x: like(x), fn=lambda g, x: g * torch.cos(x)
    )

    def sine(input: Any) -> Any:
        out = ltorch.sin(input)
        put_grad(input, backward(get_grad(out), input))
        return out

    ex.register_implementation("torch.sin", grad_transform=sine)
    return ex


@pytest.mark.parametrize("policy", ["none", "min-cut", 200])
def test_second_derivatives_are_those_of_the_operator_under_each_policy(
    sines: OperatorExecutor, policy: str | int
) -> None:
    compiled = thunder.jit(
        lambda x, y: torch.sin(torch.sin(x * y)).exp() * y, executors=[sines], rematerialization=policy
    )
    assert torch.autograd.gradcheck(compiled, (leaf(2, 3), leaf(2, 3, seed=1)))
    assert torch.autograd.gradgradcheck(compiled, (leaf(2, 3), leaf(2, 3, seed=1)))


def test_a_second_derivative_of_a_registered_gradient_is_that_of_the_operator() -> None:
    ex = OperatorExecutor("registered_ex")
    backward = ex.register_operator(
        "cosine_backward", meta=lambda g, x: like(x), fn=lambda g, x: -g * torch.sin(x)
    )

    def cosine(input: Any) -> Any:
        out = ltorch.cos(input)
        put_grad(input, backward(get_grad(out), input))
        return out

    replaced = _replacements.get("torch.cos")
    register_grad("torch.cos", cosine)
    try:
        compiled = thunder.jit(lambda x: torch.cos(x * 2), executors=[ex])
        assert torch.autograd.gradgradcheck(compiled, (leaf(3),))
        names = [b.sym.name for b in thunder.last_backward_traces(compiled)[-1].bound_symbols]
        assert "cosine_backward" in names
    finally:
        assert replaced is None, "no other test registers a gradient of torch.cos"
        del _replacements["torch.cos"]


def test_second_derivatives_of_programs_of_several_nodes_and_third_ones(sines: OperatorExecutor) -> None:
    compiled = thunder.jit(lambda x, y: (torch.sin(x * y) * 2, torch.sin(y).exp(), x * 3), executors=[sines])
    x, y = leaf(2, 3), leaf(2, 3, seed=1)
    assert torch.autograd.gradgradcheck(compiled, (x, y))
    (value,) = torch.autograd.grad(compiled(x, y)[0].sum(), x, create_graph=True)
    (value,) = torch.autograd.grad(value.sum(), x, create_graph=True)
    (value,) = torch.autograd.grad(value.sum(), x)
    torch.testing.assert_close(value, (-2 * y**3 * torch.cos(x * y)).detach())


def test_a_value_of_a_kernel_is_no_constant_in_a_second_derivative() -> None:
    ex = OperatorExecutor("slope_ex")
    both = ex.register_operator(
        "square_and_slope",
        meta=lambda x: (like(x), TensorProxy(like=x, requires_grad=False)),
        fn=lambda x: (x * x, 2 * x),
    )

    def square(input: Any) -> Any:
        out, slope = both(input)
        put_grad(input, get_grad(out) * slope)
        return out

    ex.register_implementation("torch.square", execution_transform=square, grad_transform=square)
    compiled = thunder.jit(lambda x: torch.square(x * x) * 3, executors=[ex])
    assert torch.autograd.gradcheck(compiled, (leaf(3),))
    assert torch.autograd.gradgradcheck(compiled, (leaf(3),))


def _second_derivative(target: Any, ex: OperatorExecutor) -> str:
    """Return the error of the second derivative of an operator whose rule calls kernels."""
    exponential = ex.register_operator("exponential", meta=like, fn=torch.exp)
    product = ex.register_operator("product", meta=like, fn=torch.mul)

    def rule(a: Any) -> Any:
        out = exponential(a)
        put_grad(a, product(get_grad(out), out))
        return out

    symbol = exponential if target is None else target
    ex.register_implementation(symbol, exponential, grad_transform=rule)
    run = exponential if target is None else torch.sin
    compiled, x = thunder.jit(lambda x: run(x) * 3, executors=[ex]), leaf(3)
    with pytest.raises(thunder.MissingGradient, match="a second derivative of") as caught:
        torch.autograd.grad(compiled(x).sum(), x, create_graph=True)
    assert caught.value.facts["from"] == f"module {__name__}"
    return str(caught.value)


def test_a_missing_second_derivative_names_the_package_and_the_operator() -> None:
    text = _second_derivative(None, OperatorExecutor("first_only_ex"))
    assert "first_only_ex.product, which it calls, has no gradient" in text
    assert "rule, of first_only_ex.exponential" in text


def test_an_argument_that_a_rule_does_not_save_is_missing_for_a_second_derivative() -> None:
    text = _second_derivative("torch.sin", OperatorExecutor("unsaved_ex"))
    assert "the operator's own gradient reads x, which the rule does not save" in text


# -- results without gradient --------------------------------------------------------------------------------


def test_a_result_that_the_meta_function_declares_without_gradient_requires_none() -> None:
    ex = OperatorExecutor("declared_ex")
    two = ex.register_operator(
        "two", meta=lambda x: (like(x), TensorProxy(like=x, requires_grad=False)), fn=lambda x: (x * 2, x * 3)
    )

    def rule(x: Any) -> Any:
        doubled, tripled = two(x)
        put_grad(x, get_grad(doubled) * 2)
        return doubled, tripled

    ex.register_implementation(two, grad_transform=rule)
    x = leaf(3)
    doubled, tripled = thunder.jit(lambda x: two(x), executors=[ex])(x)
    assert doubled.requires_grad
    assert not tripled.requires_grad
    product = thunder.jit(lambda x: two(x)[1] * x, executors=[ex])(x)
    torch.testing.assert_close(torch.autograd.grad(product.sum(), x)[0], 3 * x.detach())
    alone = thunder.jit(lambda x: two(x)[1], executors=[ex])(x)
    assert not alone.requires_grad
    torch.testing.assert_close(alone, 3 * x.detach())


def test_an_integer_result_like_an_argument_that_requires_grad_has_no_gradient() -> None:
    ex = OperatorExecutor("indices_ex")
    largest = ex.register_operator(
        "largest",
        meta=lambda x: (TensorProxy(like=x, shape=()), TensorProxy(like=x, shape=(), dtype=torch.int64)),
        fn=lambda x: (x.amax(), x.argmax()),
    )

    def rule(x: Any) -> Any:
        value, index = largest(x)
        put_grad(x, get_grad(value) * (torch.arange(3) == index))
        return value, index

    ex.register_implementation(largest, grad_transform=rule)
    value, index = thunder.jit(lambda x: largest(x), executors=[ex])(x := leaf(3))
    assert not index.requires_grad
    assert torch.autograd.grad(value, x)[0].argmax() == index


@pytest.mark.parametrize("how", ["tag", "meta"])
def test_an_operator_without_gradient_gives_results_that_require_none(how: str) -> None:
    ex = OperatorExecutor(f"without_{how}_ex")
    meta = like if how == "tag" else lambda x: TensorProxy(like=x, requires_grad=False)
    tags = [OpTags.NONDIFFERENTIABLE] if how == "tag" else None
    op = ex.register_operator("op", meta=meta, fn=torch.exp, tags=tags)
    x = leaf(3)
    assert not thunder.jit(lambda x: op(x), executors=[ex])(x).requires_grad
    out = thunder.jit(lambda x: op(x) * x, executors=[ex])(x)
    torch.testing.assert_close(torch.autograd.grad(out.sum(), x)[0], x.detach().exp())


def test_a_result_requires_no_grad_under_no_grad() -> None:
    ex = OperatorExecutor("no_grad_ex")
    op = ex.register_operator("op", meta=like, fn=torch.exp)

    def program(x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            scale = op(x)
        return scale * x

    x = leaf(3)
    out = thunder.jit(program, executors=[ex])(x)
    torch.testing.assert_close(torch.autograd.grad(out.sum(), x)[0], x.detach().exp())
