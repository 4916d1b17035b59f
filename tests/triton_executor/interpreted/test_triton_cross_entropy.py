"""The kernels of cross entropy, in Triton's interpreter, against eager in float64."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.nn import functional as F

import thunder
from sweeping import in_turn
from thunder_triton.kernel_executor import ex

BOUNDS = {torch.float64: 1e-13, torch.float32: 1e-6, torch.bfloat16: 2**-8, torch.float16: 2**-11}
SETTINGS: list[dict[str, Any]] = [
    {},
    {"reduction": "sum"},
    {"reduction": "none", "ignore_index": 3},
    {"label_smoothing": 0.1},
]


def claimed(compiled: Any) -> list[str]:
    return [row.symbol for row in thunder.explain(compiled).rows if row.claimed_by == "triton_kernels"]


@pytest.mark.parametrize(("settings", "dtype"), in_turn(SETTINGS, [*BOUNDS]), ids=str)
def test_losses_and_gradients_are_those_of_float64(dtype: torch.dtype, settings: dict[str, Any]):
    torch.manual_seed(0)
    logits = torch.randn(6, 5003, dtype=dtype, requires_grad=True)
    target = torch.randint(0, 5003, (6,))
    target[2] = settings.get("ignore_index", -100)
    compiled = thunder.jit(lambda x, t: F.cross_entropy(x, t, **settings), executors=[ex])
    loss = compiled(logits, target)
    assert loss.dtype is dtype
    cotangent = torch.randn_like(loss)
    (gradient,) = torch.autograd.grad(loss, logits, cotangent)
    wide = logits.detach().double().requires_grad_()
    expected = F.cross_entropy(wide, target, **settings)
    (reference,) = torch.autograd.grad(expected, wide, cotangent.double())
    bound = BOUNDS[dtype]
    torch.testing.assert_close(loss.double(), expected, rtol=bound, atol=bound)
    torch.testing.assert_close(gradient.double(), reference, rtol=bound, atol=bound * 1e-2)


def test_forward_and_backward_are_claimed():
    compiled = thunder.jit(F.cross_entropy, executors=[ex])
    compiled(torch.randn(3, 8, requires_grad=True), torch.tensor([1, 2, 3])).backward()
    assert claimed(compiled) == [
        "triton_kernels.cross_entropy_rows",
        "triton_kernels.cross_entropy_rows_backward",
    ]


@pytest.mark.parametrize(
    "logits", [torch.randn(8, 3).t(), torch.randn(3, 16)[:, ::2], torch.randn(1, 8).expand(3, 8)]
)
def test_logits_of_any_strides(logits: torch.Tensor):
    target = torch.tensor([7, 0, 7, 0, 3, 0])[::2]
    compiled = thunder.jit(F.cross_entropy, executors=[ex])
    torch.testing.assert_close(compiled(logits, target), F.cross_entropy(logits, target))


@pytest.mark.parametrize("value", [float("inf"), float("-inf"), float("nan")])
def test_infinities_and_nan_are_as_in_eager(value: float):
    logits = torch.randn(3, 8)
    logits[0, 1] = logits[1] = value
    target = torch.tensor([1, 2, 3])
    compiled = thunder.jit(lambda x, t: F.cross_entropy(x, t, reduction="none"), executors=[ex])
    expected = F.cross_entropy(logits, target, reduction="none")
    torch.testing.assert_close(compiled(logits, target), expected, equal_nan=True)


def test_no_rows_and_rows_that_are_all_ignored():
    compiled = thunder.jit(F.cross_entropy, executors=[ex])
    for logits, target in (
        (torch.randn(0, 8), torch.zeros(0, dtype=torch.int64)),
        (torch.randn(2, 8), torch.tensor([-100, -100])),
    ):
        assert compiled(logits, target).isnan()


def test_a_target_that_is_no_class_raises_as_in_eager():
    compiled = thunder.jit(F.cross_entropy, executors=[ex])
    logits, target = torch.randn(2, 8), torch.tensor([1, 8])
    with pytest.raises(IndexError, match="Target 8 is out of bounds"):
        F.cross_entropy(logits, target)
    with pytest.raises(IndexError, match="Target 8 is out of bounds"):
        compiled(logits, target)


def test_other_forms_are_refused_with_the_reason_and_run_by_torch():
    logits, target = torch.randn(2, 8), torch.tensor([1, 7])
    for arguments, settings, reason in (
        ((logits, target), {"weight": torch.rand(8)}, "weights of classes"),
        ((logits, torch.rand(2, 8)), {}, "one class for each row"),
        ((torch.randn(2, 8, 3), torch.ones(2, 3, dtype=torch.int64)), {}, "one class for each row"),
    ):
        compiled = thunder.jit(lambda x, t, s=settings: F.cross_entropy(x, t, **s), executors=[ex])
        torch.testing.assert_close(compiled(*arguments), F.cross_entropy(*arguments, **settings))
        assert reason in str(thunder.explain(compiled).why_not("triton_kernels"))


def test_second_derivatives_are_torchs():
    logits, target = torch.randn(2, 8, dtype=torch.float64, requires_grad=True), torch.tensor([1, 7])
    compiled = thunder.jit(F.cross_entropy, executors=[ex])
    assert torch.autograd.gradgradcheck(lambda x: compiled(x, target), logits)


@pytest.mark.parametrize("options", [{}, {"label_smoothing": -0.5}], ids=["bytes", "smoothing"])
def test_targets_of_bytes_and_smoothing_below_zero_are_run_by_torch(options: dict[str, Any]):
    logits, target = torch.randn(4, 6), torch.tensor([0, 5, 2, 1])
    target = target if options else target.byte()
    compiled = thunder.jit(lambda x, t: F.cross_entropy(x, t, **options), executors=[ex])
    torch.testing.assert_close(compiled(logits, target), F.cross_entropy(logits, target, **options))
    assert not claimed(compiled)


def test_the_gradient_of_an_ignored_row_of_infinities_is_eagers():
    target, logits = torch.tensor([-100, 1]), torch.randn(2, 4)
    logits[0] = float("-inf")
    inputs, expected = logits.clone().requires_grad_(), logits.clone().requires_grad_()
    thunder.jit(F.cross_entropy, executors=[ex])(inputs, target).backward()
    F.cross_entropy(expected, target).backward()
    torch.testing.assert_close(inputs.grad, expected.grad, equal_nan=True)
