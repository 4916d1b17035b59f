"""The browser that looks at pages: those of the site, and those of `thunder.report`."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from typing import Any

import pytest

import workspace_plugins

BROWSER = shutil.which("chromium") or shutil.which("google-chrome")

# Tests register the plugins that they need.
os.environ.setdefault("THUNDER_DISABLE_PLUGINS", ",".join(workspace_plugins.NAMES))


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """A headless Chromium."""
    if BROWSER is None:
        pytest.skip("no Chromium here: install Debian's package chromium")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        yield playwright.chromium.launch(
            executable_path=BROWSER,
            args=["--no-sandbox", "--disable-background-networking", "--disable-component-update"],
        )
