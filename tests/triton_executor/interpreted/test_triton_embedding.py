"""The gradient of an embedding's weight, in Triton's interpreter, against eager in float64."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from torch.nn import functional as F

import thunder
from thunder_triton.kernel_executor import ex
from thunder_triton.kernels.embedding import LENGTH
from triton_executor.interpreted.generated_inputs import assert_close_to_float64, claimed, tensors

#: dtype → largest error, relative to the largest value: one rounding of a sum in float32
BOUNDS = {torch.float64: 1e-14, torch.float32: 1e-6, torch.float16: 2**-11, torch.bfloat16: 2**-8}


@st.composite
def calls(draw: st.DrawFn) -> tuple[list[Any], int | None]:
    """Draw a weight, indices of which some are frequent, and the index of padding."""
    rows, width = draw(st.integers(1, 9)), draw(st.sampled_from((1, 3, 16, 600)))
    weight = draw(tensors((rows, width), draw(st.sampled_from(list(BOUNDS))))).detach().requires_grad_()
    count = draw(st.sampled_from((1, 5, LENGTH - 1, LENGTH, LENGTH + 1, 2 * LENGTH, 4 * LENGTH + 3)))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**16)))
    chosen = draw(st.integers(1, rows))
    indices = torch.randint(0, chosen, (count,), generator=generator)
    indices = indices.to(draw(st.sampled_from((torch.int64, torch.int32))))
    if count % 2 == 1 and draw(st.booleans()):
        indices = indices.expand(2, count).t()
    return [indices, weight], draw(st.sampled_from((None, 0, rows - 1, -1)))


def check(call: tuple[list[Any], int | None]) -> None:
    inputs, padding = call
    compiled = assert_close_to_float64(
        lambda i, w: F.embedding(i, w, padding_idx=padding), inputs, BOUNDS[inputs[1].dtype]
    )
    assert claimed(compiled) == ["ltorch.embedding_dense_backward"]


@given(calls())
@settings(max_examples=8, deadline=None, derandomize=True, phases=[Phase.generate])
def test_gradients_are_those_of_float64(call: tuple[list[Any], int | None]):
    check(call)


@pytest.mark.sweep
@given(calls())
@settings(max_examples=150, deadline=None)
def test_gradients_of_many_shapes_and_dtypes(call: tuple[list[Any], int | None]):
    check(call)


@pytest.mark.parametrize("frequent", [[0], [3], [0, 1], [1, 3], [0, 1, 2, 3]], ids=str)
def test_rows_whose_places_several_programs_share(frequent: list[int]):
    places = [row for row in frequent for _ in range(LENGTH + 5)]
    indices, weight = torch.tensor([2, *places]), torch.randn(5, 4, requires_grad=True)
    assert_close_to_float64(lambda i, w: F.embedding(i, w), [indices, weight], 1e-6)


def test_without_places_the_gradient_is_zero():
    weight = torch.randn(4, 3, requires_grad=True)
    compiled = thunder.jit(F.embedding, executors=[ex])
    compiled(torch.empty(0, dtype=torch.int64), weight).sum().backward()
    assert torch.equal(weight.grad, torch.zeros(4, 3))


def test_gradients_do_not_depend_on_the_order_of_programs():
    indices, weight = torch.zeros(200, dtype=torch.int64), torch.randn(2, 8, requires_grad=True)
    g = torch.randn(200, 8)
    compiled = thunder.jit(F.embedding, executors=[ex])
    first, second = (torch.autograd.grad(compiled(indices, weight), weight, g)[0] for _ in range(2))
    assert torch.equal(first, second)


def test_second_derivatives_are_torchs():
    indices, weight = torch.tensor([0, 2, 0]), torch.randn(3, 2, dtype=torch.float64, requires_grad=True)
    compiled = thunder.jit(lambda i, w: F.embedding(i, w).sin(), executors=[ex])
    assert torch.autograd.gradgradcheck(lambda w: compiled(indices, w), weight)


def test_frequencies_are_refused_with_the_reason():
    compiled = thunder.jit(lambda i, w: F.embedding(i, w, scale_grad_by_freq=True), executors=[ex])
    compiled(torch.tensor([1, 1]), torch.randn(3, 2, requires_grad=True)).sum().backward()
    assert "does not scale by frequencies" in str(thunder.explain(compiled).why_not("triton_kernels"))
    assert not claimed(compiled)
