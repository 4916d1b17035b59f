"""The plugin of thunder-migration, which the tests of other folders run without."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import thunder_migration
from thunder.plugins import get_manager


@pytest.fixture(autouse=True)
def _plugin() -> Iterator[None]:
    """Register the plugin, as that of the installed package is."""
    with get_manager().temporary(thunder_migration, name="migration-under-test"):
        yield
