"""Maxima of windows in regions: values and indices are eager's, also of ties, infinities and NaNs."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

import thunder

pytestmark = pytest.mark.xdist_group("inductor")

INF = float("inf")
SWEEP = pytest.mark.sweep


def ties(x: torch.Tensor) -> torch.Tensor:
    return x.round()


def infinities(x: torch.Tensor) -> torch.Tensor:
    return torch.where(x < 1.3, -INF, x)


def nans(x: torch.Tensor) -> torch.Tensor:
    return torch.where(x > 0.5, float("nan"), x)


def all_of_them(x: torch.Tensor) -> torch.Tensor:
    return torch.where(x > 3, float("nan"), torch.where(x < 0, -INF, x.round()))


#: kernel size, stride, padding, dilation, ceil_mode
WINDOWS = [
    (3, 2, 1, 1, False),
    (2, 2, 0, 1, False),
    ((3, 2), (2, 1), (1, 0), 1, True),
    (3, 2, 1, 2, True),
    (2, 3, 1, 1, True),
    (5, 1, 2, 1, False),
]


@pytest.mark.parametrize(
    "windows", [WINDOWS[3], *(pytest.param(w, marks=pytest.mark.sweep) for w in WINDOWS)]
)
@pytest.mark.parametrize("dtype", [torch.float32, pytest.param(torch.bfloat16, marks=SWEEP)])
def test_maxima_and_indices_are_eagers(
    windows: tuple[object, ...], dtype: torch.dtype, whole_run: bool
) -> None:
    fills = (ties, infinities, nans) if whole_run else (all_of_them,)

    def program(x: torch.Tensor) -> list[tuple[torch.Tensor, torch.Tensor]]:
        y = x * 2
        return [F.max_pool2d(fill(y), *windows, return_indices=True) for fill in fills]

    x = torch.randn(2, 3, 13, 11, generator=torch.Generator().manual_seed(0)).to(dtype)
    compiled = thunder.jit(program)
    results, expected = compiled(x), program(x)
    called = [bsym.sym.name for bsym in thunder.last_traces(compiled)[-1].bound_symbols]
    assert not any("max_pool" in name for name in called), called
    for (maxima, indices), (eager_maxima, eager_indices) in zip(results, expected, strict=True):
        torch.testing.assert_close(maxima, eager_maxima, rtol=0, atol=0, equal_nan=True)
        assert torch.equal(indices, eager_indices)


def test_the_gradient_reaches_the_element_that_eager_chose() -> None:
    gradients = []
    for function in (lambda f: f, thunder.jit):
        x = torch.randn(1, 2, 8, 8, generator=torch.Generator().manual_seed(0)).requires_grad_()
        y = function(lambda x: F.max_pool2d(infinities(x * 2), 3, 2, 1) * 2)(x)
        (gradient,) = torch.autograd.grad(y, x, torch.ones_like(y))
        gradients.append(gradient)
    assert torch.equal(*gradients)
