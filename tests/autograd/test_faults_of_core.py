"""A fault of a gradient rule of core is an InternalError with the operator and the user's line."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

import thunder
from comparison.inputs import leaf
from thunder.core.transforms import get_grad, put_grad
from thunder.ir.gradient_declarations import (
    Formulas,
    JointRule,
    OperatorGradient,
    Vjp,
    declare_gradient,
    declared_gradient,
)

ltorch: Any = thunder.torch


def in_core(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function as one of core's module of gradients."""
    fn.__module__ = "thunder.torch.gradients.unary"
    return fn


def without_result(a: Any) -> Any:
    put_grad(a, get_grad(ltorch.sin(a)))


def of_another_shape(a: Any) -> Any:
    out = ltorch.sin(a)
    put_grad(a, ltorch.sum(get_grad(out)))
    return out


FAULTS: dict[str, OperatorGradient] = {
    "raises": Formulas({"input": in_core(lambda c: c.nonsense)}),
    "raises an error of an operator": Formulas({"input": in_core(lambda c: ltorch.matmul(c.g, c.g[:2]))}),
    "another shape": Formulas({"input": in_core(lambda c: ltorch.sum(c.g))}),
    "a number": Formulas({"input": in_core(lambda c: 1.0)}),
    "another argument": Vjp(in_core(lambda c: {"weight": c.g})),
    "not a mapping": Vjp(in_core(lambda c: c.g)),
    "another result": JointRule(in_core(without_result)),
    "another shape in a rule": JointRule(in_core(of_another_shape)),
}


@pytest.fixture
def declare() -> Iterator[Callable[[OperatorGradient], None]]:
    """The function that declares the gradient of torch.sin until the end of the test."""
    right = declared_gradient("torch.sin")
    yield lambda gradient: declare_gradient("torch.sin", gradient)
    declare_gradient("torch.sin", right)


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_of_a_rule_of_core_is_internal(
    fault: str, declare: Callable[[OperatorGradient], None]
) -> None:
    declare(FAULTS[fault])
    compiled = thunder.jit(lambda x: torch.sin(x) * 2)
    with pytest.raises(thunder.InternalError, match=r"the gradient rule of torch\.sin failed") as caught:
        compiled(leaf(3))
    assert "torch.sin(x) * 2" in caught.value.where[0].text
    assert "ltorch.sin(x)" in str(caught.value)


def test_a_refusal_of_a_rule_of_core_is_its_own_error() -> None:
    compiled = thunder.jit(lambda x: torch.linalg.qr(x, "complete")[0])
    with pytest.raises(thunder.OperatorError, match="a 3 x 2 matrix has no gradient"):
        compiled(leaf(3, 2))
