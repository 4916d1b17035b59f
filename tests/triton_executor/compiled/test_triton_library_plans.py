"""What the library would run on a GPU that is not here, by plans."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.nn import functional as F

import thunder
import thunder_triton
from thunder.plugins import get_manager
from thunder_triton.kernel_executor import ex
from thunder_triton.library.attention import windowed_attention


def empty(*shape: int, dtype: torch.dtype = torch.bfloat16, learnt: bool = True) -> torch.Tensor:
    return torch.empty(shape, dtype=dtype, device="meta", requires_grad=learnt)


def claimed(function: Any, *arguments: Any) -> list[str]:
    """Return the operators of the library in the plan of a function."""
    with get_manager().temporary(thunder_triton, name="triton-under-test"):
        plan = thunder.plan(function, *arguments, device="h100", executors=[ex])
    return [row.symbol for row in plan.explain().rows if row.claimed_by == ex.name]


def attention(
    query: tuple[int, ...], key: tuple[int, ...], dtype: torch.dtype, **options: Any
) -> tuple[str | None, str]:
    """Return which executor runs a call in a plan for a GPU, and why the library does not."""
    q, k = (empty(*shape, dtype=dtype, learnt=False) for shape in (query, key))
    plan = thunder.plan(
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, **options),
        *(q, k, k),
        device="h100",
        executors=[ex],
    )
    rows = [row for row in plan.explain().rows if "attention" in row.symbol]
    messages = [r.message for row in rows for r in row.refusals if r.executor == ex.name]
    return rows[0].claimed_by, " ".join(messages)


PARTS = ("attention", "attention_of_queries", "attention_of_keys")
WHOLE, SHARED, SHORT = (1, 4, 64, 32), (1, 2, 64, 32), (1, 2, 48, 32)


@pytest.mark.parametrize(
    ("query", "key", "dtype", "options", "kernel"),
    [
        (WHOLE, WHOLE, torch.bfloat16, {"is_causal": True}, "flash attention"),
        (WHOLE, SHARED, torch.bfloat16, {"is_causal": True, "enable_gqa": True}, "flash attention"),
        (WHOLE, SHORT, torch.bfloat16, {"enable_gqa": True}, "flash attention"),
        (WHOLE, WHOLE, torch.float32, {"is_causal": True}, "memory-efficient attention"),
        (WHOLE, SHORT, torch.bfloat16, {"is_causal": True, "enable_gqa": True}, None),
        (WHOLE, SHARED, torch.float32, {"enable_gqa": True}, None),
    ],
)
def test_attention_without_gradients_is_left_to_torch_where_it_has_a_kernel(
    query: Any, key: Any, dtype: torch.dtype, options: dict[str, Any], kernel: str | None
):
    claimed_by, refusal = attention(query, key, dtype, **options)
    assert claimed_by == ("torch" if kernel else ex.name)
    assert refusal == (f"torch's {kernel} computes this call" if kernel else "")


def test_attention_with_gradients_is_computed_by_the_kernels():
    tensors = [empty(1, 4, 64, 32) for _ in range(3)]
    assert claimed(lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True), *tensors) == [
        f"triton_kernels.{name}" for name in PARTS
    ]


def test_a_window_is_computed_by_the_kernels_forward_and_backward():
    names = claimed(lambda q, k, v: windowed_attention(q, k, v, 16), *(empty(1, 4, 64, 32) for _ in range(3)))
    assert names == [f"triton_kernels.{name}" for name in PARTS]


@pytest.mark.parametrize(("size", "expected"), [(512, ["triton_kernels.linear_with_sums"]), (2048, [])])
def test_layers_with_long_products_are_left_to_torch(size: int, expected: list[str]):
    layer = (empty(256, size), empty(384, size), empty(384))
    assert claimed(lambda x, w, b: F.silu(F.linear(x, w, b)), *layer) == expected
