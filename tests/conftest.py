"""Tests that need a device skip with the reason where it is missing.

Nothing here imports torch unless such a test was collected: the interpreter's tests run without it.
"""

from __future__ import annotations

import importlib
import importlib.util

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skips `gpu` tests where there is no CUDA device."""
    marked = [item for item in items if item.get_closest_marker("gpu")]
    if marked and not has_cuda():
        for item in marked:
            item.add_marker(pytest.mark.skip(reason="needs a CUDA device"))


def has_cuda() -> bool:
    """Whether torch is installed and sees a CUDA device."""
    if importlib.util.find_spec("torch") is None:
        return False
    return bool(importlib.import_module("torch").cuda.is_available())
