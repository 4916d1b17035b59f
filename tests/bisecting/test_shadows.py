"""The other computations: exact ones, and those with drawn rounding errors; reproducers' tensors."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from sweeping import one_in
from thunder_bisect.judgement import expected_of, fault_of
from thunder_bisect.reproducers import _UNPACK, tensor_text
from thunder_bisect.shadows import Shadows

PROGRAMS: dict[str, Callable[[Tensor], Tensor]] = {
    "product": lambda x: x @ x.T / 7,
    "views": lambda x: x.T[1:].reshape(-1)[::2].exp(),
    "writes": lambda x: (y := x * 3, y[0].add_(1), y.mul_(y))[2],
    "reductions": lambda x: x.softmax(-1).cumsum(0).mean(0) - x.var(0),
    "casts": lambda x: (x.bfloat16() / 3).float() + x.half(),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_exact_computation_is_that_in_float64(name: str) -> None:
    x = torch.randn(6, 5)
    with Shadows() as shadows:
        y = PROGRAMS[name](x)
    exact = expected_of(y, shadows).exact
    if name == "casts":
        torch.testing.assert_close(exact, x.double() / 3 + x.double(), rtol=1e-12, atol=0)
    else:
        torch.testing.assert_close(exact, PROGRAMS[name](x.double()), rtol=1e-12, atol=1e-12)
    assert fault_of(y, expected_of(y, shadows)) is None


def test_a_backward_is_computed_exactly_too() -> None:
    x = torch.randn(6, 5, dtype=torch.bfloat16, requires_grad=True)
    with Shadows() as shadows:
        (gradient,) = torch.autograd.grad(PROGRAMS["reductions"](x).sum(), x)
    z = x.detach().double().requires_grad_()
    (exact,) = torch.autograd.grad(PROGRAMS["reductions"](z).sum(), z)
    torch.testing.assert_close(expected_of(gradient, shadows).exact, exact, rtol=1e-10, atol=1e-10)


def test_draws_are_those_of_the_program() -> None:
    with Shadows() as shadows:
        y = torch.nn.functional.dropout(torch.ones(50), 0.5) * 3
    assert torch.equal(expected_of(y, shadows).exact, y.double())


def test_an_attention_without_dropout_is_computed_exactly() -> None:
    q, k, v = torch.randn(3, 2, 4, 6, 8).bfloat16()
    with Shadows() as shadows:
        y = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    wide = (q.double(), k.double(), v.double())
    exact = torch.nn.functional.scaled_dot_product_attention(*wide, is_causal=True)
    torch.testing.assert_close(expected_of(y, shadows).exact, exact, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("n", one_in(2, [10, 1_000, 100_000]))
@pytest.mark.parametrize("shift", [0.0, 1.0])
def test_any_order_of_summation_is_right_and_few_bits_are_wrong(n: int, shift: float) -> None:
    x = torch.randn(4, n, generator=torch.Generator().manual_seed(n)) + shift
    with Shadows() as shadows:
        expected = expected_of(x.sum(-1), shadows)
    sequential = torch.zeros(4)
    for part in x.split(max(1, n // 500), dim=-1):
        sequential = sequential + part.flip(-1).sum(-1)
    assert fault_of(sequential, expected) is None
    assert fault_of(x.flip(-1).sum(-1), expected) is None
    fewer = x.bfloat16().float() if shift == 0 else x * (1 + 2.0**-12)
    assert fault_of(fewer.sum(-1), expected) is not None


def test_elements_near_a_tie_may_be_either() -> None:
    x = torch.tensor([1.0, 2.0, 3.0])
    with Shadows() as shadows:
        y = (x * 0.1) * 10
        near, clear = y >= x, y > x / 2
    assert fault_of(torch.zeros(3, dtype=torch.bool), expected_of(clear, shadows)) is not None
    assert fault_of(near, expected_of(near, shadows)) is None


@pytest.mark.parametrize(
    "x",
    [
        torch.tensor([1 / 3, float("nan"), float("-inf"), -0.0]),
        torch.randn(3, 40).bfloat16().T[::2],
        torch.randn(20, 30).T,
        torch.arange(5, dtype=torch.int16).expand(3, 5),
        torch.empty(0, 3, dtype=torch.float16),
        torch.tensor(True),
    ],
    ids=["special", "strided", "packed", "expanded", "empty", "scalar"],
)
def test_the_text_of_a_tensor_is_the_tensor(x: Tensor) -> None:
    names: dict[str, object] = {}
    exec("import base64, zlib, torch\nfrom math import inf, nan\n" + "\n".join(_UNPACK), names)
    again = eval(tensor_text(x), names)
    assert (again.dtype, again.shape, again.stride()) == (x.dtype, x.shape, x.stride())
    assert torch.equal(again.signbit(), x.signbit()) if x.is_floating_point() else torch.equal(again, x)
    assert torch.equal(again.nan_to_num(7.0), x.nan_to_num(7.0)) if x.is_floating_point() else True
