"""The plugins of thunder-bnb and of packages beside it, which the tests of other folders run without."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import thunder_bnb
import thunder_onednn
import thunder_transforms
from thunder.plugins import get_manager


@pytest.fixture(autouse=True)
def _plugins() -> Iterator[None]:
    """Register the plugins, as those of installed packages are."""
    manager = get_manager()
    with (
        manager.temporary(thunder_bnb, name="bnb-under-test"),
        manager.temporary(thunder_onednn, name="onednn-beside-bnb"),
        manager.temporary(thunder_transforms, name="transforms-beside-bnb"),
    ):
        yield
