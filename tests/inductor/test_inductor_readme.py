"""The pages on thunder-inductor show what happens."""

from __future__ import annotations

from pathlib import Path

import pytest

from documents.blocks import comparable, run
from documents.test_documents import ROOT


def check(page: Path) -> None:
    for example, printed in run(page):
        if example.output is not None:
            assert comparable(printed) == comparable(example.output)


def test_the_examples_print_what_the_readme_shows() -> None:
    check(ROOT / "packages" / "thunder-inductor" / "README.md")


@pytest.mark.sweep
def test_the_examples_print_what_the_page_on_first_calls_shows(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("THUNDER_CACHE_DIR", str(tmp_path))
    check(ROOT / "docs" / "first_calls.md")
