"""Thunder's conformance kit on the executor `inductor`, in each mode; exhaustive, so part of a sweep."""

from __future__ import annotations

import pytest

from thunder.testing import ConformanceTests
from thunder_inductor.executor import ex


@pytest.mark.sweep
class TestInductor(ConformanceTests):
    """Each operator, and small programs of which the executor makes regions."""

    executor = ex
