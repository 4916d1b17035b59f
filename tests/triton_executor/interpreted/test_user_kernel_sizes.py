"""Launches of users' kernels under symbolic sizes: numbers, grids, memory and constants of sizes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import triton
from hypothesis import given, settings
from hypothesis import strategies as st

import thunder
import thunder_triton
from sweeping import one_in
from thunder.plugins import get_manager
from triton_executor.interpreted import user_kernels
from triton_executor.interpreted.user_kernels import Scale, added, scaled, tuned, with_heuristic

CACHES = ("symbolic values", "automatic")


@pytest.fixture(scope="module", autouse=True)
def _plugin() -> Iterator[None]:
    with get_manager().temporary(thunder_triton, name="triton-under-test"):
        yield


def _numel(x: torch.Tensor) -> Any:
    return added(x.sin(), x) * 2


def _rows_by_strides(x: torch.Tensor) -> Any:
    return scaled(user_kernels.rows, x.exp(), EVEN=False, BLOCK=16) + x.shape[1]


def _a_part(x: torch.Tensor) -> Any:
    memory = x * 1
    user_kernels.rows[(x.shape[0],)](
        x, x.stride(0), memory[:, 1:], memory.stride(0), x.shape[1] - 1, 5.0, False, BLOCK=16
    )
    return memory


def _itself(x: torch.Tensor) -> Any:
    y = x.clone()
    user_kernels.add[(triton.cdiv(y.numel(), 8),)](y, y, y, y.numel(), BLOCK=8)
    return y + 1, x


def _argument(x: torch.Tensor) -> Any:
    user_kernels.add[(triton.cdiv(x.numel(), 8),)](x, x, x, x.numel(), BLOCK=8)
    return x + 1


def _block_of_a_size(x: torch.Tensor) -> Any:
    return scaled(user_kernels.rows, x, EVEN=False, BLOCK=triton.next_power_of_2(x.shape[1]))


def _heuristics(x: torch.Tensor) -> Any:
    return scaled(with_heuristic, x * 1, BLOCK=16), scaled(tuned, x * 1)


def _other_memory(x: torch.Tensor) -> Any:
    out = torch.empty(x.shape[1], x.shape[0] * 2, dtype=x.dtype)
    user_kernels.add[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, x, out, x.numel(), BLOCK=16)
    return out.flatten()[: x.numel()]


PROGRAMS = (
    *(_numel, _rows_by_strides, _a_part, _itself, _argument),
    *(_block_of_a_size, _heuristics, _other_memory),
)
SIZES = st.lists(st.tuples(st.integers(0, 9), st.integers(1, 16)), min_size=4, max_size=8)


@pytest.mark.parametrize(("program", "cache"), one_in(3, [(p, c) for p in PROGRAMS for c in CACHES]))
@settings(max_examples=3, deadline=None)
@given(sizes=SIZES)
def test_results_are_eagers_for_every_size(
    program: Callable[[torch.Tensor], Any], cache: str, sizes: list[tuple[int, int]]
):
    compiled = thunder.jit(program, cache=cache, executors=[])
    for number, shape in enumerate(sizes):
        x = torch.randn(shape, generator=torch.Generator().manual_seed(number))
        inputs = x.clone(), x.clone()
        result, expected = compiled(inputs[0]), program(inputs[1])
        torch.testing.assert_close(result, expected)
        assert torch.equal(*inputs)


def test_one_program_serves_all_sizes():
    compiled = thunder.jit(_numel, cache="symbolic values", executors=[])
    for shape in ((3, 4), (5, 7), (2, 40), (100, 3)):
        x = torch.randn(shape)
        torch.testing.assert_close(compiled(x), _numel(x))
    assert thunder.cache_misses(compiled) == 1


def test_a_constant_of_a_size_makes_a_program_for_each():
    compiled = thunder.jit(_block_of_a_size, cache="symbolic values", executors=[])
    for shape in ((3, 4), (5, 4), (3, 7), (6, 7)):
        x = torch.randn(shape)
        torch.testing.assert_close(compiled(x), x * 2)
    assert thunder.cache_misses(compiled) == 2


@pytest.mark.parametrize("cache", CACHES)
def test_a_constant_is_the_number_of_each_call(cache: str):
    def program(x: torch.Tensor, block: int) -> Any:
        return scaled(user_kernels.rows, x, EVEN=False, BLOCK=block), scaled(
            user_kernels.rows, x, EVEN=True, BLOCK=x.shape[1]
        )

    compiled = thunder.jit(program, cache=cache, executors=[])
    for size, block in ((4, 8), (4, 16), (8, 8), (8, 32), (16, 16)):
        x = torch.randn(3, size)
        for result in compiled(x, block):
            torch.testing.assert_close(result, x * 2)


@pytest.mark.parametrize("cache", CACHES)
def test_a_float_is_an_argument_of_a_kernel_or_its_constant(cache: str):
    def program(x: torch.Tensor, scale: float, factor: float) -> Any:
        out, other = torch.empty_like(x), torch.empty_like(x)
        user_kernels.rows[(x.shape[0],)](x, 4, out, 4, 4, scale, False, BLOCK=4)
        user_kernels.times[(1,)](x, other, 12, FACTOR=factor * 2, BLOCK=16)
        return out, other

    compiled = thunder.jit(program, cache=cache, executors=[], recompile_limit=None)
    for scale, factor in ((0.5, 1.5), (0.25, 1.5), (3.0, 1.5), (3.0, 0.75), (-1.0, 0.75)):
        x = torch.randn(3, 4)
        ours = compiled(x, scale, factor)
        torch.testing.assert_close(ours, (x * scale, x * (factor * 2)))
    assert thunder.cache_misses(compiled) <= 4


@pytest.mark.parametrize("cache", CACHES)
def test_layouts_are_of_each_call(cache: str):
    def program(x: torch.Tensor) -> Any:
        return added(x.contiguous() + 1, x.contiguous()), scaled(
            user_kernels.rows, x.T.contiguous(), EVEN=False, BLOCK=16
        )

    compiled = thunder.jit(program, cache=cache, executors=[])
    for x in (
        torch.randn(4, 6),
        torch.randn(7, 5).T,
        torch.randn(12, 9)[::2, ::3],
        torch.randn(3).expand(4, 3),
    ):
        for result, right in zip(compiled(x), program(x), strict=True):
            torch.testing.assert_close(result, right)
            assert result.stride() == right.stride()


@pytest.mark.parametrize("cache", CACHES)
def test_gradients_are_those_of_the_function_for_every_size(cache: str):
    def program(x: torch.Tensor) -> torch.Tensor:
        return Scale.apply(x.sin(), 3.0) * x.shape[0]

    compiled = thunder.jit(program, cache=cache, executors=[])
    for shape in ((3, 4), (5, 7), (1, 16), (2, 2)):
        x = torch.randn(shape, requires_grad=True)
        g = torch.randn(shape)
        (found,) = torch.autograd.grad(compiled(x), x, g)
        (right,) = torch.autograd.grad(program(x), x, g)
        torch.testing.assert_close(found, right)
