"""Thunder's conformance kit on the definitions, which torch computes."""

from __future__ import annotations

import pytest

from thunder.testing import ConformanceTests
from thunder_nvfuser.executor import replaying_executor
from thunder_nvfuser.translation import RULES


@pytest.mark.sweep
class TestReplayed(ConformanceTests):
    """Each primitive with a rule."""

    executor = replaying_executor()
    operators = tuple(sorted(RULES))
