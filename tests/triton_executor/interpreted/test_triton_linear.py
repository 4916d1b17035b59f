"""A linear layer with its activation as one kernel, in Triton's interpreter, against eager in float64."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch.nn import functional as F

import thunder
import thunder_triton
from sweeping import one_in
from thunder.plugins import get_manager
from thunder_triton.kernel_executor import ex
from thunder_triton.kernels import linear as kernels
from thunder_triton.library.linear import ACTIVATIONS
from triton_executor.interpreted.generated_inputs import assert_close_to_float64, claimed

#: dtype → largest error of the result, relative to the largest value: one rounding
BOUNDS = {torch.float16: 2**-10, torch.bfloat16: 2**-7, torch.float32: 2e-6}


@pytest.fixture(autouse=True)
def _plugin() -> Iterator[None]:
    """Register the plugin, whose rules rewrite programs."""
    with get_manager().temporary(thunder_triton, name="triton-under-test"):
        yield


def layer(name: str) -> Callable[..., torch.Tensor]:
    return lambda x, w, *b: ACTIVATIONS[name](F.linear(x, w, *b))


def inputs(dtype: torch.dtype, *, bias: bool, shape: tuple[int, ...] = (130,)) -> list[torch.Tensor]:
    torch.manual_seed(0)
    shapes = [(*shape, 24), (150, 24), *([(150,)] if bias else [])]
    return [torch.randn(size).to(dtype).requires_grad_() for size in shapes]


@pytest.mark.parametrize(
    ("name", "dtype", "bias"),
    one_in(
        4, [(n, d, b) for n in ACTIVATIONS for d in (torch.bfloat16, torch.float16) for b in (True, False)]
    ),
)
def test_results_and_gradients_are_those_of_float64(name: str, dtype: torch.dtype, bias: bool):
    # gradients are rounded where eager rounds, and summed by torch
    compiled = assert_close_to_float64(layer(name), inputs(dtype, bias=bias), 4 * BOUNDS[dtype])
    assert claimed(compiled) == ["linear_with_sums"]


@pytest.mark.parametrize("name", ACTIVATIONS)
@pytest.mark.parametrize("dtype", one_in(3, BOUNDS))
def test_the_kernel_rounds_once(name: str, dtype: torch.dtype):
    x, w, b = (t.detach() for t in inputs(dtype, bias=True))
    result, sums = kernels.forward(x, w, b, name, True)
    wide = F.linear(x.double(), w.double(), b.double())
    for found, right in ((result, ACTIVATIONS[name](wide)), (sums, wide)):
        assert found.dtype is dtype
        assert (found.double() - right).abs().max() <= BOUNDS[dtype] * right.abs().max()


def test_a_batch_of_rows_in_any_layout():
    (x, w), layouts = inputs(torch.bfloat16, bias=False, shape=(2, 70)), []
    layouts += [x.detach(), x.detach().transpose(0, 1).contiguous().transpose(0, 1)]
    layouts += [torch.stack([x, x], -1)[..., 0].detach(), x.detach()[:1].expand(2, 70, 24)]
    for values in layouts:
        compiled = thunder.jit(layer("relu"), executors=[ex])
        result = compiled(values, w.detach())
        assert claimed(compiled) == ["linear_activation"]
        torch.testing.assert_close(result, layer("relu")(values, w.detach()), rtol=2**-7, atol=2**-7)


def test_infinities_and_nan_are_eagers():
    x, w = (t.detach() for t in inputs(torch.float16, bias=False))
    for name in ACTIVATIONS:
        x[0, 0], x[1, 0] = (
            float("nan"),
            1.0 if name == "gelu" else float("inf"),
        )  # eager's vectors: gelu(inf) is NaN
        compiled = thunder.jit(layer(name), executors=[ex])
        torch.testing.assert_close(compiled(x, w), layer(name)(x, w), rtol=2**-9, atol=2**-9, equal_nan=True)
        assert claimed(compiled) == ["linear_activation"]


def test_a_result_that_is_read_elsewhere_stays_the_programs():
    def f(x: torch.Tensor, w: torch.Tensor) -> Any:
        y = F.linear(x, w)
        return F.relu(y), y

    compiled = thunder.jit(f, executors=[ex])
    tensors = inputs(torch.bfloat16, bias=False)
    for result, expected in zip(compiled(*tensors), f(*tensors), strict=True):
        torch.testing.assert_close(result, expected)
    assert not claimed(compiled)


@pytest.mark.parametrize(
    ("shapes", "dtype", "reason"),
    [
        ([(130, 24), (150, 24)], torch.float32, "bfloat16 and float16"),
        ([(130, 2048), (150, 2048)], torch.bfloat16, "at most 1024 terms"),
        ([(130, 24), (32, 24)], torch.bfloat16, "at least 128 rows and columns"),
        ([(20, 24), (150, 24)], torch.bfloat16, "at least 128 rows and columns"),
    ],
)
def test_other_layers_are_refused_with_the_reason(
    shapes: list[tuple[int, int]], dtype: torch.dtype, reason: str
):
    x, w = (torch.randn(shape).to(dtype) for shape in shapes)
    compiled = thunder.jit(layer("silu"), executors=[ex])
    torch.testing.assert_close(compiled(x, w), layer("silu")(x, w))
    assert [reason in r.refusal.message for r in thunder.explain(compiled).notes] == [True]
    assert not claimed(compiled)


def test_second_derivatives_are_torchs():
    x, w = inputs(torch.float16, bias=False)
    compiled = thunder.jit(layer("gelu"), executors=[ex])
    seconds = []
    for f in (compiled, layer("gelu")):
        (first,) = torch.autograd.grad(f(x, w).float().square().mean(), x, create_graph=True)
        seconds.append(torch.autograd.grad(first.float().square().sum() * 1e4, w)[0])
    torch.testing.assert_close(seconds[0], seconds[1], rtol=3e-2, atol=3e-2)
