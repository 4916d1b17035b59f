"""Which arguments have a gradient at all, and which results require one, as in eager."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import thunder

Fn = Callable[..., Any]


def _leaf(*shape: int) -> torch.Tensor:
    return torch.linspace(-1.0, 2.0, math.prod(shape)).reshape(shape).requires_grad_()


def _outcome(fn: Fn, inputs: list[torch.Tensor], cotangent: float = 1.0) -> list[Any]:
    """Return the result, whether it requires grad, and the gradients of the inputs."""
    copies = [x.detach().clone().requires_grad_() for x in inputs]
    result = fn(*copies)
    if result.requires_grad:
        result.backward(torch.full_like(result, cotangent))
    return [result.detach(), result.requires_grad, *(x.grad for x in copies)]


def _assert_as_eager(fn: Fn, *inputs: torch.Tensor, cotangent: float = 1.0) -> None:
    for cache in ("constant values", "symbolic values"):
        found = _outcome(thunder.jit(fn, cache=cache), list(inputs), cotangent)
        expected = _outcome(fn, list(inputs), cotangent)
        assert [type(x) for x in found] == [type(x) for x in expected], f"{found} instead of {expected}"
        for a, e in zip(found, expected, strict=True):
            if isinstance(e, torch.Tensor):
                torch.testing.assert_close(a, e, equal_nan=True)
            else:
                assert a == e


@pytest.mark.parametrize("shapes", [[(0,), (2, 3)], [(2, 3), (0,), (2, 1)], [(0,), (0,)], [(0,), (3,)]])
def test_what_cat_leaves_out_has_a_gradient_without_elements(shapes: list[tuple[int, ...]]) -> None:
    _assert_as_eager(lambda *x: torch.cat(x, -1), *(_leaf(*shape) for shape in shapes))


@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (0, 0), (2, 0, 3), (0, 2, 3), (2, 3)])
@pytest.mark.parametrize("order", ["fro", "nuc", 1, 2, math.inf])
def test_the_largest_of_no_numbers_is_a_constant(shape: tuple[int, ...], order: Any) -> None:
    _assert_as_eager(lambda x: torch.linalg.matrix_norm(x, order), _leaf(*shape))


@pytest.mark.parametrize("order", [-2, -math.inf])
def test_the_smallest_of_no_numbers_is_an_error(order: float) -> None:
    def norm(x):
        return torch.linalg.matrix_norm(x, order)

    for run in (norm, thunder.jit(norm)):
        with pytest.raises(IndexError, match="have non-zero size"):
            run(_leaf(0, 3))


@pytest.mark.parametrize("cotangent", [1.0, math.nan, math.inf])
@pytest.mark.parametrize("determinant", [4.0, -4.0])
def test_no_cotangent_passes_the_logarithm_of_a_negative_determinant(
    determinant: float, cotangent: float
) -> None:
    matrix = torch.tensor([[1.0, 0.0], [3.0, determinant]])
    _assert_as_eager(torch.logdet, matrix, cotangent=cotangent)
    _assert_as_eager(torch.logdet, torch.stack([matrix, torch.eye(2)]), cotangent=cotangent)


LEFT_OUT: dict[str, tuple[Fn, list[torch.Tensor]]] = {
    "vector norm": (lambda x: torch.linalg.vector_norm(x, 0), [_leaf(3, 4)]),
    "vector norm along": (lambda x: torch.linalg.vector_norm(x, 0, 1, True), [_leaf(3, 4)]),
    "norm": (lambda x: x.norm(0), [_leaf(3, 4)]),
    "linalg.norm": (lambda x: torch.linalg.norm(x, 0, 0), [_leaf(3, 4)]),
    "list of norms": (lambda x: torch._foreach_norm([x], 0)[0], [_leaf(3, 4)]),
    "distance": (lambda x: F.pairwise_distance(x, 2 * x, 0.0), [_leaf(3, 4)]),
    "ormqr": (torch.ormqr, [_leaf(0, 5, 5), _leaf(0, 5), _leaf(0, 5, 5)]),
    "householder": (torch.linalg.householder_product, [_leaf(0, 5, 5), _leaf(0, 5)]),
}


@pytest.mark.parametrize("name", LEFT_OUT)
def test_a_gradient_that_eager_leaves_out_is_zeros(name: str) -> None:
    fn, inputs = LEFT_OUT[name]
    value, requires_grad, *expected = _outcome(fn, inputs)
    assert requires_grad
    assert None in expected
    found_value, requires_grad, *found = _outcome(thunder.jit(fn), inputs)
    assert requires_grad
    torch.testing.assert_close(found_value, value)
    for g, e, x in zip(found, expected, inputs, strict=True):
        torch.testing.assert_close(g, torch.zeros_like(x) if e is None else e)
