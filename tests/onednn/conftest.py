"""The plugins of thunder-onednn and thunder-transforms, which the tests of other folders run without."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

import thunder_onednn
import thunder_transforms
from thunder.plugins import get_manager


@pytest.fixture(autouse=True)
def _plugins() -> Iterator[None]:
    """Register the plugins, as those of installed packages are; programs compute no gradients."""
    manager = get_manager()
    with (
        manager.temporary(thunder_onednn, name="onednn-under-test"),
        manager.temporary(thunder_transforms, name="transforms-beside-onednn"),
        torch.no_grad(),
    ):
        torch.manual_seed(0)
        yield
