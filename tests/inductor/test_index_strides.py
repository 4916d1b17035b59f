"""Strides of indices by multiplying out are those of TorchInductor's simplification."""

from __future__ import annotations

import random

import pytest
import sympy
from torch._inductor.sizevars import stride_at_vec_range
from torch.utils._sympy.functions import FloorDiv, ModularIndexing

from thunder_inductor.index_strides import with_linear_indices

X, Y, SIZE = sympy.symbols("x y size", integer=True, nonnegative=True)


def index(choice: random.Random) -> sympy.Expr:
    """Return an index of two variables and a size, linear or not."""
    terms = [
        *(X, Y, SIZE, X * Y, SIZE * X, X * (Y + 2), X**2, sympy.Integer(3)),
        *(FloorDiv(X, 4), FloorDiv(X + Y, 2), ModularIndexing(X, 1, 16), ModularIndexing(Y, 2, 3)),
    ]
    return sum((choice.choice((1, 2, -1, 64)) * choice.choice(terms) for _ in range(3)), sympy.Integer(0))


@pytest.mark.parametrize("seed", range(20))
def test_the_strides_of_any_index_are_torchinductors(seed: int) -> None:
    choice = random.Random(seed)
    stride_of = with_linear_indices(stride_at_vec_range)
    for expression in (index(choice) for _ in range(5)):
        for length in (None, 16):
            assert stride_of(expression, X, length) == stride_at_vec_range(expression, X, length)


def test_a_linear_index_is_not_simplified(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sympy, "simplify", None)
    stride_of = with_linear_indices(stride_at_vec_range)
    assert stride_of(64 * X + Y + 12345, X, 16) == 64
    with pytest.raises(TypeError, match="not callable"):
        stride_of(64 * FloorDiv(X, 4) + Y + 12345, X, 16)
