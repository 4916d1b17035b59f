"""Generated inputs of the library's kernels, and the comparison of programs with eager in float64."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from hypothesis import strategies as st

import thunder
from thunder_triton.kernel_executor import ex

__all__ = ["assert_close_to_float64", "claimed", "layout", "tensors"]


@st.composite
def tensors(draw: st.DrawFn, shape: Sequence[int], dtype: torch.dtype, scale: float = 1.0) -> torch.Tensor:
    """Draw a tensor of normal values in any order of dimensions, with steps between elements, or repeated."""
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**16)))
    order = draw(st.permutations(range(len(shape))))
    sizes = [shape[d] for d in order]
    kind = draw(st.sampled_from(("dense", "dense", "steps", "repeated")))
    if kind == "steps" and sizes:
        sizes[-1] *= 2
    if kind == "repeated" and sizes:
        sizes[0] = min(sizes[0], 1)
    x = (torch.randn(sizes, generator=generator) * scale).to(dtype)
    if kind == "steps" and sizes:
        x = x[..., ::2]
    x = x.permute([order.index(d) for d in range(len(shape))])
    return x.expand(tuple(shape))


def layout(x: torch.Tensor) -> list[int]:
    """Return the strides of dimensions in which a step leads to another element."""
    return [stride for stride, size in zip(x.stride(), x.shape, strict=True) if size > 1 and x.numel()]


def claimed(compiled: Any) -> list[str]:
    """Return the calls that the library runs in the last programs of a compiled function."""
    rows = thunder.explain(compiled).rows
    return [row.symbol.removeprefix(f"{ex.name}.") for row in rows if row.claimed_by == ex.name]


def assert_close_to_float64(
    program: Callable[..., torch.Tensor], inputs: Sequence[Any], bound: float, reference: Any = None
) -> Any:
    """Compare a result and the gradients of floating-point inputs with those of eager in float64.

    bound: the largest error, relative to the largest value of each, or to 1. Returns the compiled program.
    """
    compiled = thunder.jit(program, executors=[ex])
    narrow = [_leaf(x, None) for x in inputs]
    wide = [_leaf(x, torch.float64) for x in inputs]
    result, expected = compiled(*narrow), (reference or program)(*wide)
    cotangent = torch.randn(result.shape, generator=torch.Generator().manual_seed(0)).to(result.dtype)
    values = [(result, expected)]
    if result.requires_grad:
        learnt = [(a, b) for a, b in zip(narrow, wide, strict=True) if _is_learnt(a)]
        gradients = torch.autograd.grad(result, [a for a, _ in learnt], cotangent)
        references = torch.autograd.grad(expected, [b for _, b in learnt], cotangent.double())
        for (x, _), gradient in zip(learnt, gradients, strict=True):
            assert gradient.dtype is x.dtype
            assert gradient.shape == x.shape
        values += zip(gradients, references, strict=True)
    for found, right in values:
        assert found.shape == right.shape
        if right.numel():
            error = (found.double() - right).abs().max()
            assert error <= bound * right.abs().max().clamp(min=1), f"{error} of {right.abs().max()}"
    return compiled


def _is_learnt(x: Any) -> bool:
    return isinstance(x, torch.Tensor) and x.requires_grad


def _leaf(x: Any, dtype: torch.dtype | None) -> Any:
    """Return a leaf with the strides and values of a tensor, in a dtype; other inputs as they are."""
    if not isinstance(x, torch.Tensor) or not x.is_floating_point():
        return x
    return x.detach().to(dtype or x.dtype).requires_grad_(x.requires_grad)
