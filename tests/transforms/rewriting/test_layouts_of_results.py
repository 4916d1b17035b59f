"""Layouts and dtypes of what a replacement computes, and the numbers that it takes."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

import thunder
from thunder import TensorProxy
from thunder.core.patterns import rewrite
from thunder.extend import OperatorExecutor
from transforms.rewriting.rewriting_programs import F, applied, by_torch, compiled, refusals, rms_norm

QKV = [torch.randn(2, 5, 32) for _ in range(3)]


def attention(q, k, v):
    return torch.softmax(q @ k.transpose(-2, -1) / math.sqrt(8), -1) @ v


def by_sdpa(q, k, v):
    return F.scaled_dot_product_attention(q, k, v)


ATTENTION = rewrite(attention, by_sdpa)


def heads(*tensors: torch.Tensor) -> list[torch.Tensor]:
    return [x.view(2, 5, 4, 8).transpose(1, 2) for x in tensors]


@pytest.mark.parametrize(
    "program",
    [
        lambda q, k, v: attention(*heads(q, k, v)),
        lambda q, k, v: attention(*heads(q, k, v)).sin(),
        lambda q, k, v: attention(*heads(q, k, v)).transpose(1, 2)[:1],
        lambda q, k, v: attention(*heads(q, k, v)).contiguous().view(2, 20, 8),
    ],
    ids=["a result", "before a result", "viewed", "a view that may fail"],
)
def test_a_replacement_with_other_strides_is_refused_where_a_result_depends_on_them(program: Any) -> None:
    fn = compiled(program, ATTENTION)
    result, expected = fn(*QKV), program(*QKV)
    torch.testing.assert_close(result, expected)
    assert result.stride() == expected.stride()
    assert refusals(fn) == ["strides"]


def test_a_replacement_with_other_strides_is_applied_where_no_result_depends_on_them() -> None:
    w = torch.randn(32, 32)

    def program(q, k, v):
        return F.linear(attention(*heads(q, k, v)).transpose(1, 2).reshape(2, 5, 32), w)

    fn = compiled(program, ATTENTION)
    result, expected = fn(*QKV), program(*QKV)
    torch.testing.assert_close(result, expected, rtol=1e-4, atol=1e-4)
    assert result.stride() == expected.stride()
    assert applied(fn) == ["attention"]


def test_the_result_of_a_packages_operator_gets_the_strides_of_the_programs_value() -> None:
    executor = OperatorExecutor("laid_out")

    def kernel(q, k, v):
        return F.scaled_dot_product_attention(q.contiguous(), k, v).mT.contiguous().mT

    mine = executor.register_operator(
        "attention", meta=lambda q, k, v: TensorProxy(like=q), fn=kernel, replace=True
    )
    fn = compiled(
        lambda q, k, v: attention(*heads(q, k, v)).sin(), rewrite(attention, mine), executors=[executor]
    )
    result, expected = fn(*QKV), attention(*heads(*QKV)).sin()
    torch.testing.assert_close(result, expected)
    assert result.stride() == expected.stride()
    assert len(applied(fn)) == 1


def test_the_gradient_passes_the_strides_of_a_packages_operator() -> None:
    executor = OperatorExecutor("laid_out")
    mine = executor.register_operator(
        "twice",
        meta=lambda x: TensorProxy(like=x),
        fn=lambda x: x.mT.contiguous().mT * 2,
        vjp={"x": lambda c: c.g * 2},
        replace=True,
    )
    fn = compiled(
        lambda x: torch.sin(x + x), rewrite(lambda x: x + x, mine, name="twice"), executors=[executor]
    )
    x = torch.randn(3, 4, dtype=torch.float64, requires_grad=True)
    assert fn(x).stride() == (4, 1)
    assert applied(fn) == ["twice"]
    assert torch.autograd.gradcheck(fn, (x,))


def scaled(x, n: int):
    return x * n + x


def scaled_at_once(x, n):
    assert type(n) is int
    return x * (n + 1)


@pytest.mark.parametrize(("number", "is_matched"), [(3, True), (3.0, True), (3.5, False), (True, False)])
def test_a_parameter_that_is_annotated_int_takes_whole_numbers(number: float, is_matched: bool) -> None:
    fn = compiled(lambda x: x * number + x, rewrite(scaled, scaled_at_once))
    x = torch.ones(3)
    assert torch.equal(fn(x), x * number + x)
    assert applied(fn) == (["scaled"] if is_matched else [])


def test_a_replacement_that_promotes_in_another_way_is_refused() -> None:
    """Under autocast, the input of a normalisation is bfloat16, and its weight float32."""
    weight = torch.ones(8)

    def program(x, w):
        return rms_norm(F.linear(x, w), weight, 1e-6)

    fn = compiled(program, rewrite(rms_norm, by_torch))
    x, w = torch.randn(4, 8), torch.randn(8, 8)
    with torch.autocast("cpu", torch.bfloat16):
        torch.testing.assert_close(fn(x, w), program(x, w), rtol=0, atol=0)
    assert refusals(fn) == ["dtype"]
    (rewriting,) = thunder.explain(fn).notes
    assert "promotes the dtypes of its arguments in another way" in str(rewriting.refusal)
