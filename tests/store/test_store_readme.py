"""The README of thunder-store, and the page about kept programs, show what happens."""

from __future__ import annotations

import pytest

from documents.blocks import comparable, run
from documents.test_documents import ROOT


@pytest.mark.parametrize("page", ["packages/thunder-store/README.md", "docs/kept_programs.md"])
def test_the_examples_print_what_the_page_shows(page: str) -> None:
    for example, printed in run(ROOT / page):
        if example.output is not None:
            assert comparable(printed) == comparable(example.output)
