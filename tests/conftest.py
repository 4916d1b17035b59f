"""Tests that need a device skip with the reason where it is missing. Imports no torch: the interpreter's need none."""

from __future__ import annotations

import importlib
import importlib.util

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skips `gpu` tests where there is no CUDA device; asks torch only if such a test was collected."""
    marked = [item for item in items if item.get_closest_marker("gpu")]
    if marked and not has_cuda():
        for item in marked:
            item.add_marker(pytest.mark.skip(reason="needs a CUDA device"))


def has_cuda() -> bool:
    """Whether torch is installed and sees a CUDA device."""
    return (
        importlib.util.find_spec("torch") is not None and importlib.import_module("torch").cuda.is_available()
    )
