"""Thunder's conformance kit on the executor `inductor`; exhaustive, so part of a sweep."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest
import torch

from thunder.testing import ConformanceTests
from thunder_inductor.executor import ex
from thunder_inductor.operators import MODES


def reductions(x: torch.Tensor) -> Any:
    """Reductions whose results are not arguments of the same operator."""
    y = x * 2
    variance, mean = torch.var_mean(y, dim=-1)
    return variance + mean, (y > 0).any(), (y > 1).all(), y.argmax(-1), y.argmin(-1), y.std(-1), y.prod(-1)


def selections(x: torch.Tensor, y: torch.Tensor) -> Any:
    """Comparisons and what selects elements."""
    greater = torch.where((x > y) & (x >= 0) | (x != y), x, y)
    less = torch.where((x < y) ^ (x <= 0), torch.cat((x, y))[: len(x)], -y)
    finite = torch.isfinite(x) & ~torch.isnan(y) & ~torch.isinf(x) & torch.logical_not(x == y)
    return greater * less, torch.where(torch.signbit(x), finite, ~finite), torch.lerp(x * 2, y, 0.25)


def conversions(x: torch.Tensor, y: torch.Tensor) -> Any:
    """Conversions, broadcasting and moves."""
    z = (x.double() * y).float()
    return z.tril() + z.flip(0), torch.exp(z.bfloat16()) * 2


def filled(x: torch.Tensor) -> Any:
    """A tensor of one number, and a diagonal of what is computed from it."""
    y = torch.full((3, 4), 2.5) * x
    return y.diagonal() + 1, y.sin()


@pytest.mark.sweep
class TestInductor(ConformanceTests):
    """Each operator of the default mode, and small programs of which the executor makes regions."""

    executor = ex
    expected_failures: ClassVar = {
        "regions-prims.erf": "TorchInductor's error is 4e-7 absolute, also at small numbers"
    }
    operators = tuple(sorted(MODES["pointwise"]))
    programs: ClassVar = {
        "reductions": (reductions, (torch.linspace(-2, 2, 12).view(3, 4),)),
        "filled": (filled, (torch.linspace(-2, 2, 12).view(3, 4),)),
        "conversions": (conversions, (torch.linspace(-2, 2, 12).view(3, 4), torch.ones(4))),
        "selections": (selections, (torch.linspace(-2, 2, 12).view(3, 4), torch.ones(3, 4))),
    }
