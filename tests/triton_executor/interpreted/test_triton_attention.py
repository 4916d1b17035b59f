"""Attention by blocks, in Triton's interpreter, against eager in float64."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from torch.nn import functional as F

import thunder
from sweeping import one_in
from thunder_triton.kernel_executor import ex
from thunder_triton.library.attention import windowed_attention
from triton_executor.interpreted.generated_inputs import assert_close_to_float64, claimed, tensors

#: dtype → largest error, relative to the largest value
BOUNDS = {torch.float32: 2e-6, torch.float16: 2e-3, torch.bfloat16: 1.6e-2}
OPERATORS = ["attention", "attention_of_queries", "attention_of_keys"]


@st.composite
def calls(draw: st.DrawFn) -> tuple[list[Any], dict[str, Any]]:
    """Draw inputs of attention, a mask among them, and its options."""
    dtype = draw(st.sampled_from(list(BOUNDS)))
    batch, heads, group = (draw(st.integers(1, 2)) for _ in range(3))
    queries, keys = draw(st.integers(1, 40)), draw(st.integers(1, 40))
    size, of_value = draw(st.sampled_from((1, 5, 8, 16))), draw(st.sampled_from((3, 16)))
    shapes = [
        (batch, heads * group, queries, size),
        (batch, heads, keys, size),
        (batch, heads, keys, of_value),
    ]
    inputs: list[Any] = [draw(tensors(shape, dtype)).detach().requires_grad_() for shape in shapes]
    kind = draw(st.sampled_from(("none", "causal", "bool", "added")))
    if kind in ("bool", "added"):
        whole = (batch, heads * group, queries, keys)
        broadcast = draw(st.lists(st.booleans(), min_size=4, max_size=4))
        shape = [1 if cut else n for n, cut in zip(whole, broadcast, strict=True)]
        mask = draw(tensors(shape[draw(st.integers(0, 2)) :], dtype))
        inputs.append(mask > -0.7 if kind == "bool" else mask)
    scale = draw(st.sampled_from((None, 0.3)))
    return inputs, {"scale": scale, "is_causal": kind == "causal", "enable_gqa": group > 1}


def check(call: tuple[list[Any], dict[str, Any]]) -> None:
    inputs, options = call
    compiled = assert_close_to_float64(
        lambda *xs: F.scaled_dot_product_attention(*xs, **options), inputs, BOUNDS[inputs[0].dtype]
    )
    assert claimed(compiled) == OPERATORS


@given(calls())
@settings(max_examples=5, deadline=None, derandomize=True, phases=[Phase.generate])
def test_attention_and_its_gradients_are_those_of_float64(call: tuple[list[Any], dict[str, Any]]):
    check(call)


@pytest.mark.sweep
@given(calls())
@settings(max_examples=150, deadline=None)
def test_attention_of_many_shapes_layouts_and_dtypes(call: tuple[list[Any], dict[str, Any]]):
    check(call)


@pytest.mark.parametrize(
    ("queries", "keys", "size", "is_causal"),
    one_in(3, [(130, 70, 16, True), (70, 130, 16, True), (33, 65, 80, False), (65, 33, 96, True)]),
)
def test_several_blocks_of_queries_and_keys(queries: int, keys: int, size: int, is_causal: bool):
    torch.manual_seed(0)
    inputs = [torch.randn(1, 1, n, size, requires_grad=True) for n in (queries, keys, keys)]
    assert_close_to_float64(
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=is_causal), inputs, 2e-6
    )


@pytest.mark.parametrize("window", one_in(3, [1, 5, 33, 64, 200]))
@pytest.mark.parametrize(("queries", "keys"), one_in(2, [(70, 70), (40, 100)]))
def test_a_window_reads_the_last_keys_alone(window: int, queries: int, keys: int):
    torch.manual_seed(0)
    inputs = [torch.randn(1, h, n, 8, requires_grad=True) for h, n in ((2, queries), (1, keys), (1, keys))]

    def masked(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        mask = torch.ones(queries, keys, dtype=torch.bool).tril().triu(1 - window)
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, enable_gqa=True)

    compiled = assert_close_to_float64(
        lambda q, k, v: windowed_attention(q, k, v, window), inputs, 2e-6, reference=masked
    )
    assert claimed(compiled) == OPERATORS


def test_keys_outside_of_a_window_are_not_read():
    q, k, v = (torch.randn(1, 1, 80, 8) for _ in range(3))
    k[0, 0, :31] = v[0, 0, :31] = float("nan")
    compiled = thunder.jit(lambda q, k, v: windowed_attention(q, k, v, 4)[:, :, 70:], executors=[ex])
    assert compiled(q, k, v).isfinite().all()


def test_a_window_of_tensors_that_the_kernels_do_not_take_is_torchs():
    q, k, v = (torch.randn(1, 1, 20, 8, dtype=torch.float64) for _ in range(3))
    compiled = thunder.jit(lambda q, k, v: windowed_attention(q, k, v, 4), executors=[ex])
    torch.testing.assert_close(compiled(q, k, v), windowed_attention(q, k, v, 4))
    assert not claimed(compiled)


def test_queries_that_read_no_key_have_zeros_and_gradients_of_zero():
    q, k, v = (torch.randn(1, 1, 4, 8, requires_grad=True) for _ in range(3))
    mask = torch.tensor([True, False, True, False]).unsqueeze(1).expand(4, 4)
    compiled = thunder.jit(F.scaled_dot_product_attention, executors=[ex])
    result = compiled(q, k, v, mask)
    gradients = torch.autograd.grad(result.sum(), (q, k, v))
    expected = F.scaled_dot_product_attention(q, k, v, mask)
    assert not result[0, 0, 1].any()
    assert not gradients[0][0, 0, 1].any()
    torch.testing.assert_close(result, expected)
    for gradient, reference in zip(gradients, torch.autograd.grad(expected.sum(), (q, k, v)), strict=True):
        torch.testing.assert_close(gradient, reference)


@pytest.mark.parametrize("value", [float("inf"), float("nan")])
def test_infinities_and_nan_reach_the_queries_that_read_them(value: float):
    q, k, v = (torch.randn(1, 1, 6, 8) for _ in range(3))
    k[0, 0, 3, 0] = value
    compiled = thunder.jit(
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True), executors=[ex]
    )
    wide = F.scaled_dot_product_attention(*(x.double() for x in (q, k, v)), is_causal=True)
    torch.testing.assert_close(compiled(q, k, v), wide.float(), equal_nan=True)


def test_no_queries_and_no_keys():
    for queries, keys in ((0, 3), (3, 0)):
        q, k, v = (torch.randn(1, 2, n, 8, requires_grad=True) for n in (queries, keys, keys))
        compiled = thunder.jit(F.scaled_dot_product_attention, executors=[ex])
        result = compiled(q, k, v)
        result.sum().backward()
        assert claimed(compiled) == OPERATORS
        assert not result.any()
        assert result.shape == (1, 2, queries, 8)
        assert not any(x.grad.any() for x in (q, k, v))


def test_second_derivatives_are_torchs():
    inputs = [torch.randn(1, 1, 3, 2, requires_grad=True) for _ in range(3)]
    compiled = thunder.jit(F.scaled_dot_product_attention, executors=[ex])
    seconds = []
    for f in (compiled, F.scaled_dot_product_attention):
        with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
            (first,) = torch.autograd.grad(f(*inputs).square().sum(), inputs[0], create_graph=True)
            seconds.append(torch.autograd.grad(first.square().sum(), inputs))
    for found, right in zip(*seconds, strict=True):
        torch.testing.assert_close(found, right, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("shapes", "options", "reason"),
    [
        ([(1, 2, 4, 8)] * 3, {"dropout_p": 0.5}, "no dropout"),
        ([(4, 8)] * 3, {}, "batch, heads, length, size"),
        ([(1, 2, 4, 8), (1, 1, 4, 8), (1, 1, 4, 8)], {}, "under enable_gqa=True alone"),
        ([(1, 1, 2, 160)] * 3, {}, "at most 128"),
    ],
)
def test_other_calls_are_refused_with_the_reason(
    shapes: list[tuple[int, ...]], options: dict[str, Any], reason: str
):
    compiled = thunder.jit(lambda *xs: F.scaled_dot_product_attention(*xs, **options), executors=[ex])
    compiled(*(torch.randn(shape) for shape in shapes))
    assert reason in str(thunder.explain(compiled).why_not("triton_kernels"))
    assert not claimed(compiled)


def test_a_mask_with_a_gradient_and_float64_are_refused():
    q = torch.randn(1, 1, 4, 8)
    mask = torch.randn(4, 4, requires_grad=True)
    compiled = thunder.jit(F.scaled_dot_product_attention, executors=[ex])
    compiled(q, q, q, mask).sum().backward()
    assert "no gradient of the mask" in str(thunder.explain(compiled).why_not("triton_kernels"))
    assert mask.grad is not None
    compiled(q.double(), q.double(), q.double())
    assert "float32, bfloat16 and float16" in str(thunder.explain(compiled).why_not("triton_kernels"))
