"""The plugins of packages that the pages use."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import thunder_autotune
import thunder_bisect
import thunder_distributed
import thunder_migration
import thunder_nvfuser
import thunder_report
import thunder_store
import thunder_te
import thunder_transforms
from thunder.plugins import get_manager


@pytest.fixture(autouse=True)
def _plugins() -> Iterator[None]:
    """Register the plugins, as those of installed packages are."""
    manager = get_manager()
    with (
        manager.temporary(thunder_transforms, name="transforms-of-pages"),
        manager.temporary(thunder_autotune, name="autotune-of-pages"),
        manager.temporary(thunder_bisect, name="bisect-of-pages"),
        manager.temporary(thunder_report, name="report-of-pages"),
        manager.temporary(thunder_migration, name="migration-of-pages"),
        manager.temporary(thunder_store, name="store-of-pages"),
        manager.temporary(thunder_te, name="te-of-pages"),
        manager.temporary(thunder_nvfuser, name="nvfuser-of-pages"),
        manager.temporary(thunder_distributed, name="distributed-of-pages"),
    ):
        yield
