"""Thunder's conformance kit on the executor `triton`; exhaustive, so part of a sweep."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest
import torch

from thunder.testing import ConformanceTests
from thunder_triton.executor import ex
from thunder_triton.fusions.building import BUILDERS


def conversions(x: torch.Tensor) -> Any:
    """Conversions of computed values."""
    y = (x * 2).double() + 1
    return y.float() * 3, torch.exp(y.bfloat16()) * 2


def filled(x: torch.Tensor) -> Any:
    """Tensors of one number, and counted ones, with what is computed from them."""
    y = torch.full((3, 4), 2.5) * x
    return y.diagonal() + 1, y.sin() + torch.arange(4)


@pytest.mark.sweep
class TestTriton(ConformanceTests):
    """Each primitive, and small programs of which the executor makes regions."""

    executor = ex
    expected_failures: ClassVar = {
        "regions-prims.acos": "eager's bits; acos(acos(x)) in bfloat16 has few results, mostly too small"
    }
    operators = tuple(f"prims.{name}" for name in sorted(BUILDERS))
    programs: ClassVar = {
        "conversions": (conversions, (torch.linspace(-2, 2, 12).view(3, 4),)),
        "filled": (filled, (torch.linspace(-2, 2, 12).view(3, 4),)),
    }
