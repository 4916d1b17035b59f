"""The plugin of thunder-store, which the tests of other folders run without."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

import thunder_store
from thunder.plugins import get_manager
from thunder_store import outcomes, program_cache


@pytest.fixture(scope="module", autouse=True)
def _plugin() -> Iterator[None]:
    """Register the plugin, as that of an installed package is."""
    with get_manager().temporary(thunder_store, name="store-under-test"):
        torch.manual_seed(0)
        yield


@pytest.fixture(autouse=True)
def _no_events() -> None:
    """Forget the events of other tests: the oldest ones are dropped where there are many."""
    outcomes._events.clear()


@pytest.fixture
def _one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let this process keep programs although other tests of it have written modules that it has loaded."""
    monkeypatch.setattr(program_cache, "refuse_newer_files", lambda files: None)
