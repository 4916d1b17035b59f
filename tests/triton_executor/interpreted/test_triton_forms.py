"""Common parts of models become one kernel, by torch's functions or by hand; a backward at most two."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional as F

import thunder
from thunder_triton.executor import ex


def rotary(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    first, second = x.chunk(2, -1)
    return x * cos + torch.cat((-second, first), -1) * sin


def swiglu(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return F.silu(x) * y


def geglu(x: torch.Tensor) -> torch.Tensor:
    value, gate = x.chunk(2, -1)
    return value * F.gelu(gate)


def residual_rms_norm(x: torch.Tensor, y: torch.Tensor, w: torch.Tensor) -> Any:
    h = x + y
    return h, F.rms_norm(h, w.shape, w)


def residual_layer_norm(x: torch.Tensor, y: torch.Tensor, w: torch.Tensor) -> Any:
    h = x + y
    return h, F.layer_norm(h, w.shape, w, w)


def rms_norm_by_hand(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    scale = torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + 1e-6)
    return (x.float() * scale).to(x.dtype) * w


def masked_softmax(scores: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    return F.softmax((scores * 0.3).masked_fill(bias > 1, float("-inf")), -1)


SHAPES: dict[Callable[..., Any], list[tuple[int, ...]]] = {
    rotary: [(2, 3, 5, 8), (5, 8), (5, 8)],
    swiglu: [(4, 8), (4, 8)],
    geglu: [(4, 16)],
    residual_rms_norm: [(4, 8), (4, 8), (8,)],
    residual_layer_norm: [(4, 8), (4, 8), (8,)],
    rms_norm_by_hand: [(4, 8), (8,)],
    masked_softmax: [(2, 4, 4), (2, 4, 4)],
}


def kernels(trace: Any) -> int:
    """Return the number of kernels of the one fusion of a trace."""
    (fusion,) = [bsym for bsym in trace.bound_symbols if bsym.sym.is_fusion]
    return str(fusion.header).count("@triton.jit")


@pytest.mark.parametrize("form", SHAPES)
def test_a_common_form_is_one_kernel(form: Callable[..., Any]):
    torch.manual_seed(0)
    inputs = [torch.randn(shape, dtype=torch.bfloat16, requires_grad=True) for shape in SHAPES[form]]
    if form is masked_softmax:
        inputs[1].requires_grad_(False)
    learnt = [x for x in inputs if x.requires_grad]
    compiled = thunder.jit(form, executors=[ex])
    results, expected = (torch.utils._pytree.tree_leaves(f(*inputs)) for f in (compiled, form))
    for result, reference in zip(results, expected, strict=True):
        torch.testing.assert_close(result, reference, rtol=2**-8, atol=2**-8)
    cotangents = [torch.randn_like(result) for result in results]
    for gradient, reference in zip(
        torch.autograd.grad(results, learnt, cotangents),
        torch.autograd.grad(expected, learnt, cotangents),
        strict=True,
    ):
        torch.testing.assert_close(gradient, reference, rtol=2**-5, atol=2**-5)
    assert kernels(thunder.last_traces(compiled)[-1]) == 1
    assert kernels(thunder.last_backward_traces(compiled)[-1]) <= 2  # rows, and columns for a weight
