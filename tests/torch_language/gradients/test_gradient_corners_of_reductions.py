"""Gradients of reductions, norms and distances at ties, zeros and infinities, and of nothing: as eager's."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import thunder
from torch_language.gradients.differentiated_samples import (
    check_gradients,
    is_differentiated_by_torch,
    sample_of,
)

pytestmark = pytest.mark.filterwarnings("ignore")  # torch's own, about degrees of freedom

NAN, INF = math.nan, math.inf
TIES = [[1.0, 3.0, 3.0], [2.0, 2.0, 2.0], [-1.0, -3.0, -3.0]]
WILD = [[NAN, 1.0, 2.0], [INF, -INF, INF], [0.0, 0.0, -0.0], [NAN, NAN, INF]]
ZEROS = [[0.0, 2.0, 3.0], [0.0, 0.0, 3.0], [1.0, 2.0, 3.0], [0.0, 0.0, 0.0]]

Fn = Callable[..., Any]

EXTREMA: dict[str, Fn] = {
    "amax": lambda x: torch.amax(x, 1),
    "amax of all": lambda x: torch.amax(x),
    "amin of two dimensions": lambda x: torch.amin(x, (-1, 0), True),
    "max": torch.max,
    "min": torch.min,
    "max along": lambda x: torch.max(x, -1).values,
    "min along, kept": lambda x: torch.min(x, 0, True),
    "aminmax": lambda x: torch.aminmax(x, dim=1),
    "aminmax of all": torch.aminmax,
    "aminmax, the larger alone": lambda x: torch.aminmax(x, dim=0, keepdim=True).max,
}

SUMS: dict[str, Fn] = {
    "sum": torch.sum,
    "sum of two dimensions": lambda x: torch.sum(x, (-1, 0)),
    "nansum": lambda x: torch.nansum(x, 1),
    "mean": lambda x: x.mean(0, keepdim=True),
    "nanmean": lambda x: torch.nanmean(x, 1),
    "prod": torch.prod,
    "prod along": lambda x: torch.prod(x, -1),
    "prod along, kept": lambda x: torch.prod(x, 0, True),
    "logsumexp": lambda x: torch.logsumexp(x, 1),
    "logsumexp of all": lambda x: torch.logsumexp(x, (0, 1), True),
}

MOMENTS: dict[str, Fn] = {
    "var": lambda x: torch.var(x, 1),
    "var of all": torch.var,
    "var without degrees of freedom": lambda x: torch.var(x, 1, correction=3),
    "var with fewer than none": lambda x: torch.var(x, 1, correction=5),
    "std": lambda x: torch.std(x, -1, keepdim=True),
    "std of all": lambda x: torch.std(x, correction=0),
    "var_mean": lambda x: torch.var_mean(x, 1),
    "the mean of var_mean alone": lambda x: torch.var_mean(x, 1)[1],
    "std_mean": lambda x: torch.std_mean(x, (0, 1)),
    "the deviation of std_mean alone": lambda x: torch.std_mean(x, 0)[0],
}

ORDERS = [0, 0.5, 1, 1.5, 2, 3, INF, -INF, -1]


def _differentiable(values: Any, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    return torch.as_tensor(values, dtype=dtype).requires_grad_()


@pytest.mark.parametrize("values", [TIES, WILD], ids=["ties", "wild"])
@pytest.mark.parametrize("name", EXTREMA)
def test_equal_extrema_share_as_in_eager(name: str, values: Any) -> None:
    if name.startswith("aminmax") and not is_differentiated_by_torch("aminmax"):
        pytest.skip("this torch has no gradient of it")
    assert check_gradients(sample_of(EXTREMA[name], _differentiable(values)))


@pytest.mark.parametrize("values", [ZEROS, [[]], torch.empty(0, 3)], ids=["zeros", "1x0", "0x3"])
@pytest.mark.parametrize("name", SUMS)
def test_sums_and_products(name: str, values: Any) -> None:
    assert check_gradients(sample_of(SUMS[name], _differentiable(values)))


@pytest.mark.parametrize("name", [name for name in SUMS if name != "prod"])
def test_sums_and_products_that_are_not_finite(name: str) -> None:
    """Of the product of all elements, eager says 0 if two of them are 0, whatever the others are."""
    assert check_gradients(sample_of(SUMS[name], _differentiable(WILD)))


@pytest.mark.parametrize("name", ["prod", "prod along", "prod along, kept"])
def test_second_derivatives_of_products_with_zeros(name: str) -> None:
    assert check_gradients(sample_of(SUMS[name], _differentiable(ZEROS)), second=True)


@pytest.mark.parametrize("name", MOMENTS)
def test_moments_where_nothing_varies(name: str) -> None:
    assert check_gradients(sample_of(MOMENTS[name], _differentiable(TIES)))


@pytest.mark.parametrize("name", [*SUMS, *MOMENTS, *EXTREMA])
def test_reductions_of_a_number(name: str) -> None:
    fn = {**SUMS, **MOMENTS, **EXTREMA}[name]
    sample = sample_of(fn, _differentiable(2.5))
    check_gradients(sample)  # eager refuses those that name two dimensions


@pytest.mark.parametrize("ord", ORDERS)
@pytest.mark.parametrize("values", [ZEROS, TIES], ids=["zeros", "ties"])
def test_norms_at_zero_and_at_ties(ord: float, values: Any) -> None:
    for dim in (None, 1, (0, 1)):
        x = _differentiable(values)
        assert check_gradients(sample_of(lambda x, d=dim: torch.linalg.vector_norm(x, ord, d), x))
        assert check_gradients(sample_of(lambda x, d=dim: torch.norm(x, ord, d, True), x))


@pytest.mark.parametrize("p", [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, INF])
def test_distances_of_equal_points(p: float) -> None:
    a = _differentiable([[1.0, 2.0], [3.0, 4.0], [0.0, 0.0]])
    b = _differentiable([[1.0, 2.0], [3.0, 5.0], [0.0, 0.0]])
    assert check_gradients(sample_of(lambda x, y: torch.cdist(x, y, p), a, b))
    if p:  # of order 0 eager has no gradient
        assert check_gradients(sample_of(lambda x, y: torch.dist(x, y, p), a, b))
        assert check_gradients(sample_of(lambda x, y: torch.dist(x, x, p), a, b))
    assert check_gradients(sample_of(lambda x, y: F.pairwise_distance(x, y, p, 0.0), a, b))


def test_distances_of_many_points_by_a_product_of_matrices() -> None:
    a, b = (_differentiable(torch.randn(2, n, 3)) for n in (27, 30))
    assert check_gradients(sample_of(torch.cdist, a, b))


@pytest.mark.parametrize("p", [1.0, 1.5, 2.0, 3.0])
def test_second_derivatives_of_distances_that_eager_does_not_have(p: float) -> None:
    torch.manual_seed(0)
    a, b = (_differentiable(torch.randn(n, 3)) for n in (2, 4))
    assert torch.autograd.gradgradcheck(thunder.jit(lambda x, y: torch.cdist(x, y, p)), (a, b))


def test_cosine_similarity_of_zeros_and_of_broadcast_vectors() -> None:
    a, b = _differentiable(ZEROS), _differentiable([[1.0, -2.0, 0.5]])
    assert check_gradients(sample_of(F.cosine_similarity, a, b))
    assert check_gradients(sample_of(lambda x, y: F.cosine_similarity(x, y, 0, 10.0), a, a))


@pytest.mark.parametrize("p", [1.0, 2.0, 3.0])
def test_renorm_of_zeros(p: float) -> None:
    assert check_gradients(sample_of(lambda x: torch.renorm(x, p, 0, 2.0), _differentiable(ZEROS)))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_gradients_have_the_dtype_of_the_input_whatever_the_sum_has(dtype: torch.dtype) -> None:
    x = torch.randn(4, 5).to(dtype).requires_grad_()
    summing: list[Fn] = [torch.sum, torch.mean, torch.prod, torch.nansum]
    others: list[Fn] = [torch.var, torch.std, torch.amax, torch.linalg.vector_norm, torch.max]
    for fn in summing:
        assert check_gradients(sample_of(lambda x, fn=fn: fn(x, dtype=torch.float64), x))
    for fn in others:
        assert check_gradients(sample_of(fn, x))
