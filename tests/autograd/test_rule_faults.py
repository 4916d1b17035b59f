"""A fault of a package's gradient rule is found by the first compile that differentiates the operator."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import thunder
from autograd.rule_faults import EXAMPLES, FAULTS, Extension, Parts, flat
from thunder import TensorProxy
from thunder.core.transforms import register_grad
from thunder.extend import OperatorExecutor


def compiled_call(extension: Extension) -> Any:
    """Return the compiled program, which scales the results of the operator."""
    return thunder.jit(
        lambda *args: tuple(r * 2 for r in flat(extension.symbol(*args))), executors=[extension.executor]
    )


def register(route: str, extension: Extension) -> None:
    if route == "register_grad":
        register_grad(extension.symbol, extension.rule)
    else:
        extension.executor.register_implementation(
            extension.symbol, extension.symbol, grad_transform=extension.rule
        )


@pytest.mark.parametrize("route", ["grad_transform", "register_grad"])
@pytest.mark.parametrize("example", EXAMPLES)
def test_a_correct_rule_has_two_derivatives(example: str, route: str) -> None:
    extension = Extension(f"right_{route}_{example.replace(' ', '_')}", EXAMPLES[example], Parts())
    register(route, extension)
    compiled, args = compiled_call(extension), EXAMPLES[example].arguments()
    assert torch.autograd.gradcheck(compiled, args)
    assert torch.autograd.gradgradcheck(compiled, args)


@pytest.mark.parametrize("route", ["grad_transform", "register_grad"])
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("example", EXAMPLES)
def test_a_fault_of_a_rule_is_a_plugin_error(example: str, fault: str, route: str) -> None:
    parts, words = FAULTS[fault]
    extension = Extension(f"wrong_{route}", EXAMPLES[example], parts)
    register(route, extension)
    compiled = compiled_call(extension)
    with pytest.raises(thunder.PluginError, match=words) as caught:
        compiled(*EXAMPLES[example].arguments())
    text = str(caught.value)
    assert f"Extension.rule, of wrong_{route}.op" in text
    assert f"from:  module {Extension.__module__}" in text
    assert "extension.symbol(*args)" in caught.value.where[0].text
    assert caught.value.__cause__ is not caught.value


@pytest.mark.parametrize("example", EXAMPLES)
def test_a_rule_is_not_run_where_no_gradient_is_needed(example: str) -> None:
    extension = Extension("unused_rule", EXAMPLES[example], FAULTS["exception"][0])
    register("grad_transform", extension)
    args = [x.detach() if isinstance(x, torch.Tensor) else x for x in EXAMPLES[example].arguments()]
    found = compiled_call(extension)(*args)
    torch.testing.assert_close(found, tuple(r * 2 for r in flat(EXAMPLES[example].fn(*args))))


# -- formulas ------------------------------------------------------------------------------------------------

#: declarations of the gradient of x * w; all but the first are wrong
FORMULAS: dict[str, tuple[Any, str]] = {
    "right": ({"x": lambda c: c.g * c.w, "w": lambda c: c.g * c.x}, ""),
    "right function": (lambda c: {"x": c.g * c.w, "w": c.g * c.x}, ""),
    "an argument missing": ({"x": lambda c: c.g * c.w}, "no gradient of 'w'"),
    "an argument missing in a function": (lambda c: {"x": c.g * c.w}, "no gradient of 'w'"),
    "an argument that does not exist": (
        lambda c: {"x": c.g, "w": c.g, "v": c.g},
        "gradient of 'v', which .* does not have",
    ),
    "not a mapping": (lambda c: (c.g, c.g), "not a mapping"),
    "another shape": ({"x": lambda c: c.g.sum(), "w": lambda c: c.g}, "'x' does not fit"),
    "another length": ({"x": lambda c: thunder.torch.cat((c.g, c.g)), "w": lambda c: c.g}, "does not fit"),
    "another dtype": ({"x": lambda c: thunder.torch.to(c.g, torch.float32), "w": lambda c: c.g}, "not fit"),
    "an integer": ({"x": lambda c: thunder.torch.argsort(c.g), "w": lambda c: c.g}, "does not fit"),
    "a number": ({"x": lambda c: 1.0, "w": lambda c: c.g}, "does not fit"),
    "another device": ({"x": lambda c: TensorProxy(like=c.g, device="meta"), "w": lambda c: c.g}, "fit"),
    "without the cotangent": ({"x": lambda c: c.w, "w": lambda c: c.x}, "do not read the cotangent"),
    "an in-place write": ({"x": lambda c: c.g.mul_(c.w), "w": lambda c: c.g}, "writes in place, with mul_"),
    "an exception": ({"x": lambda c: c.nonsense, "w": lambda c: c.g}, "no argument 'nonsense'"),
}


@pytest.mark.parametrize("name", FORMULAS)
def test_a_fault_of_a_formula_is_a_plugin_error(name: str) -> None:
    vjp, words = FORMULAS[name]
    ex = OperatorExecutor("formula_ex")
    op = ex.register_operator(
        "op", meta=lambda x, w: TensorProxy(like=x), fn=torch.mul, vjp=vjp, replace=True
    )
    compiled = thunder.jit(lambda x, w: op(x, w) * 2, executors=[ex])
    args = EXAMPLES["pointwise"].arguments()
    if not words:
        assert torch.autograd.gradcheck(compiled, args)
        assert torch.autograd.gradgradcheck(compiled, args)
        return
    with pytest.raises(thunder.PluginError, match=words) as caught:
        compiled(*args)
    assert "of formula_ex.op" in str(caught.value)
    assert f"from:  module {__name__}" in str(caught.value)
    assert "op(x, w) * 2" in caught.value.where[0].text


def test_a_formula_that_is_none_declares_an_argument_without_gradient() -> None:
    ex = OperatorExecutor("constant_ex")
    op = ex.register_operator(
        "op",
        meta=lambda x, w: TensorProxy(like=x),
        fn=torch.mul,
        vjp={"x": lambda c: c.g * c.w, "w": None},
    )
    compiled = thunder.jit(lambda x, w: op(x, w), executors=[ex])
    x, w = EXAMPLES["pointwise"].arguments()
    gradients = torch.autograd.grad(compiled(x, w).sum(), (x, w), allow_unused=True)
    torch.testing.assert_close(gradients[0], w.detach())
    assert gradients[1] is None
    assert not compiled(x.detach(), w).requires_grad
