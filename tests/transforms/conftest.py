"""The plugin of thunder-transforms, which the tests of other folders run without."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import thunder_transforms
from thunder.plugins import get_manager


@pytest.fixture(autouse=True)
def _plugin() -> Iterator[None]:
    """Register the plugin, as an installed package is."""
    with get_manager().temporary(thunder_transforms, name="transforms-under-test"):
        yield
