"""Numbers of NumPy in programs: made of numbers, and in arithmetic with tensors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import thunder

NUMBERS = [np.float64(2), np.float32(1.3), np.int64(2), np.bool_(True)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64])
@pytest.mark.parametrize("number", NUMBERS, ids=lambda x: type(x).__name__)
def test_arithmetic_with_a_number_of_numpy_gives_eagers_types_and_values(number: Any, dtype: Any) -> None:
    x = torch.tensor([[1, 2, 3], [4, 1, 4]]).to(dtype)

    def program(x: torch.Tensor) -> list[torch.Tensor]:
        left = [
            x + number,
            x - number,
            x * number,
            x / number,
            x**number,
            x // number,
            x % number,
            x < number,
        ]
        return [*left, number + x, number - x, number * x, number / x, number**x]

    torch.testing.assert_close(thunder.jit(program)(x), program(x))


def test_functions_of_numpy_make_numbers_of_sizes() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        y = x.view(np.prod(x.shape)) / np.float64(2) * np.int64(3)
        return y * np.max([1, x.shape[0]]) + float(np.mean(x.shape))

    compiled = thunder.jit(program)
    for shape in ((2, 3), (3, 2), (2, 3)):
        torch.testing.assert_close(compiled(torch.ones(shape)), program(torch.ones(shape)))
    assert thunder.cache_misses(compiled) == 2
