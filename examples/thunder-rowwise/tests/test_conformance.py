"""What thunder asks of every executor, of each operator of this one."""

from __future__ import annotations

from typing import ClassVar

import pytest
import torch

from thunder.testing import ConformanceTests
from thunder_rowwise import executor, kernels

torch.manual_seed(0)
SHAPE = (2, 16, 48)
X, Y, G = (torch.randn(SHAPE) for _ in range(3))
WEIGHT = torch.randn(SHAPE[-1])
EPS = 1e-5


def rms_norm_forward(x: torch.Tensor, weight: torch.Tensor, eps: float) -> tuple[torch.Tensor, torch.Tensor]:
    """What the kernel computes, by the formula."""
    x = x.contiguous()
    rstd = torch.rsqrt(x.square().mean(-1, keepdim=True) + eps)
    return x * rstd * weight, rstd.detach()


def rms_norm_backward(
    grad: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, rstd: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """The gradients, by torch's autograd of a formula that has the factors' dependence on `x` in it."""
    with torch.enable_grad():
        x, weight = x.detach().requires_grad_(), weight.detach().requires_grad_()
        eps = rstd.pow(-2) - x.detach().square().mean(-1, keepdim=True)
        out = x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps) * weight
    grad_x, grad_weight = torch.autograd.grad(out, (x, weight), grad)
    return grad_x, grad_weight


def swiglu_backward(
    grad: torch.Tensor, gate: torch.Tensor, up: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """The gradients, by torch's autograd."""
    with torch.enable_grad():
        gate, up = gate.detach().requires_grad_(), up.detach().requires_grad_()
        out = kernels.swiglu(gate, up)
    grad_gate, grad_up = torch.autograd.grad(out, (gate, up), grad)
    return grad_gate, grad_up


@pytest.fixture(autouse=True)
def small_things_are_large(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that small samples are taken, and are several blocks."""
    monkeypatch.setattr(executor, "WORTHWHILE", 1 << 8)
    monkeypatch.setattr(kernels, "BLOCK", 1 << 8)


class TestConformance(ConformanceTests):
    """The tests. What the checker and the kernels distinguish is among the samples, and each refusal once."""

    executor = executor.ex
    samples: ClassVar = {
        "torch.nn.functional.rms_norm": [
            ((X, (48,), WEIGHT), {"eps": EPS}),
            ((X, (48,), WEIGHT), {}),
            ((X[0, :2], (48,), WEIGHT), {"eps": EPS}),  # too small
            ((X, (16, 48), torch.randn(16, 48)), {"eps": EPS}),  # two dimensions
            ((X, (48,)), {}),  # no weight
        ],
        "rms_norm_forward": [((X, WEIGHT, EPS), {})],
        "rms_norm_backward": [((G, X, WEIGHT, rms_norm_forward(X, WEIGHT, EPS)[1]), {})],
        "swiglu": [((X, Y), {}), ((X[0, 0], Y[0, 0]), {})],
        "swiglu_backward": [((G, X, Y), {})],
    }
    references: ClassVar = {
        "rms_norm_forward": rms_norm_forward,
        "rms_norm_backward": rms_norm_backward,
        "swiglu_backward": swiglu_backward,
    }
