"""Cross entropy of a linear layer in chunks, in Triton's interpreter, against eager in float64."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode

import thunder
import thunder_triton
from thunder.core.errors import ThunderError
from thunder.plugins import get_manager
from thunder_triton.kernel_executor import ex
from thunder_triton.kernels import linear_cross_entropy as kernels
from thunder_triton.library.linear_cross_entropy import linear_cross_entropy

CLASSES = 1500


@pytest.fixture(autouse=True)
def _plugin() -> Iterator[None]:
    """Register the plugin, whose rules rewrite programs."""
    with get_manager().temporary(thunder_triton, name="triton-under-test"):
        yield


def rows(x: torch.Tensor, w: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(F.linear(x, w), t)


def rows_in_float32(x: torch.Tensor, w: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(F.linear(x, w).float(), t, ignore_index=7)


def batches(x: torch.Tensor, w: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
    logits = F.linear(x.unsqueeze(0), w)
    return F.cross_entropy(logits.view(-1, logits.size(-1)), t.view(-1))


def batches_in_float32(x: torch.Tensor, w: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
    logits = F.linear(x.unsqueeze(0), w).float()
    return F.cross_entropy(logits.reshape(-1, logits.shape[-1]), t)


PROGRAMS: list[Callable[..., torch.Tensor]] = [rows, rows_in_float32, batches, batches_in_float32]


def arguments(dtype: torch.dtype, n: int = 21) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    x = (torch.randn(n, 96, dtype=dtype) / 4).requires_grad_()
    weight = torch.randn(CLASSES, 96, dtype=dtype, requires_grad=True)
    target = torch.randint(0, CLASSES, (n,))
    target[1], target[2] = -100, 7
    return x, weight, target


def claimed(compiled: Any) -> set[str]:
    return {row.symbol for row in thunder.explain(compiled).rows if row.claimed_by == "triton_kernels"}


def in_float64(
    program: Callable[..., torch.Tensor], x: torch.Tensor, w: torch.Tensor, t: torch.Tensor
) -> list[torch.Tensor]:
    """Return the loss and the gradients of three times the loss, of the same inputs in float64."""
    wide = [v.detach().double().requires_grad_() for v in (x, w)]
    ignored = 7 if program is rows_in_float32 else -100
    target = t.clamp(min=0) if ignored == 7 else t
    loss = F.cross_entropy(wide[0] @ wide[1].t(), target, ignore_index=ignored)
    return [loss, *torch.autograd.grad(loss * 3, wide)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("program", PROGRAMS)
def test_losses_and_gradients_are_those_of_float64(program: Callable[..., torch.Tensor], dtype: torch.dtype):
    x, weight, target = arguments(dtype)
    if program is rows_in_float32:
        target = target.clamp(min=0)
    compiled = thunder.jit(program, executors=[ex])
    loss = compiled(x, weight, target)
    gradients = torch.autograd.grad(loss * 3, [x, weight])
    assert claimed(compiled) == {
        "triton_kernels.linear_cross_entropy_with_gradients",
        "triton_kernels.linear_cross_entropy_gradient",
    }
    assert loss.dtype is (torch.float32 if "float32" in program.__name__ else dtype)
    bound = 2e-6 if dtype is torch.float32 else 1.2e-2  # the logits are rounded to bfloat16, as in eager
    for result, reference in zip((loss, *gradients), in_float64(program, x, weight, target), strict=True):
        assert (result - reference).abs().max() <= bound * reference.abs().max()


def test_without_gradients_none_are_computed():
    x, weight, target = arguments(torch.float32)
    compiled = thunder.jit(rows, executors=[ex])
    with torch.no_grad():
        torch.testing.assert_close(compiled(x, weight, target), rows(x, weight, target))
    assert claimed(compiled) == {"triton_kernels.linear_cross_entropy"}


@pytest.mark.parametrize("frozen", ["x", "weight"])
def test_a_gradient_of_one_argument(frozen: str):
    x, weight, target = arguments(torch.float32)
    {"x": x, "weight": weight}[frozen].requires_grad_(False)
    learnt = weight if frozen == "x" else x
    compiled = thunder.jit(rows, executors=[ex])
    (gradient,) = torch.autograd.grad(compiled(x, weight, target), learnt)
    (expected,) = torch.autograd.grad(rows(x, weight, target), learnt)
    torch.testing.assert_close(gradient, expected)


def test_the_logits_are_never_whole():
    x, weight, target = arguments(torch.float32, n=256)
    largest = 0

    class Sizes(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            nonlocal largest
            result = func(*args, **(kwargs or {}))
            if isinstance(result, torch.Tensor):
                largest = max(largest, result.numel())
            return result

    with Sizes(), torch.no_grad():
        kernels.loss_and_gradients(x, weight, target, -100, True, True)
    assert largest <= weight.numel() < x.shape[0] * CLASSES / 2


def test_a_program_that_uses_its_logits_stays_as_it_is():
    x, weight, target = arguments(torch.float32)

    def f(x: torch.Tensor, w: torch.Tensor, t: torch.Tensor) -> Any:
        logits = F.linear(x, w)
        return F.cross_entropy(logits, t), logits

    compiled = thunder.jit(f, executors=[ex])
    for result, expected in zip(compiled(x, weight, target), f(x, weight, target), strict=True):
        torch.testing.assert_close(result, expected)
    assert not any("linear" in symbol for symbol in claimed(compiled))


def test_few_classes_are_refused_with_the_reason():
    x, target = torch.randn(4, 8), torch.tensor([1, 2, 3, 4])
    compiled = thunder.jit(rows, executors=[ex])
    compiled(x, torch.randn(10, 8), target)
    reasons = {r.refusal.message for r in thunder.explain(compiled).notes if not r.is_applied}
    assert reasons == {"few classes gain nothing from chunks"}


def test_a_second_derivative_of_the_operator_is_refused():
    x, weight, target = arguments(torch.float64)
    compiled = thunder.jit(lambda x, w, t: linear_cross_entropy(x, w, t, -100), executors=[ex])
    loss = compiled(x, weight, target)
    with pytest.raises(ThunderError, match="a second derivative of triton_kernels"):
        torch.autograd.grad(loss, x, create_graph=True)


def test_gradients_are_zero_where_every_row_is_ignored():
    x, w, t = arguments(torch.float32)
    compiled = thunder.jit(rows, executors=[ex])
    loss = compiled(x, w, torch.full_like(t, -100))
    assert claimed(compiled)
    assert loss.isnan()
    loss.backward()
    assert not x.grad.any()
    assert not w.grad.any()
