"""Operators whose left side is a builtin object, and the right side one of a class in Python with tensors."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import thunder


class Interval:
    """Numbers between two tensors, with the operators that a numeric class has."""

    def __init__(self, low: Any, high: Any) -> None:
        self.low, self.high = low, high

    def __radd__(self, other: Any) -> Interval:
        return Interval(self.low + other, self.high + other)

    def __rsub__(self, other: Any) -> Interval:
        return Interval(other - self.high, other - self.low)

    def __rmul__(self, other: Any) -> Interval:
        return Interval(self.low * other, self.high * other)

    def __rtruediv__(self, other: Any) -> Interval:
        return Interval(other / self.high, other / self.low)

    def __rpow__(self, other: Any) -> Interval:
        return Interval(other**self.low, other**self.high)

    def __gt__(self, other: Any) -> Tensor:
        return self.low > other  # type: ignore[no-any-return]

    def __eq__(self, other: object) -> Any:
        return self.low == other

    def __ror__(self, other: Any) -> Any:
        return Interval(torch.zeros(3), self.high) if other is None or isinstance(other, dict) else other

    __hash__ = None  # type: ignore[assignment]


ARITHMETIC = [operator.add, operator.sub, operator.mul, operator.truediv, operator.pow]


@pytest.mark.parametrize("number", [2, 1.5, True])
@pytest.mark.parametrize("operation", ARITHMETIC)
def test_the_methods_of_the_class_are_called(operation: Callable[..., Any], number: Any) -> None:
    def program(x: Tensor) -> tuple[Tensor, Tensor]:
        result = operation(number, Interval(x, x + 1.0))
        return result.low, result.high

    x = torch.rand(3) + 1
    if number is True and operation is operator.sub:
        number = 1  # torch subtracts no truth values
    torch.testing.assert_close(thunder.jit(program)(x), program(x))


@pytest.mark.parametrize("other", [2, 1.5, 2j, "a", (1,), [1], {1: 2}, {1}, None])
def test_comparisons_with_any_builtin_object(other: Any) -> None:
    def program(x: Tensor) -> Any:
        return (
            other == Interval(x, x),
            other != Interval(x.sum(), x),
            isinstance(other, float) and other < Interval(x, x),
        )

    x = torch.tensor([1.0, 1.5, 2.0])
    torch.testing.assert_close(thunder.jit(program)(x), program(x))


def test_other_operators_of_collections_decline() -> None:
    def program(x: Tensor) -> Tensor:
        return ({1: 2} | Interval(x, x)).high + (None | Interval(x, x)).high

    x = torch.rand(3)
    assert torch.equal(thunder.jit(program)(x), program(x))
