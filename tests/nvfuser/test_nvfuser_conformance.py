"""Thunder's conformance kit on the definitions, which torch computes."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest
import torch

from thunder.testing import ConformanceTests
from thunder_nvfuser.attention import OPERATORS
from thunder_nvfuser.claims import INDEXED, PRODUCTS
from thunder_nvfuser.executor import replaying_executor
from thunder_nvfuser.sort_rules import SORTS
from thunder_nvfuser.translation import RULES

#: what only options allow
BY_OPTION = {
    *(operator.id for operator in OPERATORS),
    *(f"prims.{name}" for name in (*INDEXED, *PRODUCTS, *SORTS, "uniform_philox")),
}


def created(x: torch.Tensor) -> Any:
    """Tensors that are created in the region."""
    return torch.full((3, 4), 2.5) * x, torch.arange(4) + x * 2


@pytest.mark.sweep
class TestReplayed(ConformanceTests):
    """Each primitive with a rule."""

    executor = replaying_executor()
    operators = tuple(sorted(set(RULES) - BY_OPTION))
    programs: ClassVar = {"created": (created, (torch.linspace(-2, 2, 12).view(3, 4),))}
    expected_failures: ClassVar = {
        "regions-prims.acos": "few results of acos(acos(x)) are numbers, and look truncated",
        "fusion-shapes-prims.acos": "few results of acos(acos(x)) are numbers, and look truncated",
        "fused-prims.shallow_copy": "a region returns no view",
    }
