"""The transforms of thunder-transforms, which the pages use by name."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import thunder_transforms
from thunder.plugins import get_manager


@pytest.fixture(autouse=True)
def _transforms() -> Iterator[None]:
    """Register the plugin, as an installed package is."""
    with get_manager().temporary(thunder_transforms, name="transforms-of-pages"):
        yield
