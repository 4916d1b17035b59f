"""Numbers of NumPy in programs: made of numbers, and in arithmetic with tensors."""

from __future__ import annotations

import math
import warnings
from types import SimpleNamespace
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


def test_numbers_of_numpy_in_attributes_are_numbers() -> None:
    holder = SimpleNamespace(margin=np.radians(28.6), count=np.int64(2), dtype=np.dtype("float32"))

    def program(x: torch.Tensor) -> Any:
        y = x * (math.pi - holder.margin) + math.cos(holder.margin) + divmod(holder.count, 2)[1]
        if holder.count > 1:
            y = y + sum(range(holder.count)) * -holder.count.item()
        table = {2: 1.0, 3: 2.0}[holder.count]
        return y * table, f"{holder.margin:.2f}", torch.from_numpy(np.ones(2, holder.dtype))

    compiled = thunder.jit(program)
    for count in (2, 3, 2):
        holder.count = np.int64(count)
        found, expected = compiled(torch.ones(2)), program(torch.ones(2))
        assert found[1] == expected[1]
        torch.testing.assert_close(found[::2], expected[::2])
    assert thunder.cache_misses(compiled) == 2


def test_the_text_of_an_array_depends_on_the_print_options() -> None:
    compiled = thunder.jit(lambda x: (x, str(np.array([0.123456789]))))
    first = compiled(torch.ones(1))[1]
    with np.printoptions(precision=2):
        assert compiled(torch.ones(1))[1] == "[0.12]" != first


def test_numpy_warns_while_the_program_is_compiled() -> None:
    compiled = thunder.jit(lambda x: x * np.log(np.zeros(1))[0])
    with pytest.warns(RuntimeWarning, match="divide by zero"):
        compiled(torch.ones(1))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        compiled(torch.ones(1))


def test_numbers_of_numpy_that_an_object_holds_are_guarded_by_value_and_type() -> None:
    class Margin(torch.nn.Module):
        margin: Any = np.radians(28.6)

        def forward(self, x: torch.Tensor) -> Any:
            m = self.margin
            return (
                x * (np.deg2rad(180) - m) + m * np.sin(m),
                m - 1,
                2 - m,
                -m,
                abs(m),
                m < np.float64(1),
                m**2,
            )

    module = Margin()
    compiled = thunder.jit(module)
    for number in (np.radians(28.6), np.float64(0.25), np.float32(0.25), 0.25, np.float64(0.25)):
        module.margin = number
        expected, results = module(torch.ones(2)), compiled(torch.ones(2))
        torch.testing.assert_close(results[0], expected[0])
        assert [(type(r), r) for r in results[1:]] == [(type(r), r) for r in expected[1:]]
    assert thunder.cache_misses(compiled) == 4


def test_a_number_whose_imaginary_part_torch_drops_is_refused() -> None:
    compiled = thunder.jit(lambda x, number: x * number)
    assert compiled(torch.ones(1), np.complex128(1j)).item() == 1j
    with pytest.raises(thunder.UnsupportedProgram, match="imaginary part torch drops"):
        compiled(torch.ones(1), np.complex64(1j))


#: functions with a parameter that is a number
TAKING_NUMBERS = {
    "full": lambda x, v: torch.full((2,), v),
    "full_like": lambda x, v: torch.full_like(x, v),
    "new_full": lambda x, v: x.new_full((2,), v),
    "alpha": lambda x, v: torch.add(x / 2, x / 2, alpha=v),
    "mul": lambda x, v: torch.mul(x, v),
    "add of truth values": lambda x, v: torch.add(x > 1, v),
    "where": lambda x, v: torch.where(x > 1, x, v),
    "clamp": lambda x, v: x.clamp(max=v),
    "arange": lambda x, v: torch.arange(v),
    "rsub": lambda x, v: torch.rsub(x, v),
    "pow": lambda x, v: torch.pow(x, v),
    "lt": lambda x, v: torch.lt(x, v),
    "masked_fill": lambda x, v: x.masked_fill(x > 1, v),
    "tensor": lambda x, v: torch.tensor(v),
    "pad": lambda x, v: torch.nn.functional.pad(x, (1, 1), value=v),
}


@pytest.mark.filterwarnings("ignore::numpy.exceptions.ComplexWarning")
@pytest.mark.parametrize("number", [*NUMBERS, np.uint8(3), np.complex64(1 + 2j)], ids=lambda x: str(x.dtype))
@pytest.mark.parametrize("name", TAKING_NUMBERS)
def test_a_function_takes_a_number_of_numpy_for_what_torch_does(name: str, number: Any) -> None:
    program, x = TAKING_NUMBERS[name], torch.arange(4)
    result, expected = thunder.jit(program, executors=["torch"])(x, number), program(x, number)
    torch.testing.assert_close(result, expected, rtol=0, atol=0)
