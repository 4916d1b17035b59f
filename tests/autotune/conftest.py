"""The plugins of thunder-autotune and thunder-transforms, which the tests of other folders run without."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

import thunder_autotune
import thunder_transforms
from autotune.traps import Clock
from thunder.plugins import get_manager


@pytest.fixture(autouse=True, scope="module")
def _plugins() -> Iterator[None]:
    """Register the plugins, as those of installed packages are."""
    manager = get_manager()
    with (
        manager.temporary(thunder_autotune, name="autotune-under-test"),
        manager.temporary(thunder_transforms, name="transforms-beside-autotune"),
    ):
        torch.manual_seed(0)
        yield


@pytest.fixture
def clock() -> Clock:
    """Return a clock that kernels turn on."""
    return Clock()
