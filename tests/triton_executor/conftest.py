"""Tests of thunder-triton run in processes of their own, since Triton reads its variable when imported."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

import thunder_transforms
from thunder.plugins import get_manager

#: the variable that `test_triton_processes` sets for the tests of a folder
FOLDER = os.environ.get("THUNDER_TRITON_TESTS", "")

collect_ignore_glob = [f"{name}/*" for name in ("interpreted", "compiled") if name != FOLDER]


@pytest.fixture(autouse=True)
def _required_plugin() -> Iterator[None]:
    """Register the plugin of thunder-transforms, which the package requires: it applies the rewrite rules."""
    with get_manager().temporary(thunder_transforms, name="transforms-of-triton"):
        yield
