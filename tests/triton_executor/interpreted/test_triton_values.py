"""Values and gradients of generated kernels, in Triton's interpreter, against eager in float64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional as F

import thunder
from sweeping import in_turn
from thunder_triton.executor import ex
from thunder_triton.fusions import reductions

#: the largest error of results around 1
BOUNDS = {torch.float64: 1e-12, torch.float32: 2e-6, torch.bfloat16: 1e-2, torch.float16: 2e-3}


def rows(x: torch.Tensor, w: torch.Tensor) -> Any:
    return F.softmax(F.gelu(x * w) - x.amax(-1, keepdim=True), -1)


def columns(x: torch.Tensor, w: torch.Tensor) -> Any:
    return (x - x.mean(0)).square().sum(0) * w, x.sum(1) + 1


def normalised(x: torch.Tensor, w: torch.Tensor) -> Any:
    return F.layer_norm(x + 1, w.shape, w, w * 2), F.rms_norm(x * 2, w.shape, w)


def moved(x: torch.Tensor, w: torch.Tensor) -> Any:
    y = torch.cat([x[:, 2:], x[:, :2] * w[:2]], 1).reshape(-1, 2)
    return (
        y.flip(0).t() + 1,
        F.pad(x * w, (1, 2)).tril(),
        torch.where(x > 0, x, w).unsqueeze(1).expand(-1, 2, -1) * 2,
    )


def whole(x: torch.Tensor, w: torch.Tensor) -> Any:
    return (x * w).sum() / 3, torch.var_mean(x * 2, -1), (x > w).any(1), (x * 2).amin()


def places(x: torch.Tensor, w: torch.Tensor) -> Any:
    y = x * w
    best = y.max(1)
    return y.argmax(0) + y.argmin(), best.values * 2, best.indices, y.prod(1), (y > 0).long().prod()


PROGRAMS = {p.__name__: p for p in (rows, columns, normalised, moved, whole, places)}
LAYOUTS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "contiguous": lambda t: t.clone(),
    "transposed": lambda t: t.t().contiguous().t(),
    "strided": lambda t: torch.stack([t, t], -1)[..., 1],
    "expanded": lambda t: t[:1].clone().expand_as(t),
}


def leaves(tree: Any) -> list[torch.Tensor]:
    return list(torch.utils._pytree.tree_leaves(tree))


def test_the_kernels_of_a_program_are_generated_ones():
    compiled = thunder.jit(rows, executors=[ex])
    compiled(torch.randn(3, 8), torch.randn(8))
    trace = thunder.last_traces(compiled)[-1]
    assert [b.sym.name for b in trace.bound_symbols if b.sym.is_fusion] == ["TritonFusion0"]
    text = str(trace)
    assert "@triton.jit" in text
    assert "tl.store(" in text
    assert "return F.softmax(F.gelu(x * w)" in text  # the user's line, in the source of the kernel


@pytest.mark.parametrize(("name", "dtype"), in_turn(PROGRAMS, [*BOUNDS]))
def test_values_and_gradients_are_eagers(name: str, dtype: torch.dtype):
    torch.manual_seed(0)
    x = torch.randn(5, 6, dtype=dtype, requires_grad=True)
    w = torch.randn(6, dtype=dtype, requires_grad=True)
    compiled = thunder.jit(PROGRAMS[name], executors=[ex])
    results = leaves(compiled(x, w))
    wide = [t.detach().double().requires_grad_() for t in (x, w)]
    expected = leaves(PROGRAMS[name](*wide))
    for result, reference in zip(results, expected, strict=True):
        assert result.shape == reference.shape
        torch.testing.assert_close(
            result.double(), reference.double(), rtol=BOUNDS[dtype], atol=BOUNDS[dtype]
        )
    differentiable = [i for i, t in enumerate(results) if t.requires_grad]
    cotangents = [torch.randn_like(results[i]) for i in differentiable]
    gradients = torch.autograd.grad([results[i] for i in differentiable], [x, w], cotangents)
    references = torch.autograd.grad(
        [expected[i] for i in differentiable], wide, [c.double() for c in cotangents]
    )
    for gradient, reference in zip(gradients, references, strict=True):
        bound = 20 * BOUNDS[dtype]
        torch.testing.assert_close(gradient.double(), reference, rtol=bound, atol=bound)


@pytest.mark.parametrize(("name", "layout"), in_turn(PROGRAMS, [*LAYOUTS]))
def test_inputs_may_have_any_strides(name: str, layout: str):
    torch.manual_seed(0)
    compiled = thunder.jit(PROGRAMS[name], executors=[ex])
    w = torch.randn(6)
    compiled(torch.randn(5, 6), w)
    x = LAYOUTS[layout](torch.randn(5, 6))
    for result, reference in zip(leaves(compiled(x, w)), leaves(PROGRAMS[name](x, w)), strict=True):
        torch.testing.assert_close(result, reference, rtol=2e-6, atol=2e-6)
        assert result.stride() == reference.stride()


@pytest.mark.parametrize("shape", [(0, 6), (5, 0), (0, 0), (1, 1), (1, 6), (3, 1)])
@pytest.mark.parametrize("name", ["rows", "columns"])
def test_dimensions_of_size_0_and_1(name: str, shape: tuple[int, int]):
    x, w = torch.randn(shape), torch.randn(shape[1])
    if name == "rows" and shape[1] == 0:
        pytest.skip("a maximum of nothing is an error")
    compiled = thunder.jit(PROGRAMS[name], executors=[ex])
    for result, reference in zip(leaves(compiled(x, w)), leaves(PROGRAMS[name](x, w)), strict=True):
        torch.testing.assert_close(result, reference, rtol=2e-6, atol=2e-6, equal_nan=True)


def test_a_long_row_is_read_in_a_loop_for_each_pass(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(reductions, "PROGRAMS", 1)  # few rows are enough
    torch.manual_seed(0)
    x = torch.randn(2, 10_000, dtype=torch.float64)
    compiled = thunder.jit(lambda x: F.softmax(x * 2, -1) + 1, executors=[ex])
    torch.testing.assert_close(compiled(x), F.softmax(x * 2, -1) + 1, rtol=1e-12, atol=1e-12)
    text = str(thunder.last_traces(compiled)[-1])
    assert text.count("for start in range(0, 10000, BLOCK_J):") == 3  # maximum, sum, results


def test_few_long_rows_are_reduced_in_parts():
    torch.manual_seed(0)

    def f(x: torch.Tensor) -> Any:
        y = x * 2
        return y.sum(), y.amax(), (y > 5).any(), y.view(2, -1).sum(1), y.view(-1, 4).sum(0), (y > -9).all()

    x = torch.randn(20_004, dtype=torch.float64)
    compiled = thunder.jit(f, executors=[ex])
    for result, reference in zip(compiled(x), f(x), strict=True):
        torch.testing.assert_close(result, reference, rtol=1e-12, atol=1e-12)


def test_offsets_beyond_31_bits_are_computed_in_64():
    memory = torch.empty(2**31 + 8, dtype=torch.int8)  # of which two pages are touched
    x = memory[:: 2**31]
    x.copy_(torch.tensor([3, 5], dtype=torch.int8))
    compiled = thunder.jit(lambda x: x * 2 + 1, executors=[ex])
    assert compiled(x).tolist() == [7, 11]
    assert "tl.program_id(0).to(tl.int64)" in str(thunder.last_traces(compiled)[-1])


def test_low_precision_is_rounded_where_eager_rounds():
    torch.manual_seed(0)
    for dtype in (torch.bfloat16, torch.float16):
        x, y = torch.randn(64, dtype=dtype), torch.randn(64, dtype=dtype)

        def f(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return (x * y + x) / (y.abs() + 0.1) - x

        assert torch.equal(thunder.jit(f, executors=[ex])(x, y), f(x, y))
