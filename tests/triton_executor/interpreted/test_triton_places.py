"""Elements at computed places, extrema with their places and cumulative sums in generated kernels."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import thunder
from thunder_triton.executor import ex
from triton_executor.interpreted.generated_inputs import layout, tensors

BOUNDS = {torch.float64: 1e-12, torch.float32: 1e-5, torch.bfloat16: 4e-2, torch.float16: 5e-3}


def refusals(compiled: Any) -> list[str]:
    rows = thunder.explain(compiled).rows
    return [r.code for row in rows for r in row.refusals if r.executor == "triton"]


def assert_fused(program: Callable[..., Any], *inputs: torch.Tensor, bound: float = 0.0) -> None:
    """Compare a program with eager's in float64, and find that kernels compute each operator of it."""
    compiled = thunder.jit(program, executors=[ex])
    results, eager = compiled(*inputs), program(*inputs)
    wide = program(*(x.double() if x.is_floating_point() else x for x in inputs))
    for result, same, reference in zip(results, eager, wide, strict=True):
        assert (result.shape, result.dtype, layout(result)) == (same.shape, same.dtype, layout(same))
        if result.is_floating_point():
            torch.testing.assert_close(result.double(), reference.double(), rtol=bound, atol=bound)
        else:
            assert torch.equal(result, same)
    if results[0].numel():
        assert "triton" in {row.claimed_by for row in thunder.explain(compiled).rows}
        assert not set(refusals(compiled)) - {"not-fused"}


SHAPES = st.lists(st.integers(1, 9), min_size=1, max_size=3)


@settings(max_examples=6, deadline=None)
@given(st.data(), SHAPES, st.sampled_from(sorted(BOUNDS, key=str)))
def test_extrema_and_their_places(data: st.DataObject, shape: list[int], dtype: torch.dtype):
    x = data.draw(tensors(shape, dtype)).round()  # with equal elements
    if data.draw(st.booleans()):
        x = x.masked_fill(x == 1, math.nan)
    dim = data.draw(st.integers(-len(shape), len(shape) - 1))
    keepdim = data.draw(st.booleans())

    def program(x: torch.Tensor) -> Any:
        (largest, first), (least, last) = (x * 2).max(dim, keepdim=keepdim), x.min(dim, keepdim)
        return largest, first, least - 1, last

    results, eager = thunder.jit(program, executors=[ex])(x), program(x)
    for result, right in zip(results, eager, strict=True):
        torch.testing.assert_close(result, right, rtol=0, atol=0, equal_nan=True)


@settings(max_examples=6, deadline=None)
@given(st.data(), SHAPES, st.sampled_from(sorted(BOUNDS, key=str)))
def test_gathered_elements(data: st.DataObject, shape: list[int], dtype: torch.dtype):
    x = data.draw(tensors(shape, dtype))
    dim = data.draw(st.integers(0, len(shape) - 1))
    size = shape[dim]
    sizes = [
        data.draw(st.integers(1, n)) if d != dim else data.draw(st.integers(1, 12))
        for d, n in enumerate(shape)
    ]
    index = torch.randint(0, size, sizes, generator=torch.Generator().manual_seed(len(shape)))
    vector = index.flatten()[: data.draw(st.integers(1, 9))]

    def program(x: torch.Tensor, index: torch.Tensor, vector: torch.Tensor) -> Any:
        y = x * 0.5
        normal = y - y.mean(dim, keepdim=True)
        return normal.gather(dim, index) + 1, y.index_select(dim, vector.flip(0)), (index + 1) * 2

    bound = BOUNDS[dtype]
    assert_fused(program, x, index, vector, bound=bound)


@settings(max_examples=6, deadline=None)
@given(st.data(), SHAPES, st.sampled_from(sorted(BOUNDS, key=str)))
def test_cumulative_sums_and_products(data: st.DataObject, shape: list[int], dtype: torch.dtype):
    x = data.draw(tensors(shape, dtype))
    dim = data.draw(st.integers(-len(shape), len(shape) - 1))

    def program(x: torch.Tensor) -> Any:
        sums = (x + 1).cumsum(dim)
        return (
            sums * 0.5,
            (x / 2).cumprod(dim) - x.mean(dim, keepdim=True),
            (x > 0).cumsum(dim) - 1,
            sums.flip(-1) + x,
            (x * 1).reshape(-1).cumsum(0).sum() + 1,
        )

    assert_fused(program, x, bound=4 * BOUNDS[dtype] * (1 + x.double().abs().sum().item()))


