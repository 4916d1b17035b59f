"""The plugins of thunder-report and thunder-transforms, which the tests of other folders run without."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

import thunder_report
import thunder_transforms
from thunder.plugins import get_manager


@pytest.fixture(autouse=True, scope="module")
def _plugins() -> Iterator[None]:
    """Register the plugins, as those of installed packages are."""
    manager = get_manager()
    with (
        manager.temporary(thunder_report, name="report-under-test"),
        manager.temporary(thunder_transforms, name="transforms-beside-report"),
    ):
        torch.manual_seed(0)
        yield
