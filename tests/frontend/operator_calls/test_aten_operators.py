"""Operators that a program calls by ``torch.ops.aten``."""

from __future__ import annotations

import pytest
import torch

import thunder
from comparison.derivatives import assert_as_eager
from comparison.inputs import leaf

aten = torch.ops.aten


def _written(x):
    y = aten.clone(x)
    aten.add_.Tensor(y, x, alpha=2)
    aten.fill_.Scalar(y[0], 2.0)
    aten.copy_(y[1], x[2])
    aten.relu_(y)
    return y


VIEWS = {
    "select": lambda x: aten.select.int(x, 0, 1) * 2,
    "slice": lambda x: (aten.slice.Tensor(x, 1, 0, 2), aten.slice(x, -2, 1, 9, 2), aten.slice(x)),
    "shapes": lambda x: (aten.view.default(x, [9]), aten.permute(x, [1, 0]), aten.expand(x[0:1], [3, 3])),
    "alias": lambda x: (aten.alias.default(x) * 2, aten.t(x), aten._unsafe_view.default(x * 1, [9])),
    "parts": lambda x: (aten.split.Tensor(x, 2, 1)[0], aten.unbind.int(x)[1], aten.chunk(x, 2)[1]),
    "results": lambda x: (aten.max.dim(x, 1)[0], aten.sort(x)[0], aten.sum.dim_IntList(x, [1], True)),
    "by name": lambda x: aten.mul.Tensor(self=x, other=x),
    "writes": _written,
}


@pytest.mark.parametrize("name", VIEWS)
def test_values_and_gradients_are_eagers(name):
    assert_as_eager(VIEWS[name], leaf(3, 3), order=1)


def test_the_type_of_a_result_is_eagers():
    def program(x):
        results = (
            aten.split.Tensor(x, 2),
            aten.unbind.int(x),
            aten.max.dim(x, 0),
            aten.sort(x),
            aten.chunk(x, 2),
        )
        return [type(result).__name__ for result in results]

    x = leaf(3, 3, grad=False)
    assert thunder.jit(program)(x) == program(x) == ["list", "list", "tuple", "tuple", "list"]


def test_a_write_through_a_view_is_seen():
    def program(x):
        y = x * 1
        aten.mul_.Scalar(aten.slice.Tensor(y, 0, 1, 3), 3.0)
        return y

    x = leaf(3, 3, grad=False)
    assert torch.equal(thunder.jit(program)(x), program(x))


def test_they_are_recorded_as_torchs_functions():
    compiled = thunder.jit(lambda x: aten.mm.default(x, x))
    compiled(leaf(3, 3, grad=False))
    assert [b.sym.id for b in thunder.last_traces(compiled)[0].bound_symbols][:1] == ["torch.mm"]
