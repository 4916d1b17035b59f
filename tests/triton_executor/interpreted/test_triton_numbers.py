"""Numbers beside tensors in generated kernels: signs of zeros, ranges of integers, exponents."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import thunder
from thunder_triton.executor import ex

FLOATS = torch.tensor([float("-inf"), -2.0, -0.0, 0.0, 0.25, 3.0])


def same_bits(result: torch.Tensor, expected: torch.Tensor) -> None:
    torch.testing.assert_close(result, expected, rtol=0, atol=0, equal_nan=True)
    numbers = ~expected.isnan()
    assert torch.equal(result.signbit()[numbers], expected.signbit()[numbers])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
def test_negative_zeros_and_roots_are_eagers(dtype: torch.dtype):
    def program(x: Any) -> Any:
        return (
            (x + 2) * -0.0,
            x.masked_fill(x > 0, -0.0) * 1,
            (x + 1) ** 0.5,
            torch.full_like(x, -0.0) * x.exp(),
        )

    x = FLOATS.to(dtype)
    compiled = thunder.jit(program, executors=[ex])
    for result, expected in zip(compiled(x), program(x), strict=True):
        same_bits(result, expected)
    assert any(row.claimed_by == "triton" for row in thunder.explain(compiled).rows)


def test_roots_of_infinity_and_zero_are_eagers():
    x = torch.tensor([float("-inf"), -0.0, 4.0])
    compiled = thunder.jit(lambda x: (x**0.5 * 2, x**-0.5 * 2), executors=[ex])
    for result, expected in zip(compiled(x), (x**0.5 * 2, x**-0.5 * 2), strict=True):
        same_bits(result, expected)
    assert any(row.claimed_by == "triton" for row in thunder.explain(compiled).rows)


@pytest.mark.parametrize(
    "program",
    [
        lambda x: x * 200 + 1,
        lambda x: (x < 300) & (x > -1),
        lambda x: (x - 300) ^ 5,
        lambda x: ~x + 3,
    ],
    ids=["arithmetic", "comparison", "difference", "not"],
)
@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8], ids=str)
def test_numbers_out_of_the_range_of_integers(program: Callable[..., Any], dtype: torch.dtype):
    x = torch.arange(6, dtype=dtype) * 20
    result = thunder.jit(program, executors=[ex])(x)
    torch.testing.assert_close(result, program(x), rtol=0, atol=0)