@pytest.mark.parametrize("dim", [0, 1])
def test_long_rows_are_scanned_as_a_whole_or_by_torch(dim: int):
    x = torch.randn((2, 8192) if dim else (8192, 2))
    compiled = thunder.jit(lambda x: (x * 2).cumsum(dim) + 1, executors=[ex])
    expected = (x.double() * 2).cumsum(dim) + 1
    torch.testing.assert_close(compiled(x).double(), expected, rtol=1e-4, atol=1e-3)
    assert not refusals(compiled)
    compiled(torch.randn((2, 8193) if dim else (8193, 2)))
    assert "length" in refusals(compiled)


def test_a_scan_of_a_leading_dimension_reads_neighbouring_rows():
    compiled = thunder.jit(lambda x: (x * 2).cumsum(0) + 1, executors=[ex])
    compiled(torch.randn(64, 256))
    (fusion,) = [b for b in thunder.last_traces(compiled)[-1].bound_symbols if b.sym.is_fusion]
    (kernel,) = fusion.sym.python_impl.program(((256, 1),)).kernels
    assert (kernel.blocks.rows, kernel.blocks.length) == (64, 64)


def test_a_place_in_a_count_that_is_the_same_for_all_elements_is_read():
    def program(index: torch.Tensor) -> torch.Tensor:
        return torch.arange(9).index_select(0, index) * 2 + 1

    compiled = thunder.jit(program, executors=[ex])
    index = torch.tensor([7])
    assert torch.equal(compiled(index), program(index))


@pytest.mark.parametrize("place", [-1, 6, 2**40])
@pytest.mark.parametrize("count", [3, 33])
def test_a_place_outside_of_a_dimension_is_an_error(place: int, count: int):
    def program(x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
        return (x * 2).index_select(1, index) + 1

    compiled = thunder.jit(program, executors=[ex])
    index = torch.zeros(count, dtype=torch.int64)
    x = torch.randn(4, 6)
    torch.testing.assert_close(compiled(x, index), program(x, index))
    index[1] = place
    with pytest.raises((AssertionError, IndexError, RuntimeError), match="out of"):
        compiled(x, index)


def test_gradients_of_gathered_elements_and_extrema():
    def program(x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
        y = x.sin()
        largest = y.max(1, keepdim=True).values + y.min(0).values
        return (y.gather(1, index) * largest[:, :3]).sum() + y.cumsum(0).exp().sum() + y.cummax(1)[0].sum()

    x, index = torch.randn(5, 7, requires_grad=True), torch.randint(0, 7, (5, 3))
    wide = x.detach().double().requires_grad_()
    compiled = thunder.jit(program, executors=[ex])
    (found,) = torch.autograd.grad(compiled(x, index), x)
    (right,) = torch.autograd.grad(program(wide, index), wide)
    torch.testing.assert_close(found.double(), right, rtol=1e-4, atol=1e-4)
    claims = {row.symbol: row.claimed_by for row in thunder.explain(compiled).rows if row.trace == "backward"}
    assert {"ltorch.gather_backward", "torch.scatter_add"} <= set(claims)
    assert {name for name, executor in claims.items() if executor != "triton"} == {"prims.unpack_sequence"}


def test_the_scores_of_targets_are_one_read_of_the_logits():
    def program(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return torch.log_softmax(logits, -1).gather(-1, targets.unsqueeze(-1)).squeeze(-1) * -1

    compiled = thunder.jit(program, executors=[ex])
    logits, targets = torch.randn(6, 40), torch.randint(0, 40, (6,))
    torch.testing.assert_close(compiled(logits, targets), program(logits, targets))
    (fusion,) = [b for b in thunder.last_traces(compiled)[-1].bound_symbols if b.sym.is_fusion]
    assert fusion.header.count("@triton.jit") == 1
