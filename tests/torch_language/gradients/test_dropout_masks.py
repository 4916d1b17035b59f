"""Dropout of elements on a CPU: eager's bits in forward and backward, with a byte saved for each element."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

import thunder

LAYOUTS = {
    "contiguous": lambda: torch.randn(5, 7),
    "transposed": lambda: torch.randn(64, 33).t(),
    "channels last": lambda: torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last),
    "without elements": lambda: torch.randn(3, 0),
    "every second": lambda: torch.randn(8, 8)[:, ::2],
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_bits_are_eagers_whatever_layout_and_values(layout: str, dtype: torch.dtype) -> None:
    x = LAYOUTS[layout]().to(dtype)
    for i, value in enumerate((float("nan"), float("inf"), -0.0)[: x.shape[1]]):
        x[0, i] = value
    for p in (0.1, 1 / 3, 0.9):
        outcomes = []
        for function in (F.dropout, thunder.jit(F.dropout)):
            torch.manual_seed(0)
            operand = x.detach().requires_grad_()
            result = function(operand, p, True)
            result.backward(torch.full_like(result, 0.7))
            outcomes.append((result, operand.grad, torch.get_rng_state()))
        (expected, *others), (found, *found_others) = outcomes
        torch.testing.assert_close(found, expected, rtol=0, atol=0, equal_nan=True)
        torch.testing.assert_close(found_others, others, rtol=0, atol=0, equal_nan=True)
        assert found.stride() == expected.stride()
        assert torch.equal(torch.signbit(found), torch.signbit(expected))


def test_a_byte_is_saved_for_each_element() -> None:
    x = torch.randn(30, 10, requires_grad=True)
    y = thunder.jit(lambda x: F.dropout(x, 0.25))(x)
    assert [(t.dtype, tuple(t.shape)) for t in y.grad_fn.saved_tensors] == [(torch.bool, (30, 10))]


def test_second_derivatives_are_eagers() -> None:
    x = torch.randn(6, 5, dtype=torch.float64, requires_grad=True)
    found = []
    for function in (F.dropout, thunder.jit(F.dropout)):
        torch.manual_seed(3)
        (g,) = torch.autograd.grad((function(x, 0.4) ** 3).sum(), x, create_graph=True)
        found.append(torch.autograd.grad((g * g).sum(), x)[0])
    torch.testing.assert_close(*found)
