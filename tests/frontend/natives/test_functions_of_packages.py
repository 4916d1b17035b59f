"""Functions in C of other packages, with tensors and arrays, and operators of Python on arrays of tensors."""

from __future__ import annotations

import operator

import numpy as np
import pytest
import torch
from torch.testing import assert_close

import thunder
from thunder import UnsupportedProgram

optimize = pytest.importorskip("scipy.optimize")
ndimage = pytest.importorskip("scipy.ndimage")
lsap = pytest.importorskip("scipy.optimize._lsap")


def inputs(count: int = 4, *shape: int) -> list[torch.Tensor]:
    """Tensors with different values."""
    generator = torch.Generator().manual_seed(0)
    return [torch.rand(*(shape or (4, 2)), generator=generator) for _ in range(count)]


def matched(x):
    cost = torch.cdist(x, x.flip(0))
    rows, columns = optimize.linear_sum_assignment(cost.detach().numpy())
    return cost[torch.as_tensor(rows), torch.as_tensor(columns)].sum()


def matched_batch(x):
    """The matching of DETR: the function in C is passed a tensor."""
    cost = torch.cdist(x, x.flip(0))
    indices = [optimize.linear_sum_assignment(part.detach()) for part in cost.split(2)]
    return sum(cost[torch.as_tensor(i)][:, torch.as_tensor(j)].sum() for i, j in indices)


def matched_of_range(x):
    rows, columns = optimize.linear_sum_assignment(cost_matrix=x.detach().numpy(), maximize=True)
    return x.sum() * (torch.from_numpy(columns) > torch.from_numpy(rows)).sum()


@pytest.mark.parametrize("program", [matched, matched_batch, matched_of_range])
def test_a_function_in_c_runs_in_each_call_and_the_rest_is_differentiated(program):
    compiled = thunder.jit(program)
    for x in inputs():
        first, second = x.clone().requires_grad_(), x.clone().requires_grad_()
        expected, found = program(first), compiled(second)
        assert_close(found, expected)
        expected.backward()
        found.backward()
        assert_close(second.grad, first.grad)
    assert thunder.cache_misses(compiled) == 1


def test_arrays_that_a_function_in_c_returns_are_arrays():
    def program(x):
        rows, columns = optimize.linear_sum_assignment(x.numpy())
        return rows, columns.dtype == np.int64, [int(i) for i in columns]

    compiled = thunder.jit(program)
    for x in inputs():
        (rows, *rest), (expected, *others) = compiled(x), program(x)
        np.testing.assert_array_equal(rows, expected)
        assert (rows.dtype, rest) == (expected.dtype, others)


def test_an_array_to_which_a_function_in_c_writes_has_what_it_wrote():
    def program(x):
        distances = ndimage.distance_transform_edt(x.numpy() > 0.5)
        labels, count = ndimage.label(x.numpy() > 0.5)
        return torch.from_numpy(distances) * x, torch.as_tensor(labels), count

    compiled = thunder.jit(program)
    for x in inputs(3, 5, 5):
        assert_close(compiled(x), program(x))
    assert thunder.compile_stats(compiled).runs_by_python == 0


def test_an_array_of_the_user_may_change_between_calls():
    def program(x, cost):
        rows, columns = optimize.linear_sum_assignment(cost)
        return x[torch.from_numpy(columns)] + len(rows)

    compiled = thunder.jit(program)
    for cost in inputs(4, 4, 4):
        assert_close(compiled(torch.arange(4.0), cost.numpy()), program(torch.arange(4.0), cost.numpy()))
    assert thunder.cache_misses(compiled) == 1


def test_a_function_in_c_that_raises_raises():
    def program(x):
        try:
            return torch.from_numpy(optimize.linear_sum_assignment(x.numpy())[0])
        except ValueError as error:
            return str(error), x * 2

    compiled = thunder.jit(program)
    for x in (torch.full((2, 2), float("nan")), torch.eye(2), torch.ones(2)):
        assert str(compiled(x)) == str(program(x))


def test_a_function_in_c_that_writes_to_the_memory_of_a_tensor_is_refused():
    functions = pytest.importorskip("scipy.ndimage._nd_image")

    def program(x, features):
        functions.euclidean_feature_transform(np.ones((4, 2), np.int8), None, features.numpy())
        return x + features

    with pytest.raises(UnsupportedProgram, match="writes to an argument that a tensor"):
        thunder.jit(program)(torch.ones(2, 4, 2), torch.ones(2, 4, 2, dtype=torch.int32))


OPERATORS = {
    "gt": lambda a: a > 0.5,
    "lt, reflected": lambda a: 0.5 < a,  # noqa: SIM300
    "eq": lambda a: a == a[0],
    "neg": operator.neg,
    "abs": abs,
    "matmul": lambda a: a.T @ a,
    "sub, reflected": lambda a: 1 - a,
    "pow": lambda a: a**2,
    "in": lambda a: a[0, 0] in a,
    "dtype": lambda a: a.dtype == np.float32,
}


@pytest.mark.parametrize("name", OPERATORS)
def test_an_operator_of_python_on_an_array_of_a_tensor_is_computed(name):
    def program(x):
        return torch.as_tensor(OPERATORS[name](x.numpy())), x * 2

    compiled = thunder.jit(program)
    for x in inputs(3):
        assert_close(compiled(x), program(x))


def test_an_opaque_callable_is_passed_arrays():
    def doubled(a, b):
        return torch.from_numpy(a * 2 + b)

    def program(x, own):
        return (
            thunder.opaque(doubled)(x.numpy(), own) + thunder.opaque(doubled)(np.ones(2), np.arange(2)).sum()
        )

    own, compiled = np.arange(2.0, dtype=np.float32), thunder.jit(program)
    for x in inputs(3):
        assert_close(compiled(x, own), program(x, own))
        own += 1
    assert thunder.cache_misses(compiled) == 1
