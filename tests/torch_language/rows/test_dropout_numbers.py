"""Dropout with equal seeds has eager's numbers, forward and backward, to the last bit."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F

import thunder

SHAPES = {
    "contiguous": lambda: torch.randn(3, 5, 7),
    "channels-last": lambda: torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last),
    "transposed": lambda: torch.randn(5, 4).t(),
    "gaps": lambda: torch.randn(6, 8)[:, ::2],
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("shape", SHAPES)
def test_dropout_with_gradients_has_the_bits_of_eager(shape: str, dtype: torch.dtype) -> None:
    def program(x: torch.Tensor, p: float) -> torch.Tensor:
        return F.dropout(F.dropout(x * 2, p), 0.3, inplace=True)

    compiled = thunder.jit(program)
    for p in (0.021, 0.1, 0.37, 0.52):  # 1 / (1 - p) of the first and the last is rounded otherwise in f32
        _assert_equal_bits(program, compiled, SHAPES[shape]().to(dtype), p)


def _assert_equal_bits(
    program: Callable[[torch.Tensor, float], torch.Tensor],
    compiled: Callable[[torch.Tensor, float], torch.Tensor],
    x: torch.Tensor,
    p: float,
) -> None:
    results = []
    for fn in (program, compiled):
        leaf = x.detach().requires_grad_()
        torch.manual_seed(0)
        out = fn(leaf, p)
        (gradient,) = torch.autograd.grad(
            out, leaf, torch.linspace(-1, 1, out.numel()).view(out.shape).to(out)
        )
        results.append((out.detach(), gradient, torch.rand(2)))
    for theirs, ours in zip(*results, strict=True):
        assert theirs.stride() == ours.stride()
        assert torch.equal(theirs, ours)
        assert torch.equal(theirs.signbit(), ours.signbit())
