"""Thunder's conformance kit on the definitions, which torch computes."""

from __future__ import annotations

from typing import ClassVar

import pytest

from thunder.testing import ConformanceTests
from thunder_nvfuser.claims import INDEXED, PRODUCTS
from thunder_nvfuser.executor import replaying_executor
from thunder_nvfuser.shape_rules import ATTENTION
from thunder_nvfuser.translation import RULES

#: what only options allow
BY_OPTION = {ATTENTION, *(f"prims.{name}" for name in (*INDEXED, *PRODUCTS, "uniform_philox"))}


@pytest.mark.sweep
class TestReplayed(ConformanceTests):
    """Each primitive with a rule."""

    executor = replaying_executor()
    operators = tuple(sorted(set(RULES) - BY_OPTION))
    expected_failures: ClassVar = {
        "regions-prims.acos": "few results of acos(acos(x)) are numbers, and look truncated"
    }
