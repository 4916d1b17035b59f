"""The kernels of the library on a GPU, against eager in float64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional as F

import thunder
import thunder_triton
from thunder.plugins import get_manager
from thunder_triton.kernel_executor import ex
from thunder_triton.library.attention import windowed_attention

pytestmark = pytest.mark.gpu

BOUNDS = {torch.float32: 1e-5, torch.bfloat16: 2e-2, torch.float16: 4e-3}


def masked_attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    mask = torch.ones(q.shape[-2], k.shape[-2], dtype=torch.bool, device=q.device).tril(3)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, enable_gqa=True)


def in_window(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return windowed_attention(q, k, v, 100)


def layer(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return F.gelu(F.linear(x, w, b))


def loss_of_rows(x: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(x, torch.arange(x.shape[0], device=x.device) % x.shape[1])


def loss_of_tokens(w: torch.Tensor) -> torch.Tensor:
    return F.embedding(torch.arange(5000, device=w.device) % 7, w).square()


HEADS = [(2, 8, 300, 64), (2, 2, 420, 64), (2, 2, 420, 64)]
PROGRAMS: list[tuple[Callable[..., torch.Tensor], list[tuple[int, ...]], list[torch.dtype]]] = [
    (masked_attention, HEADS, list(BOUNDS)),
    (in_window, HEADS, list(BOUNDS)),
    (layer, [(300, 256), (500, 256), (500,)], [torch.bfloat16, torch.float16]),
    (loss_of_rows, [(64, 50_000)], list(BOUNDS)),
    (loss_of_tokens, [(50, 300)], [torch.float32]),
]


@pytest.mark.parametrize(
    ("program", "shapes", "dtype"), [(p, shapes, dtype) for p, shapes, dtypes in PROGRAMS for dtype in dtypes]
)
def test_results_and_gradients_are_those_of_float64(
    program: Callable[..., torch.Tensor], shapes: list[tuple[int, ...]], dtype: torch.dtype
):
    torch.manual_seed(0)
    inputs = [torch.randn(shape, device="cuda").to(dtype).requires_grad_() for shape in shapes]
    wide = [x.detach().double().requires_grad_() for x in inputs]
    with get_manager().temporary(thunder_triton, name="triton-under-test"):
        compiled = thunder.jit(program, executors=[ex])
        result = compiled(*inputs)
        assert [row for row in thunder.explain(compiled).rows if row.claimed_by == ex.name]
    expected = program(*wide)
    g = torch.randn_like(result)
    gradients = torch.autograd.grad(result, inputs, g)
    references = torch.autograd.grad(expected, wide, g.double())
    for found, right in zip((result, *gradients), (expected, *references), strict=True):
        assert (found.double() - right).abs().max() <= BOUNDS[dtype] * right.abs().max().clamp(min=1e-3)


@pytest.mark.parametrize("dtype", BOUNDS, ids=str)
def test_steps_of_adamw_are_torchs(dtype: torch.dtype):
    def group() -> tuple[list[Any], torch.optim.Optimizer]:
        torch.manual_seed(0)
        values = [torch.randn(shape, device="cuda").to(dtype) for shape in ((300, 77), (5000,))]
        parameters = [torch.nn.Parameter(value) for value in values]
        return parameters, torch.optim.AdamW(parameters, lr=torch.tensor(0.01, device="cuda"), fused=True)

    (params, optimizer), (expected, reference) = group(), group()
    step = thunder.jit(lambda: optimizer.step(), executors=[ex])
    for _ in range(3):
        for p, q in zip(params, expected, strict=True):
            p.grad = torch.randn_like(p)
            q.grad = p.grad.clone()
        step()
        reference.step()
    assert [row for row in thunder.explain(step).rows if row.claimed_by == ex.name]
    for p, q in zip(params, expected, strict=True):
        torch.testing.assert_close(p, q, rtol=BOUNDS[dtype], atol=BOUNDS[dtype])
